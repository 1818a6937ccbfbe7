"""Records of a part -> the units of each queue, and the keys: what dispatch makes, but not written.

The store's own `UnitBuilder` runs over queues that only remember what was put into them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format.dispatch import KeyEntries, key_entries
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.format.record import RecordColumns, StopReason
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq, is_system_topic
from rocketlake.spark.jobs.dispatch.parts import LogShape, Part, PartWalk, require_visible
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.disk.log import Readers
from rocketlake.store.dispatch.unit_builder import Round, UnitBuilder
from rocketlake.store.ports import CustomDispatcher, DispatchSlice
from rocketlake.store.queue.batch import BatchConsumeQueue
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.queue_set import AnyQueue
from rocketlake.store.queue.unit_kind import Units
from rocketlake.store.queue.unit_queue import Column, packed
from rocketlake.upkeep.verify.log_file_walk import BadPart

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

PLAIN: Final = 0
EXTENDED: Final = 1
BATCH: Final = 2

_NO_NUMBERS: Final = np.empty(0, np.int64)
_EVERY_QUEUE: Final = 1 << 31


class Wanted(Struct, frozen=True, kw_only=True):
    """Which records belong to queues that are made.

    A topic that is not among those known was deleted, and its records get no queues. A queue of a
    topic that was deleted and made again begins at an offset of the log.
    """

    topics: frozenset[str] | None = None
    """The topics there are; None: nobody knows, so all."""
    starts: dict[QueueKey, int] = field(default_factory=dict)

    def start_of(self, key: QueueKey) -> int | None:
        """Return where in the log a queue begins; None if it is not made."""
        found = self.starts.get(key)
        if found is not None:
            return found
        is_known = self.topics is None or key.topic in self.topics
        return 0 if is_known or is_system_topic(key.topic) or is_lmq(key.topic) else None


class Rules(Struct, frozen=True, kw_only=True):
    """How records become units; it can be sent."""

    delays_ms: list[int]
    has_light_queues: bool = False
    batch_topics: frozenset[str] = frozenset()
    has_ext: bool = False
    """Every plain queue has an extension."""
    ext_queues: frozenset[QueueKey] = frozenset()
    """Those that have one in any case."""
    make_bits: Callable[[], CustomDispatcher | None] | None = None
    """Makes, on the executor, what computes the filter bits of extensions."""
    wanted: Wanted = Wanted()
    deleted: DeletedTopics = NO_TOPICS
    has_queues: bool = True
    has_keys: bool = True
    has_tags: bool = False
    """The index has tags beside keys."""


class Block(Struct, frozen=True, kw_only=True):
    """Units of one queue, in the order of the log."""

    key: QueueKey
    kind: int
    units: bytes | memoryview
    """As a plain queue has them, 20 bytes each."""
    first_offset: int
    offsets: Int64s = _NO_NUMBERS
    """The queue offset of each; empty if they count up from the first."""
    timestamps: Int64s = _NO_NUMBERS
    counts: Int64s = _NO_NUMBERS
    bitmaps: Sequence[bytes] = ()

    @property
    def count(self) -> int:
        """How many units there are."""
        return len(self.units) // UNIT_DTYPE.itemsize

    @property
    def queue_offsets(self) -> Int64s:
        """The queue offset of each unit."""
        if len(self.offsets):
            return self.offsets
        return np.arange(self.first_offset, self.first_offset + self.count, dtype=np.int64)

    def decode(self) -> Units:
        """Return the units as an array."""
        return np.frombuffer(self.units, UNIT_DTYPE)


class PartFacts(Struct, frozen=True, kw_only=True):
    """What a walk over a part came upon."""

    part: Part
    start: int
    reached: int
    stop: StopReason = StopReason.OK
    records: int = 0
    last_timestamp: int = 0
    newest_timestamp: int = 0
    has_keyless_end: bool = False
    """Records come behind the last one that has a key."""
    bad: list[BadPart] = field(default_factory=list)


class PartResult(Struct, frozen=True, kw_only=True):
    """What becomes of a part."""

    facts: PartFacts
    blocks: list[Block]
    keys: KeyEntries


# --- queues that remember ------------------------------------------------------------------------


class _Kept:
    """What was put into one queue."""

    __slots__ = ("bitmaps", "counts", "firsts", "offsets", "sizes", "timestamps", "units")

    def __init__(self) -> None:
        self.units: list[bytes] = []
        self.firsts: list[int] = []
        self.sizes: list[int] = []
        self.offsets: list[Int64s | None] = []  # None: they count up
        self.timestamps: list[Int64s] = []
        self.counts: list[Int64s] = []
        self.bitmaps: list[bytes] = []

    def add(self, units: bytes, first: int, offsets: Int64s | None, count: int) -> None:
        self.units.append(units)
        self.firsts.append(first)
        self.sizes.append(count)
        self.offsets.append(offsets)

    def block(self, key: QueueKey, kind: int) -> Block:
        return Block(
            key=key,
            kind=kind,
            units=b"".join(self.units),
            first_offset=self.firsts[0],
            offsets=self._numbers(),
            timestamps=_joined(self.timestamps),
            counts=_joined(self.counts),
            bitmaps=self.bitmaps,
        )

    def _numbers(self) -> Int64s:
        """Return all queue offsets, or none where each is one more than the one before."""
        ends = [first + size for first, size in zip(self.firsts, self.sizes, strict=True)]
        if self.firsts[1:] == ends[:-1] and all(found is None for found in self.offsets):
            return _NO_NUMBERS
        parts = [
            np.arange(first, first + size, dtype=np.int64) if found is None else found
            for first, size, found in zip(self.firsts, self.sizes, self.offsets, strict=True)
        ]
        joined = np.concatenate(parts)
        return _NO_NUMBERS if bool((np.diff(joined) == 1).all()) else joined


class _KeptPlain(ConsumeQueue):
    """A plain queue that remembers; `ext` only says whether there would be one."""

    __slots__ = ("kept",)

    def __init__(self, key: QueueKey, *, has_ext: bool) -> None:
        self.key = key
        self.kept = _Kept()
        self.max_offset = 0
        self.ext = cast(Any, self) if has_ext else None

    def append_packed(  # noqa: PLR0917 - as a queue has it
        self,
        view: memoryview,
        first_offset: int,
        count: int,
        first_physical: int,
        end_physical: int,
    ) -> None:
        """Remember units of consecutive queue offsets."""
        del first_physical, end_physical
        self.kept.add(bytes(view), first_offset, None, count)

    def put(self, units: Units, queue_offsets: Column) -> None:
        """Remember units."""
        if len(units):
            offsets = np.array(queue_offsets, np.int64)
            view = packed(units, UNIT_DTYPE)
            self.kept.add(bytes(view), int(offsets[0]), offsets, len(units))

    def put_extended(
        self,
        units: Units,
        queue_offsets: Column,
        store_timestamps: Column,
        bitmaps: Sequence[bytes],
    ) -> None:
        """Remember units and what goes into their extensions."""
        self.put(units, queue_offsets)
        self.kept.timestamps.append(np.array(store_timestamps, np.int64))
        self.kept.bitmaps += bitmaps


class _KeptBatch(BatchConsumeQueue):
    """A batch queue that remembers."""

    __slots__ = ("kept",)

    def __init__(self, key: QueueKey) -> None:
        self.key = key
        self.kept = _Kept()
        self.max_offset = 0

    def put(
        self, units: Units, base_offsets: Column, store_timestamps: Column, batch_sizes: Column
    ) -> None:
        """Remember units, and how many messages each stands for."""
        if len(units):
            bases = np.array(base_offsets, np.int64)
            view = packed(units, UNIT_DTYPE)
            self.kept.add(bytes(view), int(bases[0]), bases, len(units))
            self.kept.timestamps.append(np.array(store_timestamps, np.int64))
            self.kept.counts.append(np.array(batch_sizes, np.int64))


class KeptQueues:
    """The queues of one part (unit_builder.QueueFinder, ports.TopicCatalog)."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._queues: dict[QueueKey, _KeptPlain | _KeptBatch] = {}

    def find(self, key: QueueKey) -> AnyQueue | None:
        """Return a queue that something was put into."""
        return self._queues.get(key)

    def get_or_create(self, key: QueueKey, *, is_batch: bool = False) -> AnyQueue:
        """Return a queue, a new one if there is none."""
        found = self._queues.get(key)
        if found is None:
            has_ext = self._rules.has_ext or key in self._rules.ext_queues
            found = _KeptBatch(key) if is_batch else _KeptPlain(key, has_ext=has_ext)
            self._queues[key] = found
        return found

    def is_batch_queue(self, topic: str) -> bool:
        """Tell whether the queues of a topic are batch consume queues."""
        return topic in self._rules.batch_topics

    def read_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be read: any."""
        del topic
        return _EVERY_QUEUE

    write_queue_count = read_queue_count

    def blocks(self) -> list[Block]:
        """Return what was put into each queue."""
        found: list[Block | None] = []
        for key, queue in sorted(self._queues.items()):
            start = self._rules.wanted.start_of(key)
            if start is None or not queue.kept.units:
                continue
            kind = BATCH
            if isinstance(queue, _KeptPlain):
                # Light queues get plain units in any case, as the builder has it.
                kind = EXTENDED if queue.kept.timestamps else PLAIN
            block = queue.kept.block(key, kind)
            found.append(_behind(block, start) if start else block)
        return [block for block in found if block is not None]


# --- the work of an executor ---------------------------------------------------------------------


def make_part(
    shape: LogShape, part: Part, rules: Rules, *, ops: FileOps | None = None
) -> PartResult:
    """Walk a part and make its units and keys.

    Raises:
        StoreNotFoundError: this process cannot see the log.
    """
    ops = ops or PosixFileOps()
    require_visible(shape, part, ops)
    readers = Readers(ops)
    try:
        return _PartMaker(shape, part, rules, readers).run()
    finally:
        readers.close()


class _PartMaker:
    def __init__(self, shape: LogShape, part: Part, rules: Rules, readers: Readers) -> None:
        self._part = part
        self._rules = rules
        self._walk = PartWalk(shape, part, readers)
        self._queues = KeptQueues(rules)
        self._builder = UnitBuilder(
            self._queues,
            self._queues,
            delay_levels_ms=rules.delays_ms,
            has_light_queues=rules.has_light_queues,
            deleted=lambda: rules.deleted,
        )
        self._bits = rules.make_bits() if rules.make_bits is not None else None
        self._keys: list[tuple[Int32s, Int64s, Int64s]] = []
        self._records = 0
        self._last = self._newest = 0
        self._has_keyless_end = False

    def run(self) -> PartResult:
        for columns in self._walk.records():
            self._take(columns)
        walk = self._walk
        facts = PartFacts(
            part=self._part,
            start=walk.start,
            reached=walk.reached,
            stop=walk.stop,
            records=self._records,
            last_timestamp=self._last,
            newest_timestamp=self._newest,
            has_keyless_end=self._has_keyless_end,
            bad=walk.bad,
        )
        return PartResult(facts=facts, blocks=self._queues.blocks(), keys=self._entries())

    def _take(self, columns: RecordColumns) -> None:
        self._records += len(columns)
        times = columns["store_timestamp"]
        self._last = int(times[-1])
        self._newest = max(self._newest, int(times.max()))
        if self._rules.has_queues:
            self._take_units(columns)
        if self._rules.has_keys:
            hashes, rows = key_entries(columns, with_tags=self._rules.has_tags)
            if len(hashes):
                self._keys.append((hashes, columns["physical_offset"][rows], times[rows]))
            self._has_keyless_end = not len(rows) or int(rows[-1]) < len(columns) - 1

    def _take_units(self, columns: RecordColumns) -> None:
        records = Round(columns)
        if self._bits is not None:
            self._bits.dispatch(DispatchSlice(columns, records.bitmaps))
        self._builder.put(records)

    def _entries(self) -> KeyEntries:
        if not self._keys:
            return KeyEntries(np.empty(0, np.int32), _NO_NUMBERS, _NO_NUMBERS)
        hashes, places, times = zip(*self._keys, strict=True)
        return KeyEntries(np.concatenate(hashes), np.concatenate(places), np.concatenate(times))


def _behind(block: Block, start: int) -> Block | None:
    """Return what a block has of records from an offset of the log on; None if that is nothing."""
    units = block.decode()
    first = int(np.searchsorted(units["physical_offset"].astype(np.int64), start))
    if first == 0:
        return block
    if first == len(units):
        return None
    return Block(
        key=block.key,
        kind=block.kind,
        units=block.units[first * UNIT_DTYPE.itemsize :],
        first_offset=int(block.queue_offsets[first]),
        offsets=block.offsets[first:],
        timestamps=block.timestamps[first:],
        counts=block.counts[first:],
        bitmaps=block.bitmaps[first:],
    )


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else _NO_NUMBERS
