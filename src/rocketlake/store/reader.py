"""Reader: messages of a queue, as objects or as columns [DefaultMessageStore#getMessage].

1. Units come from one file of the queue, records from files of the log; one kernel call reads what
   two files have in common.
2. A damaged record is never returned: reading steps over it, lists it and counts it.
3. A message has its number in the queue as its queue offset: in a light queue the record has
   another one.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct as Layout
from time import perf_counter_ns
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from rocketlake.errors import FileAccessError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format import layout
from rocketlake.format.record import (
    ROW_DTYPE,
    Check,
    ReadStop,
    RecordColumns,
    StoredMessage,
    read_columns,
    read_units,
)
from rocketlake.model import properties as names
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import ColumnsResult, GetRequest, GetResult, GetStatus
from rocketlake.store.options import StoreOptions
from rocketlake.store.read_rules import NO_LIMIT, Limits, ReadRules, is_usual
from rocketlake.store.stats import StoreStats
from rocketlake.store.unit_walk import LogPart, ReadLog, ReadQueue, Taken, Unit, UnitWalk, may_match

_CHECKS: Final = int(Check.BODY_CRC | Check.OFFSET)
_OFFSET: Final = Layout(">q")
_UNIT_SIZE: Final = layout.UNIT_SIZE
_FOUND: Final = GetStatus.FOUND
_frombuffer: Final = np.frombuffer
_SAMPLE: Final = 15  # one read in 16 is timed
_Result = TypeVar("_Result")
_StraightRead: TypeAlias = Callable[
    [GetRequest, memoryview, MappedFile, tuple[int, int, int]], tuple[_Result, int] | None
]
_NO_COLUMNS: Final = RecordColumns(b"", np.empty(0, ROW_DTYPE))


class ReadQueues(Protocol):
    """Finds queues."""

    def find(self, key: QueueKey) -> ReadQueue | None:
        """Return a queue; None if there is none."""
        ...


class Reader:
    """Reads queues.

    Thread-safety: any thread; each read keeps its own state, and holds the files it looks at.
    """

    def __init__(
        self,
        log: ReadLog,
        queues: ReadQueues,
        options: StoreOptions,
        stats: StoreStats,
        *,
        memory_size: int | None = None,
    ) -> None:
        """Make a reader; without `memory_size` the machine's memory counts."""
        self._log = log
        self._queues = queues
        self._stats = stats
        self._rules = ReadRules.of(options, memory_size)

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None) -> GetResult:
        """Return messages of a queue from an offset on, and where to go on.

        The first message is returned whatever its size. A request that is not limited may get as
        many messages as it asks for.
        """
        started = self._begin()
        queue = self._queues.find(QueueKey(request.topic, request.queue_id))
        if queue is None:
            status, next_offset = self._rules.refuse_queue(request.offset)
            result, count = GetResult(status=status, next_offset=next_offset), 0
        else:
            result, count = self._try_straight(queue, request, message_filter) or self._get(
                queue, request, message_filter
            )
        self._end(started, count)
        return result

    def columns(self, request: GetRequest) -> ColumnsResult:
        """Return messages of a queue from an offset on as columns, and where to go on.

        They are copies, of records in one file of the log: there may be fewer than asked for while
        the queue has more.
        """
        started = self._begin()
        queue = self._queues.find(QueueKey(request.topic, request.queue_id))
        if queue is None:
            status, next_offset = self._rules.refuse_queue(request.offset)
            result, count = _nothing(status, (next_offset, 0, 0)), 0
        else:
            result, count = self._straight(queue, request, _read_columns) or self._columns(
                queue, request
            )
        self._end(started, count)
        return result

    def _begin(self) -> int:
        """Return the time if this read is one of the few that are timed, else 0."""
        stats = self._stats
        is_timed = not (stats.get_found_count + stats.get_miss_count) & _SAMPLE
        return perf_counter_ns() if is_timed else 0

    def _end(self, started: int, count: int) -> None:
        self._stats.note_get(count)
        if started:
            self._stats.get.add(perf_counter_ns() - started, _SAMPLE + 1)

    # --- the usual read --------------------------------------------------------------------------

    def _try_straight(
        self, queue: ReadQueue, request: GetRequest, wanted: MessageFilter | None
    ) -> tuple[GetResult, int] | None:
        if wanted is None:
            return self._straight(queue, request, _read_messages)
        if wanted.reads_bits:
            return None
        stop = self._rules.stop_offset(request, layout.UNIT_SIZE)
        return self._straight(
            queue, request, partial(_read_messages, wanted=wanted, stop_offset=stop)
        )

    def _straight(
        self, queue: ReadQueue, request: GetRequest, read: _StraightRead[_Result]
    ) -> tuple[_Result, int] | None:
        """Read what one queue file and one log file have; None if it takes more than that.

        Why: most reads are like this, and their cost is that of the Python around one kernel call.
        So no file is held: the memory of one that goes away stays valid while the kernel looks at
        it, and cannot be looked at before or after. What is unusual is left to a walk.
        """
        offset, low, high = request.offset, queue.min_offset, queue.max_offset
        if not low <= offset < high or queue.is_batch or not is_usual(request):
            return None
        unit_at = offset * _UNIT_SIZE
        unit_file = queue.files.find(unit_at)
        if unit_file is None or not unit_file.is_available:
            return None
        try:
            units = unit_file.map()
            unit_at -= unit_file.base_offset
            (physical_offset,) = _OFFSET.unpack_from(units, unit_at)
            file = self._log.files.find(physical_offset)
            if file is None or not file.is_available:
                return None
            last = self._log.files.files[-1]
            if last.base_offset + last.size - physical_offset > self._rules.window:
                return None  # perhaps not in memory: other limits may hold
            return read(request, units, file, (unit_at // _UNIT_SIZE, low, high))
        except (FileAccessError, ValueError):
            return None  # a file went away right now

    # --- any read --------------------------------------------------------------------------------

    def _get(
        self, queue: ReadQueue, request: GetRequest, message_filter: MessageFilter | None
    ) -> tuple[GetResult, int]:
        low, high = queue.min_offset, queue.max_offset
        if not low <= request.offset < high:
            status, next_offset = self._rules.refuse(request.offset, low, high)
            result = GetResult(
                status=status, next_offset=next_offset, min_offset=low, max_offset=high
            )
            return result, 0
        walk = _MessageWalk(self._log, queue, self._rules, request, high=high)
        walk.message_filter = message_filter
        walk.run()
        self._stats.corrupt_count += len(walk.corrupt)
        result = GetResult(
            status=GetStatus.FOUND if walk.messages else walk.status,
            messages=walk.messages,
            next_offset=walk.next_offset,
            min_offset=low,
            max_offset=high,
            suggest_replica=walk.is_behind(),
            corrupt=walk.corrupt,
            gone=walk.gone,
        )
        return result, walk.count

    def _columns(self, queue: ReadQueue, request: GetRequest) -> tuple[ColumnsResult, int]:
        low, high = queue.min_offset, queue.max_offset
        if not low <= request.offset < high:
            status, next_offset = self._rules.refuse(request.offset, low, high)
            return _nothing(status, (next_offset, low, high)), 0
        walk = _ColumnsWalk(self._log, queue, self._rules, request, high=high)
        walk.run()
        self._stats.corrupt_count += len(walk.corrupt)
        result = ColumnsResult(
            status=GetStatus.FOUND if walk.has_found else walk.status,
            columns=walk.columns,
            next_offset=walk.next_offset,
            min_offset=low,
            max_offset=high,
            corrupt=walk.corrupt,
        )
        return result, walk.count


def _read_messages(
    request: GetRequest,
    units: memoryview,
    file: MappedFile,
    bounds: tuple[int, int, int],
    *,
    wanted: MessageFilter | None = None,
    stop_offset: int = NO_LIMIT,
) -> tuple[GetResult, int] | None:
    """Return the messages that plain units have in a log file; None if more must be looked at.

    `bounds` are the index of the first unit, and the lowest and highest offset of the queue. None
    too if a message that is not wanted looked like one that is.
    """
    messages: list[StoredMessage] = []
    index, low, high = bounds
    base, end = file.base_offset, file.readable_end
    _, stop, _, next_offset, count, _ = read_units(
        messages,
        units,
        index,
        layout.UNIT_SIZE,
        request.offset,
        min(stop_offset, high),
        file.map(),
        end,
        base,
        base + end,
        _CHECKS,
        None if wanted is None else wanted.hashes,
        (0, 0, request.max_messages, NO_LIMIT, request.max_bytes),
        file.store_timestamp == 0,
    )
    if stop > ReadStop.FULL or not messages:
        return None
    if stop == ReadStop.END and next_offset < min(stop_offset, high):
        return None  # the next file of the queue has more
    if wanted is not None and not all(map(wanted.matches, messages)):
        return None
    result = GetResult(
        status=GetStatus.FOUND,
        messages=messages,
        next_offset=next_offset,
        min_offset=low,
        max_offset=high,
    )
    return result, count


def _read_columns(
    request: GetRequest, units: memoryview, file: MappedFile, bounds: tuple[int, int, int]
) -> tuple[ColumnsResult, int] | None:
    """Return the columns that plain units have in a log file; None if there are none."""
    index, low, high = bounds
    base, end = file.base_offset, file.readable_end
    data, rows, looked, _, _, next_offset = read_columns(
        units,
        index,
        _UNIT_SIZE,
        request.offset,
        high,
        file.map(),
        end,
        base,
        base + end,
        _CHECKS,
        (request.max_messages, request.max_bytes),
        file.store_timestamp == 0,
    )
    if not looked:
        return None
    columns = RecordColumns(data, _frombuffer(rows, ROW_DTYPE))
    return ColumnsResult(_FOUND, columns, next_offset, low, high), looked


def _nothing(status: GetStatus, bounds: tuple[int, int, int]) -> ColumnsResult:
    next_offset, low, high = bounds
    return ColumnsResult(
        status=status,
        columns=_NO_COLUMNS,
        next_offset=next_offset,
        min_offset=low,
        max_offset=high,
    )


class _MessageWalk(UnitWalk):
    """Makes messages of records, and filters them."""

    __slots__ = ("message_filter", "messages")

    def __init__(
        self, log: ReadLog, queue: ReadQueue, rules: ReadRules, request: GetRequest, *, high: int
    ) -> None:
        super().__init__(log, queue, rules, request, high=high)
        self.messages: list[StoredMessage] = []
        self.message_filter: MessageFilter | None = None

    @property
    def has_found(self) -> bool:
        """Whether there are messages."""
        return bool(self.messages)

    def take(self, units: memoryview, index: int, part: LogPart, limits: Limits) -> Taken:
        """Append the messages that are wanted."""
        wanted = self.message_filter
        stop_offset = self.stop_offset
        if wanted is not None and wanted.reads_bits:
            # Each unit is shown to the filter first, so they are read one by one.
            unit = self.unit(units, index)
            if self.is_full(unit):
                return Taken(0, ReadStop.FULL, 0)
            if not self.may_want(unit):
                self.next_offset = unit.number + unit.message_count
                return Taken(1, ReadStop.OUTSIDE, 0)
            stop_offset = unit.number + 1
        found = self.messages if wanted is None else []
        looked, stop, damage, self.next_offset, count, size = read_units(
            *(found, units, index, self.unit_size, self.next_offset, stop_offset),
            *(part.view, len(part.view), part.begin, part.end, _CHECKS),
            wanted.hashes if wanted else None,
            (self.count, self.size, limits.count_max, limits.count_stop, limits.size_max),
            part.may_wait,
        )
        if wanted is None:
            self.count, self.size = count, size
            return Taken(looked, stop, damage)
        is_all_kept = self._keep(found, wanted)
        if looked and not self.messages:
            self.status = GetStatus.NO_MATCHED_MESSAGE
        is_full = stop == ReadStop.FULL and (is_all_kept or not looked)
        is_end = stop == ReadStop.END and stop_offset == self.stop_offset
        goes_on = stop != ReadStop.DAMAGED and not is_full and not is_end
        return Taken(looked, ReadStop.OUTSIDE if goes_on else stop, damage)

    def _keep(self, found: list[StoredMessage], wanted: MessageFilter) -> bool:
        """Append what a filter lets pass; tell whether that was all."""
        kept = [message for message in found if wanted.matches(message)]
        self.messages += kept
        self.count += sum(map(self._message_count, kept))
        self.size += sum(message.store_size for message in kept)
        return len(kept) == len(found)

    def _message_count(self, message: StoredMessage) -> int:
        """Return how many messages a record of this queue stands for."""
        if self.unit_size != layout.BATCH_UNIT_SIZE:
            return 1
        text = message.properties.get(names.INNER_NUM, "")
        return int(text) if text.isdecimal() else 1

    def may_want(self, unit: Unit) -> bool:
        """Ask the filter."""
        wanted = self.message_filter
        return wanted is None or may_match(self._queue, unit.tags_code, wanted)


class _ColumnsWalk(UnitWalk):
    """Copies the records of one log file."""

    __slots__ = ("columns",)
    goes_on: ClassVar[bool] = False

    def __init__(
        self, log: ReadLog, queue: ReadQueue, rules: ReadRules, request: GetRequest, *, high: int
    ) -> None:
        super().__init__(log, queue, rules, request, high=high)
        self.columns = _NO_COLUMNS

    @property
    def has_found(self) -> bool:
        """Whether there are rows."""
        return self.columns is not _NO_COLUMNS

    def take(self, units: memoryview, index: int, part: LogPart, limits: Limits) -> Taken:
        """Take the first records there are; what lies behind them is for another read."""
        data, rows, looked, stop, damage, self.next_offset = read_columns(
            *(units, index, self.unit_size, self.next_offset, self.stop_offset),
            *(part.view, len(part.view), part.begin, part.end, _CHECKS),
            (min(limits.count_max, limits.count_stop), limits.size_max),
            part.may_wait,
        )
        if rows:
            self.columns = RecordColumns(data, np.frombuffer(rows, ROW_DTYPE))
            self.count = looked
            stop = ReadStop.FULL
        return Taken(looked, stop, damage)

    def may_want(self, unit: Unit) -> bool:
        """Want all."""
        _ = unit
        return True
