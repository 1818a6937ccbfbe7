"""Records of a part -> the units of each queue, and the keys: what dispatch makes, but not written.

Which units there are is the store's own rule (`store.dispatch.placement`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.embedded.dispatch_files import CustomDispatcher, DispatchSlice
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format.dispatch import KeyEntries, key_entries
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.format.record import RecordColumns, StopReason
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import can_name_queues, is_lmq, is_system_topic
from rocketlake.spark.jobs.dispatch.parts import LogShape, Part, PartWalk, require_visible
from rocketlake.store.dispatch.placement import PlacementRules, Records, UnitBlock, place
from rocketlake.store.offline import NO_TOPICS, DeletedTopics, Readers, Units
from rocketlake.upkeep.verify.log_file_walk import BadPart

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

PLAIN: Final = 0
EXTENDED: Final = 1
BATCH: Final = 2

_NO_NUMBERS: Final = np.empty(0, np.int64)


class Wanted(Struct, frozen=True, kw_only=True):
    """Which records belong to queues that are made.

    A topic that is not among those known was deleted, and its records get no queues. A queue of a
    topic that was deleted and made again begins at an offset of the log.
    """

    topics: frozenset[str] | None = None
    """The topics there are; None: not known, so all."""
    starts: dict[QueueKey, int] = field(default_factory=dict)

    def start_of(self, key: QueueKey) -> int | None:
        """Return where in the log a queue begins; None if it is not made."""
        found = self.starts.get(key)
        if found is not None:
            return found
        is_known = self.topics is None or key.topic in self.topics
        return 0 if is_known or is_system_topic(key.topic) or is_lmq(key.topic) else None


class Rules(Struct, frozen=True, kw_only=True):
    """How records become units; picklable."""

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
    """In the form of a plain queue, 20 bytes each."""
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
    """What a walk over a part found."""

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
    """The units and keys of a part."""

    facts: PartFacts
    blocks: list[Block]
    keys: KeyEntries


# --- the units of a part -------------------------------------------------------------------------


class _QueueUnits:
    """The units of one queue, block by block."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._units: list[memoryview] = []
        self._offsets: list[Int64s] = []
        self._timestamps: list[Int64s] = []
        self._counts: list[Int64s] = []
        self._bitmaps: list[bytes] = []

    def add(self, found: UnitBlock, bitmaps: Mapping[int, bytes]) -> None:
        """Take the next units."""
        self._units.append(found.packed())
        offsets = found.offsets
        if self._kind == BATCH:
            offsets, counts = found.batch_numbers()
            self._counts.append(counts)
        self._offsets.append(offsets)
        if self._kind != PLAIN:
            self._timestamps.append(found.column("store_timestamp"))
        if self._kind == EXTENDED:
            self._bitmaps += [bitmaps.get(row, b"") for row in found.rows.tolist()]

    def block(self, key: QueueKey) -> Block:
        """Return all units as one block."""
        offsets = _joined(self._offsets)
        return Block(
            key=key,
            kind=self._kind,
            units=b"".join(self._units),
            first_offset=int(offsets[0]),
            offsets=_NO_NUMBERS if bool((np.diff(offsets) == 1).all()) else offsets,
            timestamps=_joined(self._timestamps),
            counts=_joined(self._counts),
            bitmaps=self._bitmaps,
        )


class _PartUnits:
    """The units of all queues of a part."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._placement = PlacementRules(
            delays_ms=rules.delays_ms, has_light_queues=rules.has_light_queues
        )
        self._bits = rules.make_bits() if rules.make_bits is not None else None
        self._queues: dict[QueueKey, _QueueUnits] = {}

    def add(self, columns: RecordColumns) -> None:
        """Take the units of the next records."""
        bitmaps: dict[int, bytes] = {}
        if self._bits is not None:
            self._bits.dispatch(DispatchSlice(columns, bitmaps))
        placement = place(Records(columns), self._placement, self._rules.deleted)
        for found in placement.own_blocks():
            if found.key not in self._queues and can_name_queues(found.key.topic):
                self._queues[found.key] = _QueueUnits(self._kind_of(found.key))
            if found.key in self._queues:
                self._queues[found.key].add(found, bitmaps)
        for found in placement.light_blocks():
            self._queues.setdefault(found.key, _QueueUnits(PLAIN)).add(found, bitmaps)

    def _kind_of(self, key: QueueKey) -> int:
        if key.topic in self._rules.batch_topics:
            return BATCH
        return EXTENDED if self._rules.has_ext or key in self._rules.ext_queues else PLAIN

    def blocks(self) -> list[Block]:
        """Return the units of each queue that is made."""
        found: list[Block | None] = []
        for key, queue in sorted(self._queues.items(), key=lambda item: item[0]):
            start = self._rules.wanted.start_of(key)
            if start is not None:
                block = queue.block(key)
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
        self._units = _PartUnits(rules)
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
        return PartResult(facts=facts, blocks=self._units.blocks(), keys=self._entries())

    def _take(self, columns: RecordColumns) -> None:
        self._records += len(columns)
        times = columns["store_timestamp"]
        self._last = int(times[-1])
        self._newest = max(self._newest, int(times.max()))
        if self._rules.has_queues:
            self._units.add(columns)
        if self._rules.has_keys:
            hashes, rows = key_entries(columns, with_tags=self._rules.has_tags)
            if len(hashes):
                self._keys.append((hashes, columns["physical_offset"][rows], times[rows]))
            self._has_keyless_end = not len(rows) or int(rows[-1]) < len(columns) - 1

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
