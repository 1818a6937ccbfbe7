"""Reader: messages of a queue, as objects or as columns [DefaultMessageStore#getMessage].

1. Units come from one file of the queue, records from files of the log; one kernel call reads what
   two files have in common.
2. A damaged record is never returned: reading steps over it, lists it and counts it.
3. A message has its number in the queue as its queue offset: in a light queue the record has
   another one.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import ClassVar, Final, TypeAlias, TypeVar

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
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import ColumnsResult, GetRequest, GetResult, GetStatus
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.queue_set import AnyQueue, ConsumeQueueSet
from rocketlake.store.read.message_walk import MessageWalk
from rocketlake.store.read.rules import NO_LIMIT, Limits, ReadRules, is_usual
from rocketlake.store.read.unit_walk import (
    LogPart,
    Taken,
    Unit,
    UnitWalk,
    find_one_file,
)
from rocketlake.store.role import Role
from rocketlake.store.stats.store_stats import StoreStats

_CHECKS: Final = int(Check.BODY_CRC | Check.OFFSET)
_UNIT_SIZE: Final = layout.UNIT_SIZE
_FOUND: Final = GetStatus.FOUND
_frombuffer: Final = np.frombuffer
_SAMPLE: Final = 15  # one read in 16 is timed
_Result = TypeVar("_Result")
_StraightRead: TypeAlias = Callable[
    [GetRequest, memoryview, MappedFile, tuple[int, int, int]], tuple[_Result, int] | None
]
_NO_COLUMNS: Final = RecordColumns(b"", np.empty(0, ROW_DTYPE))


class QueueReader:
    """What readers of queues share: where they read, and the rules that they follow."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueSet,
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

    def follow_role(self, role: Role) -> None:
        """Correct the offsets of readers as the store's role says, from the next read on."""
        self._rules = self._rules.for_role(is_replica=role.is_replica)


class Reader(QueueReader):
    """Reads queues.

    Thread-safety: any thread; each read keeps its own state, and holds the files it looks at.
    """

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None) -> GetResult:
        """Return messages of a queue from an offset on, and where to go on.

        The first message is returned at any size. A request that is not limited may get as
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
        self, queue: AnyQueue, request: GetRequest, wanted: MessageFilter | None
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
        self, queue: AnyQueue, request: GetRequest, read: _StraightRead[_Result]
    ) -> tuple[_Result, int] | None:
        """Read what one queue file and one log file have; None if it takes more than that.

        Why: most reads are like this, and their cost is that of the Python around one kernel call.
        So no file is held: the memory of one that goes away stays valid while the kernel looks at
        it, and cannot be looked at before or after. What is unusual is left to a walk.
        """
        offset, low, high = request.offset, queue.min_offset, queue.max_offset
        if not low <= offset < high or queue.is_batch or not is_usual(request):
            return None
        try:
            found = find_one_file(self._log, queue, offset, self._rules.window)
            if found is None:
                return None
            return read(request, found.units, found.file, (found.first, low, high))
        except (FileAccessError, ValueError):
            return None  # a file went away right now

    # --- any read --------------------------------------------------------------------------------

    def _get(
        self, queue: AnyQueue, request: GetRequest, message_filter: MessageFilter | None
    ) -> tuple[GetResult, int]:
        low, high = queue.min_offset, queue.max_offset
        if not low <= request.offset < high:
            status, next_offset = self._rules.refuse(request.offset, low, high)
            result = GetResult(
                status=status, next_offset=next_offset, min_offset=low, max_offset=high
            )
            return result, 0
        walk = MessageWalk(self._log, queue, self._rules, request, high=high)
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

    def _columns(self, queue: AnyQueue, request: GetRequest) -> tuple[ColumnsResult, int]:
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


class _ColumnsWalk(UnitWalk):
    """Copies the records of one log file."""

    __slots__ = ("columns",)
    goes_on: ClassVar[bool] = False

    def __init__(
        self, log: CommitLog, queue: AnyQueue, rules: ReadRules, request: GetRequest, *, high: int
    ) -> None:
        super().__init__(log, queue, rules, request, high=high)
        self.columns = _NO_COLUMNS

    @property
    def has_found(self) -> bool:
        """Whether there are rows."""
        return self.columns is not _NO_COLUMNS

    def take(self, units: memoryview, index: int, part: LogPart, limits: Limits) -> Taken:
        """Take the first records; the ones after them are for another read."""
        data, rows, looked, stop, damage, self.next_offset = read_columns(
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
