"""Queues and index made anew from the commit log alone, by many cores, and swapped in at the end.

1. `plan_rebuild` looks and changes nothing; `run_rebuild` takes the store's lock.
2. Everything is built in `<store>/repair/<time>/new` and put in place by renaming, as `rocketlake
   repair` does: a crash leaves the old state, or what the next run brings to its end. What was
   replaced stays in `<store>/repair/<time>/old`.
3. A topic that is not in the table of topics and has no queue was deleted: it stays so. A queue
   that nothing in the log belongs to stays as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from rocketlake.clock import Clock, SystemClock
from rocketlake.embedded.dispatch_files import ConsumeQueueSet, IndexFileSet, IndexShape, QueueShape
from rocketlake.errors import ConfigError, StoreError, StoreLockedError
from rocketlake.files.local_path import absolute_path
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.files.store_lock import StoreLock
from rocketlake.format import names
from rocketlake.format.record import StopReason
from rocketlake.metadata import topics as topic_table
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq
from rocketlake.spark.jobs.dispatch.parts import LogShape, Part, cut
from rocketlake.spark.jobs.dispatch.run import Runner, as_runner
from rocketlake.spark.jobs.dispatch.unit_blocks import Rules, Wanted
from rocketlake.spark.jobs.dispatch.writer import DispatchCounts, PartWriter, adjoining_parts
from rocketlake.spark.jobs.store_paths import is_named_from_the_root, named_from_the_root
from rocketlake.spark.jobs.tasks import session
from rocketlake.store.offline import OfflineStore, Readers, find_shape, refuse_rocksdb_queues
from rocketlake.store.options import ReadOptions
from rocketlake.upkeep.repair.gap_filler import GapFiller
from rocketlake.upkeep.repair.rebuild import filter_bits, index_shape, queue_shape
from rocketlake.upkeep.repair.swap import Workshop, finish_interrupted
from rocketlake.upkeep.verify.store_layout import Layout, QueuePlace, look

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketlake.upkeep.verify.log_file_walk import BadPart

WHAT: Final = ("all", "queues", "index")
STAGED: Final = "staged"
_FAMILIES: Final = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE, names.CONSUME_QUEUE_EXT)

OnProgress = Callable[[int, int], None]
"""Receives how many bytes of the log are done, and of how many."""


class RebuildPlan(Struct, frozen=True, kw_only=True):
    """What a rebuild will do; it can be shown, and changes nothing."""

    root: Path
    what: str
    shape: LogShape
    rules: Rules
    parts: list[Part]
    old: list[QueuePlace]
    """The queues as they are."""
    queue_shape: QueueShape
    index_shape: IndexShape | None
    old_index_files: int
    names_process: bool
    held_by: int | None

    @property
    def bytes(self) -> int:
        """How many bytes of log will be read."""
        return sum(part.end - part.begin for part in self.parts)

    def lines(self) -> Iterator[str]:
        """Return the plan as lines of text."""
        yield (
            f"read {self.bytes} bytes of log in {len(self.shape.log_files)} files, as "
            f"{len(self.parts)} parts"
        )
        if self.rules.has_queues:
            topics = {place.key.topic for place in self.old}
            yield (
                f"build the queues anew, in place of {len(self.old)} queues of {len(topics)} topics"
            )
        if self.index_shape is not None:
            yield f"build the index anew, in place of {self.old_index_files} files"
        yield f"keep what is replaced below {self.root / 'repair'}"
        if self.held_by is not None:
            yield f"not now: process {self.held_by} has the store open"


class RebuildReport(Struct, frozen=True, kw_only=True):
    """What a rebuild did."""

    path: str
    kept: str
    """Where the replaced files are."""
    records: int
    bytes: int
    queues: int
    units: int
    keys: int
    """Entries of the index: keys, and tags where it has them."""
    index_files: int
    bad_parts: int
    """Parts of the log where no record could be read."""
    parts: int
    seconds: float


def plan_rebuild(
    store: OfflineStore,
    *,
    what: str = "all",
    part_bytes: int | None = None,
    shape_of_index: IndexShape | None = None,
) -> RebuildPlan:
    """Look at a store, and plan; `shape_of_index` is for one whose index files are gone.

    Raises:
        ConfigError: `what` is none of all, queues, index.
        StoreError: the shape of the index files is not known, or queues are in RocksDB.
    """
    if what not in WHAT:
        raise ConfigError(f"what = {what!r}: wanted one of {', '.join(WHAT)}")
    refuse_rocksdb_queues(store.directory)
    if not is_named_from_the_root(store):
        with named_from_the_root(store) as view:
            return plan_rebuild(
                view, what=what, part_bytes=part_bytes, shape_of_index=shape_of_index
            )
    found = look(store)
    has_queues, has_keys = what != "index", what != "queues"
    shape = LogShape(
        root=found.root,
        log_files=found.log_files,
        log_file_size=found.log_file_size,
        checks=found.checks,
        end=_written_end(store),
        passes_bad=True,
    )
    return RebuildPlan(
        root=found.root,
        what=what,
        shape=shape,
        rules=_rules(store, found, has_queues=has_queues, has_keys=has_keys),
        parts=cut(shape, found.log_min, part_bytes=part_bytes),
        old=found.queues,
        queue_shape=queue_shape(found),
        index_shape=(shape_of_index or _index_shape(store, found)) if has_keys else None,
        old_index_files=len(found.index_sizes),
        names_process=not store.traits.is_4x,
        held_by=found.held_by,
    )


def run_rebuild(
    runner: "Runner | SparkSession",
    plan: RebuildPlan,
    *,
    on_progress: OnProgress | None = None,
    ops: FileOps | None = None,
    clock: Clock | None = None,
) -> RebuildReport:
    """Do what was planned.

    Raises:
        StoreLockedError: the store is open.
        StoreError: something cannot be read or written; what was there stays.
    """
    ops, clock = ops or PosixFileOps(), clock or SystemClock()
    if plan.held_by is not None:
        raise StoreLockedError(str(plan.root / names.LOCK), plan.held_by)
    refuse_rocksdb_queues(StoreDir(ops, plan.root))
    lock = StoreLock(ops, plan.root)
    lock.acquire()
    try:
        finish_interrupted(ops, plan.root)
        return _Rebuild(plan, Workshop.make(ops, plan.root, clock), ops, clock).run(
            runner, on_progress
        )
    finally:
        lock.release()


class _Rebuild:
    def __init__(self, plan: RebuildPlan, shop: Workshop, ops: FileOps, clock: Clock) -> None:
        self._plan = plan
        self._shop = shop
        self._ops = ops
        self._clock = clock
        self._bad: list[BadPart] = []
        self._readers = Readers(ops)
        self._queues: ConsumeQueueSet | None = None
        self._index: IndexFileSet | None = None

    def run(self, runner: "Runner | SparkSession", on_progress: OnProgress | None) -> RebuildReport:
        started_s = perf_counter()
        plan, shop = self._plan, self._shop
        self._ops.mkdirs(shop.new)
        # Below `new`, so that it goes with it whatever happens.
        runner = as_runner(runner, shop.new / STAGED)
        writer = self._open()
        done = DispatchCounts()
        try:
            with closing(runner.run(plan.shape, plan.parts, plan.rules)) as found:
                for result in adjoining_parts(found, plan.shape, plan.rules, plan.shape.log_min):
                    self._bad += result.facts.bad
                    writer.write(result)
                    done.add(result)
                    if on_progress is not None:
                        on_progress(result.facts.part.end - plan.shape.log_min, plan.bytes)
            queues, index_files = self._finish(writer)
        except BaseException:
            self._abandon(writer)
            raise
        reasons = [f"rebuild of {plan.what} from the log"]
        shop.swap(self._places(), reasons, names_process=plan.names_process)
        return RebuildReport(
            path=str(plan.root),
            kept=str(shop.path),
            records=done.records,
            bytes=plan.bytes,
            queues=queues,
            units=done.units,
            keys=done.keys,
            index_files=index_files,
            bad_parts=sum(1 for part in self._bad if part.reason is not StopReason.OK),
            parts=len(plan.parts),
            seconds=round(perf_counter() - started_s, 3),
        )

    def _open(self) -> PartWriter:
        plan = self._plan
        filler = None
        if plan.rules.has_queues:
            directory = StoreDir.make(self._ops, self._shop.new)
            self._queues = ConsumeQueueSet(directory, self._clock, plan.queue_shape)
            old = {place.key: place for place in plan.old}
            filler = GapFiller(self._queues, old, self._readers, self._bad)
        if plan.index_shape is not None:
            place = self._shop.new / names.INDEX
            self._ops.mkdirs(place)
            self._index = IndexFileSet(self._ops, self._clock, place, plan.index_shape)
        return PartWriter(self._queues, self._index, filler=filler)

    def _finish(self, writer: PartWriter) -> tuple[int, int]:
        writer.close()
        self._readers.close()
        queues = index_files = 0
        if self._queues is not None:
            queues = len(self._queues)
            self._queues.flush(0)
            self._queues.close()
        if self._index is not None:
            index_files = len(self._index.files)
            self._index.close()
        return queues, index_files

    def _abandon(self, writer: PartWriter) -> None:
        """Close what was built; it is not used."""
        writer.close()
        self._readers.close()
        if self._queues is not None:
            self._queues.close()
        self._shop.resume()
        self._ops.rmdir(self._shop.path)

    def _places(self) -> list[str]:
        """Return what is replaced: a family as a whole where everything in it was built anew."""
        places: list[str] = []
        if self._queues is not None:
            built = {key for key, _ in self._queues.items()}
            old = {place.key for place in self._plan.old}
            for family in _FAMILIES:
                is_old = self._ops.stat(self._plan.root / family) is not None
                is_new = self._ops.stat(self._shop.new / family) is not None
                if old <= built and (is_old or is_new):
                    places.append(family)
                elif is_new or is_old:
                    places += self._queue_places(family, built)
        if self._index is not None:
            places.append(names.INDEX)
        return places

    def _queue_places(self, family: str, built: set[QueueKey]) -> Iterator[str]:
        for key in sorted(built):
            place = f"{family}/{key.topic}/{key.queue_id}"
            both = (self._plan.root, self._shop.new)
            if any(self._ops.stat(base / place) is not None for base in both):
                yield place


def _written_end(store: OfflineStore) -> int:
    """Return the offset behind the last byte of the log's files that is no hole."""
    if not store.log.files:
        return 0
    last = store.log.files[-1]
    ranges = store.log.written_ranges(last.base_offset, store.log.limit)
    return ranges[-1][1] if ranges else last.base_offset


def _index_shape(store: OfflineStore, found: Layout) -> IndexShape:
    try:
        return index_shape(found)
    except StoreError:
        # Files without keys prove nothing; the next start will take them as this does.
        shape = find_shape(store.directory)
        slots, entries = shape.get("max_hash_slot_num"), shape.get("max_index_num")
        if not isinstance(slots, int) or not isinstance(entries, int):
            raise
        return IndexShape(
            slots=slots, entries=entries, counts_empty=found.is_5x, has_tags=found.is_5_5
        )


def _rules(store: OfflineStore, found: Layout, *, has_queues: bool, has_keys: bool) -> Rules:
    topics = found.configured_topics
    if topics is not None:
        topics |= {queue.key.topic for queue in found.queues}
    has_ext = any(queue.ext_files for queue in found.queues)
    return Rules(
        delays_ms=found.delays_ms,
        # Only a broker that has light queues gives records their places in them.
        has_light_queues=not found.queues or any(is_lmq(queue.key.topic) for queue in found.queues),
        batch_topics=_batch_topics(found),
        has_ext=has_ext,
        make_bits=partial(filter_bits, found.root / names.CONFIG) if has_ext else None,
        wanted=Wanted(topics=topics, starts=_sure_starts(store, found)),
        deleted=found.deleted,
        has_queues=has_queues,
        has_keys=has_keys,
        has_tags=found.is_5_5,
    )


def _batch_topics(found: Layout) -> frozenset[str]:
    there = {queue.key.topic for queue in found.queues if queue.is_batch}
    plain = {queue.key.topic for queue in found.queues if not queue.is_batch}
    try:
        table = topic_table.load(found.root / names.CONFIG).topics
    except StoreError:
        return frozenset(there)  # verify reports a broken table
    named = {name for name, config in table.items() if config.is_batch}
    return frozenset(there | (named - plain))


def _sure_starts(store: OfflineStore, found: Layout) -> dict[QueueKey, int]:
    """Return where queues begin whose unit number 0 points to a record that agrees.

    Why: a topic that was deleted and made again counts from 0 anew. Records of its earlier life
    would take the places of later ones; they are before the offset in the first unit.
    """
    firsts = [
        queue
        for queue in found.queues
        if queue.first_real == 0 and queue.first_physical >= found.log_min and not queue.is_batch
    ]
    if not firsts:
        return {}
    sizes = []
    readers = Readers(store.directory.ops)
    try:
        sizes = [int(queue.read(readers, 0, 1)["size"][0]) for queue in firsts]
    finally:
        readers.close()
    offsets = np.array([queue.first_physical for queue in firsts], np.int64)
    columns, reasons = store.log.gather(offsets, np.array(sizes, np.int64), checks=found.checks)
    starts = {}
    for row in np.flatnonzero(reasons == StopReason.OK).tolist():
        key, message = firsts[row].key, columns.message(row)
        claims = (message.topic, message.queue_id, message.queue_offset)
        if claims == (key.topic, key.queue_id, 0):
            starts[key] = message.physical_offset
    return starts


def rebuild(
    spark: "SparkSession | None",
    store: str | Path,
    *,
    what: str = "all",
    options: ReadOptions | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> RebuildReport | RebuildPlan:
    """Make queues and index of a store anew from its log, and swap them in; `dry_run` only plans.

    `what` is `all`, `queues` or `index`.

    Raises:
        StoreNotFoundError: there is no store, or an executor cannot see it.
        StoreLockedError: the store is open.
        StoreError: something cannot be read or written; what was there stays.
    """
    with OfflineStore(absolute_path(store), options=options) as view:
        plan = plan_rebuild(view, what=what)
    if dry_run:
        return plan
    return run_rebuild(spark or session(), plan, on_progress=on_progress)
