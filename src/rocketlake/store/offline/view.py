"""OfflineStore: the read-only view of a store directory, live or not.

1. It opens lazily and reads only what is asked for; nothing is ever written.
2. It shows the store as recovery would leave it: `recovery.log_end` decides where the log ends,
   `recovery.undispatched` which units the queues are owed.
3. What is wrong is collected in `damage`; reading goes on where that is safe.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.clock import Clock, SystemClock
from rocketlake.closing import Closing
from rocketlake.errors import RocksDbError, RocksDbMissingError, StoreError, StoreNotFoundError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.layout import INDEX_HEADER_SIZE, RECORD_BORN_HOST_AT
from rocketlake.format.queue_unit import ExtUnit
from rocketlake.format.record import RecordColumns, StoredMessage
from rocketlake.model.queues import QueueKey
from rocketlake.store import deleted_topics
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.disk.damage import Damage, Finding, reason_text
from rocketlake.store.disk.ext_units import ext_unit_at
from rocketlake.store.disk.index import Coverage, IndexView, KeyQuery, KeySearch
from rocketlake.store.disk.log import MISSING, Chunk, LogView, Readers, Stop, is_record_at
from rocketlake.store.disk.owed_units import Places
from rocketlake.store.disk.queue_listing import DiskQueues
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.disk.traits import Traits, look_at
from rocketlake.store.dispatch.placement import PlacementRules
from rocketlake.store.offline.coverage import cover
from rocketlake.store.offline.family_times import FamilyTimes
from rocketlake.store.offline.lost_queues import drop_lost
from rocketlake.store.offline.times import Boundary, time_lookup
from rocketlake.store.options import ReadOptions
from rocketlake.store.recovery import log_end
from rocketlake.store.recovery.undispatched import UndispatchedUnits

_WALKED_MAX = 1 << 18  # records of a store in use, whose units are kept in memory until then
_WALKED_PER_QUEUE = 128


class Batch(Struct, frozen=True):
    """Messages of one queue: the units that point to them, and their records."""

    key: QueueKey
    places: Places
    columns: RecordColumns


class OfflineStore(Closing):
    """A store directory, opened for reading only.

    Thread-safety: one thread.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        log_dirs: tuple[Path, ...] = (),
        options: ReadOptions | None = None,
        on_damage: Callable[[Finding], None] | None = None,
        ops: FileOps | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open a store directory.

        Raises:
            StoreNotFoundError: it is not there, is no directory or may not be read.
            ConfigError: options contradict the files.
        """
        self.options = options or ReadOptions()
        self._clock = clock or SystemClock()
        self.damage = Damage(on_damage)
        self.directory = StoreDir(ops or PosixFileOps(), Path(path), log_dirs)
        if not self.directory.is_store():
            raise StoreNotFoundError(
                f"no store at {path}: it has no {names.COMMIT_LOG} directory (if the log lies "
                "elsewhere, name its directories)"
            )
        self.traits: Traits = look_at(self.directory)
        self._readers = Readers(self.directory.ops)
        self.checks = log_end.checks_for(self.options)
        self.log = LogView(self.directory, self._readers, self.damage)
        self.log.refresh(self.options.mapped_file_size_commit_log)
        self._cuts_records = False
        self._undispatched: UndispatchedUnits | None = None
        self._deleted = NO_TOPICS
        self._walked = 0
        self._database: Closing | None = None
        self.rocksdb_problem: str | None = None  # why queues in RocksDB are shown from the log
        self._families = self._look_at_families()
        self.changed: frozenset[QueueKey] | None = None  # by the last refresh; None: all anew
        self.has_topic: Callable[[str], bool] = lambda _: False  # of topics without a queue
        self.on_progress: Callable[[int], None] | None = None

    def close(self) -> None:
        """Close all files."""
        self._readers.close()
        if self._database is not None:
            self._database.close()
            self._database = None

    # --- the log and the queues ----------------------------------------------------------------

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint page; zeros if there is none."""
        return Checkpoint.decode(self.directory.read_small(names.CHECKPOINT) or b"")

    @cached_property
    def tail(self) -> log_end.Tail:
        """Where the log ends; good records behind that end are damage."""
        found, may_go_on = self._walked_end()
        found, behind = log_end.recheck_end(self.log, found, self.checks, passes_zeros=may_go_on)
        self._cuts_records = log_end.report_cut(found, behind, self.damage)
        return found

    def _walked_end(
        self, on_chunk: Callable[[Chunk], None] | None = None
    ) -> tuple[log_end.Tail, bool]:
        """Return where a walk ends, and whether good records may follow zeros there."""
        traits, walked = self.traits, (self._begin(), self.checks, self.on_progress)
        is_crashed = not traits.is_clean and traits.held_by is None
        found = log_end.find_end(self.log, *walked, on_chunk=on_chunk, after_crash=is_crashed)
        # Why: a disk may lose a page. After a clean stop queues tell whether the log goes on.
        has_more = self._dispatched > found.end_offset and traits.held_by is None
        return found, is_crashed or has_more

    @property
    def cuts_records(self) -> bool:
        """Whether a start would cut off good records behind the end of the log.

        Why not looked for now: a writer may have appended records since the look at the end.
        """
        _ = self.tail
        return self._cuts_records

    def refresh(self) -> bool:
        """Add what another process has written since; tell whether there was anything.

        Only new records are read. A store that was stopped or started since, or lost topics, is
        read anew. `changed` names the queues that have changed.
        """
        self.changed = None
        if self._is_other():
            self._start_over()
            return True
        low = self.log.min_offset
        self.log.refresh(self.options.mapped_file_size_commit_log)
        if "queues" not in self.__dict__:
            self.__dict__.pop("tail", None)  # nothing stands on it yet
            return False
        end = self.tail.end_offset
        if not self.log.min_offset <= end <= max(self.log.limit, self.log.min_offset):
            self._start_over()
            return True
        is_grown = self.log.has_more(end) and self._walk_on(end)
        if low == self.log.min_offset:
            undispatched = self._undispatched if is_grown else None
            self.changed = undispatched.take_touched() if undispatched else frozenset()
        for key in self.queues if self.changed is None else self.changed:
            self.queues[key].correct_min(self.log.min_offset, keep_empty_min=self.traits.is_4x)
        return is_grown

    def _is_other(self) -> bool:
        ops, directory = self.directory.ops, self.directory
        if (ops.stat(directory.path(names.ABORT)) is None) != self.traits.is_clean:
            return True
        before, self._families = self._families, self._look_at_families()
        # Why by queues: to look at all of them anew must cost little for each record.
        walked_max = max(_WALKED_MAX, _WALKED_PER_QUEUE * len(self.__dict__.get("queues", ())))
        if self._walked > walked_max or self._has_deleted_more():
            return True
        if "queues" not in self.__dict__ or self._families.is_surely(before):
            return False
        files = (queue.files[0] for queue in self.queues.values() if queue.files)
        return any(ops.stat(path) is None for path in {file.path.parent.parent for file in files})

    def _has_deleted_more(self) -> bool:
        """Tell whether a topic was deleted since; it may have been made again, and have queues."""
        return "_disk_queues" in self.__dict__ and self.load_deleted() != self._deleted

    def _look_at_families(self) -> FamilyTimes:
        return FamilyTimes.look_at(self.directory, self._clock.now_ms())

    def _start_over(self) -> None:
        self.close()
        self.traits = look_at(self.directory)
        self.log.refresh(self.options.mapped_file_size_commit_log)
        self._undispatched = None
        self._walked = 0
        self._families = self._look_at_families()
        for name in dir(type(self)):
            if isinstance(getattr(type(self), name, None), cached_property):
                self.__dict__.pop(name, None)

    def _walk_on(self, end: int) -> bool:
        """Add the records behind the end, up to the first one that is not good."""
        queues = self._disk_queues
        undispatched = self._undispatched or self._make_undispatched(queues)
        self._undispatched = undispatched
        new_end, stop = end, None
        for step in self.log.walk(end, checks=self.checks):
            if isinstance(step, Stop):
                stop = step
                break
            undispatched.add(step.columns, end)
            self._walked += len(step.columns)
            last = step.columns.rows[-1]
            new_end = int(last["physical_offset"] + last["size"])
        if new_end == end:
            return False
        self.__dict__["tail"] = log_end.Tail(new_end, self.tail.started_at, stop)
        if len(queues) != len(self.queues):
            self.__dict__["queues"] = dict(sorted(queues.items()))
        for name in ("index_files", "coverage"):
            self.__dict__.pop(name, None)
        return True

    def bytes_to_walk(self) -> int:
        """Return how many bytes of the log must be read to find its end, at most."""
        start = self._begin().file
        return self.log.limit - start.base_offset if start is not None else 0

    def _begin(self) -> log_end.Begin:
        is_clean = self.traits.is_clean
        reach = self._dispatched if is_clean else -1
        return log_end.find_begin(self.log, reach, self.checkpoint, self.options, is_clean=is_clean)

    @property
    def min_offset(self) -> int:
        """The first byte of the log."""
        return self.log.min_offset

    @property
    def max_offset(self) -> int:
        """The end of the log."""
        return self.tail.end_offset

    @cached_property
    def _disk_queues(self) -> dict[QueueKey, QueueView]:
        """The queues as their files are, before anything is cut or owed."""
        loader, is_clean = self._queue_loader(), self.traits.is_clean
        is_rocksdb = self.traits.has_rocksdb_queues
        found = self._rocksdb_queues(loader) if is_rocksdb else loader.load_files(is_clean=is_clean)
        # Order: the table is read behind the queues, for it is written before they are removed.
        self._deleted = deleted = self.load_deleted()
        if not deleted.ends:
            return found
        return {
            key: view
            for key, view in found.items()
            if not deleted.is_earlier(key.topic, view.first_physical_offset())
        }

    def _queue_loader(self) -> DiskQueues:
        return DiskQueues(self.directory, self._readers, self.options, self.damage)

    def _rocksdb_queues(self, loader: DiskQueues) -> dict[QueueKey, QueueView]:
        """Read the queues from their database; none if it cannot be read, with the reason."""
        self.rocksdb_problem = None
        try:
            self._database = database = loader.open_rocksdb()
            return loader.load_rocksdb(database, self.log.min_offset)
        except RocksDbError as error:
            self.rocksdb_problem = str(error)
            if not isinstance(error, RocksDbMissingError):
                self.damage.report(self.directory.root, 0, str(error))
        return {}

    @property
    def deleted(self) -> DeletedTopics:
        """The topics that were deleted, as of when the queues were looked at."""
        _ = self._disk_queues
        return self._deleted

    def load_deleted(self) -> DeletedTopics:
        """Read the table of deleted topics as it is now."""
        try:
            return deleted_topics.load(self.directory.ops, self.directory.root)
        except StoreError as error:
            path = self.directory.path(names.CONFIG) / deleted_topics.FILE_NAME
            self.damage.report(path, 0, str(error))
            return NO_TOPICS

    @cached_property
    def _dispatched(self) -> int:
        """How far into the log the queues reach; -1 if there are none."""
        ends = (queue.max_physical_offset for queue in self._disk_queues.values())
        # A unit that points behind the last file is garbage and says nothing.
        return max((end for end in ends if end <= self.log.limit), default=-1)

    @cached_property
    def queues(self) -> dict[QueueKey, QueueView]:
        """Every queue by topic and number, as recovery would leave it."""
        dispatched, tail = self._dispatched, self.tail
        queues = self._disk_queues
        is_whole = self.traits.is_clean and not self.traits.has_dledger_log
        damage = self.damage if is_whole and not self._cuts_records else None
        for queue in queues.values():
            self._cut(queue, tail.end_offset, damage)
        low, start = self.log.min_offset, tail.started_at
        begin = dispatched if self.traits.is_clean else low
        span = (low, tail.end_offset)
        if self.traits.is_clean and drop_lost(self.directory, queues, span, self.has_topic):
            start = begin = low
        # A clean stop leaves nothing to dispatch.
        if begin < tail.end_offset and self._owe(queues, start, begin):
            # A queue lacks units from before the walk: they can only come from an earlier one.
            for queue in queues.values():
                queue.owed.clear()
            self._owe(queues, low, begin)
        for queue in queues.values():
            queue.correct_min(low, keep_empty_min=self.traits.is_4x)
        return dict(sorted(queues.items()))

    def _cut(self, queue: QueueView, end: int, damage: Damage | None) -> None:
        if queue.max_physical_offset > end:
            queue.cut(end, damage)

    def _owe(self, queues: dict[QueueKey, QueueView], start: int, begin: int) -> bool:
        """Add what the log holds and the queues do not; tell whether a queue has a gap."""
        self._undispatched = undispatched = self._make_undispatched(queues)
        for step in self._steps(start, self.tail.end_offset):
            if isinstance(step, Chunk):
                undispatched.add(step.columns, begin)
        return bool(undispatched.gaps) and start > self.log.min_offset

    def _steps(self, begin: int, end: int) -> Iterator[Chunk | Stop]:
        return self.log.walk(begin, end, checks=self.checks)

    def _make_undispatched(self, queues: dict[QueueKey, QueueView]) -> UndispatchedUnits:
        rules = PlacementRules(delays_ms=self.options.delay_levels_ms)
        return UndispatchedUnits(queues, self._readers, rules, self.deleted)

    # --- reading -------------------------------------------------------------------------------

    def messages(
        self, key: QueueKey, from_offset: int = 0, to_offset: int = 1 << 62
    ) -> Iterator[Batch]:
        """Yield the messages of a queue in batches; what is damaged is reported and left out."""
        queue = self.queues.get(key)
        if queue is None:
            return
        for places in queue.iterate(from_offset, to_offset, self.damage):
            batch = self.read(key, places)
            if len(batch.columns):
                yield batch

    def read(self, key: QueueKey, places: Places) -> Batch:
        """Read the records that units point to."""
        columns, reasons = self.log.gather(
            places["physical_offset"].copy(), places["size"].copy(), checks=self.checks
        )
        good = reasons == 0
        if not good.all():
            self._report_units(key, places, reasons)
            columns = RecordColumns(columns.buffer, columns.rows[good])
            places = places[good]
        return Batch(key, places, columns)

    def _report_units(self, key: QueueKey, places: Places, reasons: npt.NDArray[np.uint8]) -> None:
        for index in np.flatnonzero(reasons).tolist():
            offset, reason = int(places["physical_offset"][index]), int(reasons[index])
            if self.log.is_expired(offset):
                continue  # and no damage
            path, position = self.log.describe(offset)
            text = "no file holds the record" if reason == MISSING else reason_text(reason)
            number = int(places["queue_offset"][index])
            self.damage.report(path, position, f"{text}; message {number} of {key} is left out")

    def walk(self, start: int | None = None, end: int | None = None) -> Iterator[Chunk]:
        """Yield the log's records in order, up to its end; damage is reported and stepped over."""
        begin = self.log.min_offset if start is None else start
        limit = self.max_offset if end is None else min(end, self.max_offset)
        for step in self._steps(begin, limit):
            if not isinstance(step, Stop):
                yield step
            elif not self.log.is_expired(step.physical_offset):
                self.damage.report(step.file.path, step.file_position, reason_text(step.reason))

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the message whose record begins at an offset; None if no good one does."""
        search = KeySearch(self.log, self.max_offset, self.damage, self.checks)
        return search.message_at(physical_offset)

    def read_file(self, path: Path, size: int) -> bytes:
        """Return the first bytes of a file of the store; fewer if it ends before."""
        return self._readers.read(path, 0, size)

    def ext_unit(self, key: QueueKey, address: int) -> ExtUnit | None:
        """Return the extension unit of a queue at an address; None if none is there."""
        return ext_unit_at(self.directory, self._readers, key, address)

    # --- looking up ----------------------------------------------------------------------------

    def offset_by_time(
        self, key: QueueKey, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset for a store time, by the rules of 5.x.

        Raises:
            KeyError: there is no such queue.
        """
        return time_lookup(self.log, self.queues[key]).bound(timestamp, boundary)

    def offsets_of_time(self, key: QueueKey, begin: int | None, end: int | None) -> tuple[int, int]:
        """Return a range of queue offsets that surely holds what was stored in a time range.

        In a batch queue, or where a record that was looked at is damaged, that is the whole queue.
        """
        queue = self.queues[key]
        lookup = time_lookup(self.log, queue)
        first = lookup.bound(begin, Boundary.LOWER) if begin is not None else queue.min_offset
        last = lookup.bound(end, Boundary.UPPER) + 1 if end is not None else queue.max_offset
        if queue.kind.is_batch or not lookup.is_sure:
            return queue.min_offset, queue.max_offset
        return first, last

    def nearest_offset_by_time(self, key: QueueKey, timestamp: int) -> int:
        """Return the queue offset for a store time, by the rules of 4.x.

        Raises:
            KeyError: there is no such queue.
        """
        return time_lookup(self.log, self.queues[key]).nearest(timestamp)

    def time_bounds(self, key: QueueKey) -> tuple[int | None, int | None]:
        """Return the store times of a queue's first and last message; None if it has none."""
        queue = self.queues[key]
        if queue.total == 0 or queue.max_offset <= queue.min_offset:
            return None, None
        lookup = time_lookup(self.log, queue)
        first = queue.index_of(queue.min_offset)
        return lookup.time_of(first), lookup.time_of(queue.first_index + queue.total - 1)

    def last_timestamp(self) -> int | None:
        """Return the store time of the log's last record; None if there is none."""
        bounds = (self.time_bounds(key)[1] for key in self.queues)
        return max((time for time in bounds if time is not None), default=None)

    @cached_property
    def index_files(self) -> list[IndexView]:
        """The index files, oldest first."""
        return [
            IndexView(entry, self._readers, self.options.max_hash_slot_num)
            for entry in self.directory.index_files()
            if entry.size >= INDEX_HEADER_SIZE
        ]

    @cached_property
    def coverage(self) -> Coverage:
        """Which parts of the log the index covers, and which must be scanned for a key."""
        _ = self.queues
        ends = {"dispatched": self._dispatched, "log_end": self.max_offset}
        found = cover(self.index_files, self.log, trusted=self._index_trusted, **ends)
        scans = [(self.record_before(begin), end) for begin, end in found.scans]
        return Coverage(found.files, scans, found.notes)

    def record_before(self, offset: int) -> int:
        """Return the start of a record at or before an offset of the log, as near as units tell.

        Without a unit it is the start of the file.
        """
        file = self.log.file_at(offset)
        if file is None or self._is_record(offset):
            return offset
        best = file.base_offset
        for queue in self.queues.values():
            place = queue.place_before(offset)
            if place > best and self._is_record(place):
                best = place
        return best

    def _is_record(self, offset: int) -> bool:
        return is_record_at(self.log.read(offset, RECORD_BORN_HOST_AT), offset)

    def _index_trusted(self, end_timestamp: int) -> bool:
        """Tell whether an index file that ends with this time is surely complete."""
        if self.traits.is_clean or self.traits.held_by is not None:
            return True
        return end_timestamp <= self.checkpoint.index_timestamp

    def find(self, query: KeyQuery) -> list[StoredMessage]:
        """Return messages by key, in the order of the log."""
        search = KeySearch(self.log, self.max_offset, self.damage, self.checks)
        coverage = self.coverage
        if query.topic is None:
            coverage = Coverage([], [(self.log.min_offset, self.max_offset)], coverage.notes)
        return search.find(query, coverage, self.on_progress)
