"""RawReader: records of a queue as the bytes that the log's files hold.

A server sends these bytes to its clients as they are. Nothing is copied and no message is made.

1. A view keeps the memory of its file, also when the file is deleted while the bytes are sent. It
   does not keep the bytes: where the log is cut they become zeros.
2. Tags are decided by the hash in the unit, as in a broker: other tags may have the same hash, and
   the client compares the text. SQL92 is decided by the properties of the record.
3. Records that follow each other in a file are one view.
4. A record whose head does not fit its unit is never returned. Bodies are compared with their
   checksums where the disk may have changed them: not in files that this process has written and
   that are taken to be in memory.
"""

from collections.abc import Sequence
from time import perf_counter_ns
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from rocketlake.errors import FileAccessError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format import layout
from rocketlake.format.record import Check, ReadStop, read_ranges
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import CorruptUnit, GetRequest, GetStatus, Gone
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.queue_set import AnyQueue, ConsumeQueueSet
from rocketlake.store.read.message_walk import MessageWalk
from rocketlake.store.read.reader import QueueReader
from rocketlake.store.read.rules import Limits, ReadRules
from rocketlake.store.read.unit_walk import LogPart, Taken, find_one_file
from rocketlake.store.stats.store_stats import StoreStats

_HEADS: Final = int(Check.HEAD_ONLY)
_CHECKS: Final = int(Check.BODY_CRC | Check.OFFSET)
_UNIT_SIZE: Final = layout.UNIT_SIZE
_FOUND: Final = GetStatus.FOUND
_SAMPLE: Final = 15  # one read in 16 is timed
_PLACES_MAX: Final = 20_000


class RawRecords(Struct, gc=False):
    """How a raw read ended: views of records, where to go on, where the queue begins and ends.

    Close it when the bytes are sent: a view keeps the memory of its file.

    Thread-safety: one thread at a time.
    """

    status: GetStatus
    views: Sequence[memoryview] = ()
    """Bytes of whole records, in the order of the queue; read-only."""
    count: int = 0
    """Messages; a record of a batch queue stands for several."""
    size: int = 0
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    suggest_replica: bool = False
    corrupt: Sequence[CorruptUnit] = ()
    gone: Sequence[Gone] = ()

    @property
    def is_found(self) -> bool:
        """Tell whether there are records."""
        return self.status is _FOUND

    def close(self) -> None:
        """Let the views go; what was made of them stays valid. A second call does nothing."""
        self.views = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Place:
    """The two files that the last read of a queue has used; the next one most often needs them."""

    __slots__ = ("file", "near_until", "unit_begin", "unit_file", "unit_size")

    def __init__(self, unit_file: MappedFile, file: MappedFile, window: int) -> None:
        """The log's file is in memory while the last begins no later than `near_until`."""
        self.near_until = file.base_offset + window - file.size
        self.unit_file = unit_file
        self.unit_begin = unit_file.base_offset
        self.unit_size = unit_file.size
        self.file = file


class RawReader(QueueReader):
    """Reads queues as bytes. Thread-safety: any thread; each read keeps its own state."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueSet,
        options: StoreOptions,
        stats: StoreStats,
        *,
        memory_size: int | None = None,
    ) -> None:
        super().__init__(log, queues, options, stats, memory_size=memory_size)
        self._places: dict[AnyQueue, _Place] = {}

    def read(self, request: GetRequest, message_filter: MessageFilter | None = None) -> RawRecords:
        """Return records of a queue from an offset on, and where to go on."""
        stats = self._stats
        started = 0 if stats.get_found_count & _SAMPLE else perf_counter_ns()
        queue = self._queues.find(QueueKey(request.topic, request.queue_id))
        if queue is None:
            status, next_offset = self._rules.refuse_queue(request.offset)
            result = RawRecords(status, next_offset=next_offset)
        else:
            result = (
                self._read_straight(queue, request, message_filter)
                or self._read_elsewhere(queue, request, message_filter)
                or self._walk(queue, request, message_filter)
            )
        stats.note_get(result.count)
        if started:
            stats.get.add(perf_counter_ns() - started, _SAMPLE + 1)
        return result

    # --- the usual read --------------------------------------------------------------------------

    def _read_straight(
        self, queue: AnyQueue, request: GetRequest, message_filter: MessageFilter | None
    ) -> RawRecords | None:
        """Read on in the files of the last read; None if it takes more than one of each.

        Why: as in `Reader`, most reads are like this, and what is unusual is left to a walk.
        """
        place = self._places.get(queue)
        if place is None or not place.file.is_available:
            return None
        if message_filter is not None and not message_filter.is_told_by_hash:
            return None
        low, offset, high = queue.min_offset, request.offset, queue.max_offset
        unit_at, file = offset * _UNIT_SIZE - place.unit_begin, place.file
        # Why by files: what is near the end of the log is taken to be in memory.
        is_near = self._log.files.files[-1].base_offset <= place.near_until
        if not (low <= offset < high and 0 <= unit_at < place.unit_size and is_near):
            return None
        limits = self._rules.limits(request, is_in_memory=True)
        hashes, stop_offset = None, high
        if message_filter is not None:
            hashes = message_filter.hashes
            stop_offset = min(self._rules.stop_offset(request, _UNIT_SIZE), high)
        try:
            base, end, log, is_ours = *file.readable_view(), file.store_timestamp != 0
            ranges, _, stop, _, next_offset, count, size = read_ranges(
                place.unit_file.map(),
                unit_at // _UNIT_SIZE,
                _UNIT_SIZE,
                offset,
                stop_offset,
                log,
                end,
                base,
                base + end,
                _HEADS if is_ours else _CHECKS,
                hashes,
                (0, 0, limits.count_max, limits.count_stop, limits.size_max),
                not is_ours,
            )
        except (FileAccessError, ValueError):
            return None  # a file went away right now
        has_more = stop == ReadStop.END and next_offset < stop_offset and not request.is_limited
        if not ranges or stop > ReadStop.FULL or has_more:
            return None
        if len(ranges) == 1:  # most often; a comprehension costs as much as the slice
            begin, end = ranges[0]
            views = [log[begin:end]]
        else:
            views = [log[begin:end] for begin, end in ranges]
        return RawRecords(_FOUND, views, count, size, next_offset, low, high)

    def _read_elsewhere(
        self, queue: AnyQueue, request: GetRequest, message_filter: MessageFilter | None
    ) -> RawRecords | None:
        """Read as `_read_straight` does, in other files than the last read of the queue."""
        if queue.is_batch or not queue.min_offset <= request.offset < queue.max_offset:
            return None
        try:
            found = find_one_file(self._log, queue, request.offset, self._rules.window)
            unit_file = queue.files.find(request.offset * _UNIT_SIZE)
        except (FileAccessError, ValueError):
            return None  # a file went away right now
        if found is None or unit_file is None:
            return None
        if len(self._places) >= _PLACES_MAX:
            self._places.clear()  # most of them may be of queues that are gone
        self._places[queue] = _Place(unit_file, found.file, self._rules.window)
        return self._read_straight(queue, request, message_filter)

    # --- any read --------------------------------------------------------------------------------

    def _walk(
        self, queue: AnyQueue, request: GetRequest, message_filter: MessageFilter | None
    ) -> RawRecords:
        low, high = queue.min_offset, queue.max_offset
        if not low <= request.offset < high:
            status, next_offset = self._rules.refuse(request.offset, low, high)
            return RawRecords(status, next_offset=next_offset, min_offset=low, max_offset=high)
        walk = _RawWalk(self._log, queue, self._rules, request, high=high)
        walk.message_filter = message_filter
        walk.run()
        self._stats.corrupt_count += len(walk.corrupt)
        return RawRecords(
            status=_FOUND if walk.views else walk.status,
            views=walk.views,
            count=walk.count,
            size=walk.size,
            next_offset=walk.next_offset,
            min_offset=low,
            max_offset=high,
            suggest_replica=walk.is_behind(),
            corrupt=walk.corrupt,
            gone=walk.gone,
        )


class _RawWalk(MessageWalk):
    """Collects views of records, of as many files as it takes."""

    __slots__ = ("views",)

    def __init__(
        self, log: CommitLog, queue: AnyQueue, rules: ReadRules, request: GetRequest, *, high: int
    ) -> None:
        super().__init__(log, queue, rules, request, high=high)
        self.views: list[memoryview] = []

    @property
    def has_found(self) -> bool:
        """Whether there are records."""
        return bool(self.views)

    def take(self, units: memoryview, index: int, part: LogPart, limits: Limits) -> Taken:
        """Add the records that are wanted."""
        wanted = self.message_filter
        if wanted is not None and not wanted.is_told_by_hash:
            before = len(self.messages)
            taken = super().take(units, index, part, limits)
            for message in self.messages[before:]:
                begin = message.physical_offset - part.begin
                self.views.append(part.view[begin : begin + message.store_size])
            return taken
        ranges, looked, stop, damage, self.next_offset, self.count, self.size = read_ranges(
            units,
            index,
            self.unit_size,
            self.next_offset,
            self.stop_offset,
            part.view,
            len(part.view),
            part.begin,
            part.end,
            _CHECKS,
            None if wanted is None else wanted.hashes,
            (self.count, self.size, limits.count_max, limits.count_stop, limits.size_max),
            part.may_wait,
        )
        self.views += [part.view[begin:end] for begin, end in ranges]
        return Taken(looked, stop, damage)
