"""Dispatcher: commit log -> queues, index, listeners [ReputMessageService].

1. Records are taken in the order of the log, many at a time, up to the confirmed end.
2. A repeated dispatch is harmless: queues and index pass over what they have.
3. One thread dispatches. A read that must see what was just put waits for it, up to the end of the
   log at the time of the read. So an exception in the reading thread (Ctrl-C) cannot leave a queue
   half written.
4. Whatever moves the readable end of the log wakes the thread if it is idle, and only then.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any, Final, TypeVar

import numpy as np
from msgspec import Struct

from rocketlake.errors import RocketLakeError, StoreClosedError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.handed_call import HandedCall
from rocketlake.files.slice import Slice
from rocketlake.format.record import Check, RecordColumns, Scan, StopReason, scan
from rocketlake.store.dispatch.arrivals import Arrivals, notify_all
from rocketlake.store.dispatch.early_parse import ParsedEarly, parse_early
from rocketlake.store.dispatch.placement import Placement, Records
from rocketlake.store.dispatch.unit_builder import UnitBuilder
from rocketlake.store.index.catch_up import IndexCatchUp
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.log.bad_records import size_to_pass
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.ports import ArrivalListener, CustomDispatcher, DispatchSlice
from rocketlake.store.role import Role
from rocketlake.store.running_flags import RunningFlag, RunningFlags
from rocketlake.store.stats.store_stats import StoreStats

log = logging.getLogger(__name__)

Value = TypeVar("Value")

ROWS_MAX: Final = 32_768
# Why: a round costs the same for one record as for hundreds. While many messages come, the thread
# rests many times as long as it works, so that puts keep the interpreter; but never for long. While
# few come, it waits for the next one, which wakes it at once. What counts is the rate: by the
# records of one round, a thread that once rested for long would find many and go on resting. With
# SYNC_FLUSH the rest begins at fewer: a round for each put slows puts down by half, since their
# flush waits for the journal of the pages that the round has written. Where no listener waits, it
# begins at very few: one record a round is never a high rate, and the puts would stay slow.
_PAUSE_MIN_S: Final = 0.001
_PAUSE_MAX_S: Final = 0.010
_REST: Final = 20
_MANY_PER_S: Final = 10_000
_MANY_SYNCED_PER_S: Final = 2_000
_MANY_UNAWAITED_PER_S: Final = 100
# Why: an exception may end a put, or a flush, behind its effect and before it wakes this thread.
_IDLE_LOOK_S: Final = 0.25
_RETRY_S: Final = 1.0
_STUCK_LOOK_S: Final = 1.0
_STUCK_LOOKS_MAX: Final = 35  # longer than the service has to end
_TRIES_MAX: Final = 30
_INDEX_TRIES_MAX: Final = 3
_WINDOW: Final = 16 << 20


def _count_puts(stats: StoreStats, placement: Placement) -> None:
    """Count records that came from a primary as puts of their topics."""
    # Compat: as ReputMessageService#doReput on a slave.
    rows, records = placement.rows, placement.records
    codes, sizes = records.codes[rows], records.columns["size"][rows]
    counts = np.bincount(codes, minlength=len(records.topics))
    bytes_ = np.bincount(codes, sizes, len(records.topics))
    for topic, count, size in zip(records.topics, counts.tolist(), bytes_.tolist(), strict=True):
        if count:
            stats.note_put(topic, count=count, size=int(size))


class _Wait:
    """A read that waits for records up to an offset to be dispatched."""

    __slots__ = ("end", "error", "gate")

    def __init__(self, end: int) -> None:
        self.end = end
        self.error: RocketLakeError | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class DispatchParts(Struct, frozen=True):
    """What dispatch works with."""

    log: CommitLog
    builder: UnitBuilder
    index: IndexFileSet | IndexCatchUp | None
    flags: RunningFlags
    role: Role
    stats: StoreStats


class Dispatcher(BackgroundService):
    """Builds what readers need from the log.

    Thread-safety: any thread may call anything. Rounds are those of the service's thread while it
    runs, and of the caller otherwise, one at a time under a lock. `dispatched_where` may be read by
    any thread.

    Invariants: everything below `dispatched_where` is in the queues and in the index.
    """

    def __init__(self, parts: DispatchParts, *, is_synced: bool = False) -> None:
        """With `is_synced` puts wait for the disk."""
        super().__init__("rocketlake-dispatch", is_daemon=True)
        self.is_external = False
        """Whether a job writes queues and index, while the store is open."""
        self._log = parts.log
        self._builder = parts.builder
        self._index = parts.index
        self._flags = parts.flags
        self._role = parts.role
        self._stats = parts.stats
        self._is_synced = is_synced
        self._round = threading.RLock()
        self.first: list[CustomDispatcher] = []
        self.last: list[CustomDispatcher] = []
        self.listeners: list[ArrivalListener] = []
        # Takes the place of dispatch_range where a job dispatches while the store is recovered.
        self.external_range: Callable[[int, int], int] | None = None
        self.dispatched_where = 0
        self.dispatched_timestamp = 0  # store time of the last record that was dispatched
        self.dispatched_record = 0  # where that record begins; 0 if none was since the start
        self.records = 0
        self.buffer_max = 0
        self.on_moved: Callable[[], None] | None = None  # called in the thread that dispatches
        self.is_exclusive = (
            False  # dispatch stands still for a task, which may want the append lock
        )
        self.is_store_closing = False  # `close` of the store waits for what waits for a round
        self.is_idle = False  # whatever moves the readable end wakes the thread then
        self.has_reads = False  # reads wait for a round
        self._waiting: deque[_Wait] = deque()
        self._tasks: deque[HandedCall[Any]] = deque()
        self._round_s = 0.0  # how long the last round took
        self._round_end_s = 0.0
        self._rate = 0.0  # records a second, from the end of the round before the last one on
        self._parsed_early: ParsedEarly | None = None  # what is dispatched when it is on the disk
        self._tried: tuple[int, int] | None = None  # the ends of the log before the last round
        self._tries = 0
        self._is_failing = False
        self._failing_part = RunningFlag.LOGICS_QUEUE_ERROR  # what is marked for the last failure
        self.error: str | None = None  # why the last round failed

    # --- gauges ----------------------------------------------------------------------------------

    @property
    def behind_bytes(self) -> int:
        """How many confirmed bytes are not dispatched yet."""
        return max(self._log.confirm_offset - self.dispatched_where, 0)

    @property
    def owed_bytes(self) -> int:
        """How many confirmed bytes queues and index lack."""
        return self.behind_bytes

    def reach(self) -> int:
        """Return the offset below which queues and index have everything."""
        return self.dispatched_where

    # --- the thread ------------------------------------------------------------------------------

    def wake_if_idle(self) -> None:
        """End the thread's sleep: the readable end of the log has moved."""
        if self.is_idle:
            self.wakeup()

    def wake_and_yield(self) -> None:
        """Wake the thread after an append, or yield the interpreter to it for a moment.

        Why: puts in a tight loop keep the interpreter, and a read that waits for the thread would
        wait as long as they go on.
        """
        if self.is_idle:
            self.wakeup()
        if self.has_reads:
            sleep(0)

    def pause_s(self) -> float:
        """Return a short pause while many messages come, else wait for a wake-up."""
        if self._is_failing:
            return _RETRY_S
        if self._rate > self._find_many():
            return min(max(_PAUSE_MIN_S, _REST * self._round_s), _PAUSE_MAX_S)
        self.is_idle = True
        # Order: set before the ends are read: an append in between wakes the thread or is seen.
        # Why compare: a round may end before the confirmed end, in a record that is confirmed in
        # part or in bytes that a write buffer holds back. Another one helps when an end has moved.
        return 0.0 if self.behind_bytes and self._ends() != self._tried else _IDLE_LOOK_S

    def _find_many(self) -> int:
        """Return how many records a second make the thread rest between its rounds."""
        if not self._is_synced:
            return _MANY_PER_S
        # A listener that does not say otherwise waits for every message.
        is_awaited = any(getattr(listener, "is_awaited", True) for listener in self.listeners)
        return _MANY_SYNCED_PER_S if is_awaited else _MANY_UNAWAITED_PER_S

    def run_once(self) -> None:
        """Dispatch what is confirmed, and release the reads that waited for it."""
        self.is_idle = False
        self._run_tasks()
        before, started = self.records, perf_counter()
        is_asked = bool(self._waiting)
        self._tried = self._ends()  # Order: before the round, which may see later ends
        try:
            with self._round:
                self._run_round()
        except RocketLakeError as error:
            self._note_failure(error, is_asked=is_asked)
        ended = perf_counter()
        self._round_s = ended - started
        # Why at least a pause: a few messages behind each other are no rate.
        passed_s = max(ended - self._round_end_s, _PAUSE_MIN_S)
        self._rate = (self.records - before) / passed_s
        self._round_end_s = ended

    def _run_tasks(self) -> None:
        while self._tasks:
            self.is_exclusive = True
            self._parsed_early = None  # the task may cut the log
            self._note_moved()
            try:
                self._tasks.popleft().run()
            finally:
                self.is_exclusive = False

    def _note_moved(self) -> None:
        if self.on_moved is not None:
            self.on_moved()

    def _ends(self) -> tuple[int, int]:
        """Return what must move before a round can go further than the last one."""
        return self._log.confirm_offset, self._log.files.committed_where

    def run_last(self) -> None:
        """Dispatch the rest when the thread has ended."""
        self.run_once()

    def catch_up(self, end: int) -> None:
        """Return when everything up to an offset, as far as it is confirmed now, is dispatched.

        Raises:
            RocketLakeError: a queue or the index cannot be written; a later round goes on there.
        """
        if self.dispatched_where >= end:
            return
        if not self._is_served:
            with self._round:
                self._run_round(end)
            return
        wait = _Wait(min(end, self._log.confirm_offset))
        self._waiting.append(wait)
        self.has_reads = True
        self.wakeup()
        if self._is_closed and not self.is_running:
            return  # the last round may not have seen it
        self._await(wait.gate)
        if wait.error is not None:
            raise wait.error

    def exclusively(self, action: Callable[[], Value]) -> Value:
        """Run an action while nothing is dispatched."""
        if not self._is_served:
            with self._round:
                self._parsed_early = None  # the action may cut the log
                return action()
        task = HandedCall(action)
        self._tasks.append(task)
        self.wakeup()
        if self._is_closed and not self.is_running:
            raise StoreClosedError("the store is closed")
        self._await(task.gate)
        return task.result()

    def go_back_to(self, offset: int, timestamp: int, record: int) -> None:
        """Continue at a lower offset; `record` is the last one before it. Call it exclusively."""
        self.dispatched_where = min(self.dispatched_where, offset)
        if self.dispatched_record >= offset:
            self.dispatched_record, self.dispatched_timestamp = record, timestamp

    def _await(self, gate: threading.Lock) -> None:
        """Wait for the thread to open a gate.

        Raises:
            StoreClosedError: the store is to be closed, and the thread is stuck.
        """
        looks = 0
        while not gate.acquire(timeout=_STUCK_LOOK_S):
            looks += self.is_closing or self.is_store_closing
            if looks > _STUCK_LOOKS_MAX:
                raise StoreClosedError("the store is closed, and its dispatch thread has not ended")

    @property
    def is_own_thread(self) -> bool:
        """Whether the calling thread is the service's."""
        return threading.current_thread() is self._thread

    @property
    def _is_served(self) -> bool:
        """Whether the service's thread does what the caller asks for."""
        return self.is_running and not self.is_own_thread

    def _run_round(self, limit: int | None = None) -> None:
        """Dispatch what is confirmed, up to a limit if there is one.

        Reads that waited before are released, also if it fails.
        """
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        # Order: the end is asked for after the reads are known, so that it is not before theirs.
        end = self._log.confirm_offset if limit is None else min(limit, self._log.confirm_offset)
        error: RocketLakeError | None = None
        try:
            self._release(waiting)
            if self.dispatched_where < end:
                start = max(self.dispatched_where, self._log.min_offset)
                self.dispatch_range(start, end, lambda: self._release(waiting))
            elif self._is_synced and self._parsed_early is None:
                self._parsed_early = parse_early(self._log, self.dispatched_where)
            self._note_success()
        except RocketLakeError as failed:
            error = failed
            raise
        finally:
            for wait in waiting:
                wait.error = error
                wait.gate.release()
            self.has_reads = bool(self._waiting)

    def _release(self, waiting: list[_Wait]) -> None:
        """Release the reads whose offset is reached."""
        where = self.dispatched_where
        for wait in [wait for wait in waiting if wait.end <= where]:
            waiting.remove(wait)
            wait.gate.release()

    def _note_success(self) -> None:
        if self._is_failing:
            log.info("dispatch goes on offset=%d", self.dispatched_where)
            # Why: as a rule the disk was full. The reference would have to be restarted.
            self._flags.clear(RunningFlag.LOGICS_QUEUE_ERROR | RunningFlag.INDEX_FILE_ERROR)
        self._is_failing = False
        self._tries = 0
        self.error = None

    # --- the work --------------------------------------------------------------------------------

    def dispatch_range(
        self, start: int, end: int, on_moved: Callable[[], None] = lambda: None
    ) -> int:
        """Dispatch the records of a range, and return where that ended.

        `on_moved` is called each time `dispatched_where` has moved.

        Raises:
            RocketLakeError: a queue or the index cannot be written.
        """
        if self.external_range is not None:
            return self.external_range(start, end)
        with self._round:
            where = start
            while where < end:
                following = self._dispatch_some(where, end)
                if following <= where:
                    break
                where = following
                self.dispatched_where = max(self.dispatched_where, where)
                self._note_moved()
                on_moved()
            return where

    def _dispatch_some(self, where: int, end: int) -> int:
        """Dispatch records of one file; return where to go on, `where` if that is not known."""
        early, self._parsed_early = self._parsed_early, None
        if early is not None and early.covers(where, end):
            self._dispatch(early.records)
            return early.end
        held = self._log.slice(where)
        if held is None:
            return self._pass_gap(where, end)
        with held:
            limit = min(held.size, end - where, _WINDOW)
            self.buffer_max = max(self.buffer_max, held.size)
            found = scan(
                held.view, 0, limit, base_offset=where, checks=Check.OFFSET, rows_max=ROWS_MAX
            )
            if len(found.columns):
                self._dispatch(Records(found.columns))
                return where + found.position
            available = min(held.size, end - where)
            if found.reason is StopReason.TORN and limit < available:
                # The window cuts a record that is larger than it: take that one alone.
                return self._dispatch_large(where, available)
            return self._step_over(held, found, where, available) or self._pass_stop(
                found, where, available
            )

    def _pass_gap(self, where: int, end: int) -> int:
        """Return where the log goes on behind a place that no file holds."""
        if self._log.files.find(where) is not None:
            return where  # a file holds it, but it is still in the file's write buffer
        bases = [file.base_offset for file in self._log.files.files if file.base_offset > where]
        return min(bases[0], end) if bases else where

    def _step_over(self, held: Slice, found: Scan, where: int, available: int) -> int:
        """Return where the log goes on behind one bad record; 0 if that is not known."""
        size = size_to_pass(held.view[:available], where, found.reason)
        if size:
            log.error("bad record stepped over offset=%d reason=%s", where, found.reason.name)
        return where + size if size else 0

    def _pass_stop(self, found: Scan, where: int, available: int) -> int:
        """Return where to go on behind bytes that are no record."""
        file_size = self._log.files.file_size
        if found.reason is StopReason.END_OF_FILE:
            return where + file_size - where % file_size
        is_cut = found.reason in (StopReason.END_OF_DATA, StopReason.TORN)
        if is_cut or self._role.is_replica:
            return where  # more of it may come
        # Compat: as in ReputMessageService#doReput, a primary passes over the rest of what it sees
        # where the size of the record cannot be believed.
        log.error("bad record in the log, the rest of the file is passed over offset=%d", where)
        return where + available

    def _dispatch_large(self, where: int, available: int) -> int:
        held = self._log.slice(where, available)
        if held is None:
            return where
        with held:
            found = scan(held.view, base_offset=where, checks=Check.OFFSET, rows_max=1)
            if len(found.columns):
                self._dispatch(Records(found.columns))
                return where + found.position
            return self._step_over(held, found, where, available) or where

    def _dispatch(self, records: Records) -> None:
        columns = records.columns
        dispatched = DispatchSlice(columns, {})
        for dispatcher in self.first:
            dispatcher.dispatch(dispatched)
        placement = self._builder.place(records)
        ends = self._builder.put(placement, dispatched.bitmaps)
        if self._index is not None:
            self._put_keys(self._index, columns)
        for dispatcher in self.last:
            dispatcher.dispatch(dispatched)
        if self._role.counts_dispatched:
            _count_puts(self._stats, placement)
        self.records += len(columns)
        self.dispatched_timestamp = int(columns["store_timestamp"][-1])
        self.dispatched_record = int(columns["physical_offset"][-1])
        if self.listeners and self._role.tells_arrivals:
            self._notify(Arrivals(placement, ends, dispatched.bitmaps))

    def _put_keys(self, index: IndexFileSet | IndexCatchUp, columns: RecordColumns) -> None:
        try:
            index.put(columns)
        except RocketLakeError:
            self._failing_part = RunningFlag.INDEX_FILE_ERROR
            raise

    def _notify(self, arrivals: Arrivals) -> None:
        notify_all(self.listeners, arrivals)

    def _note_failure(self, error: RocketLakeError, *, is_asked: bool) -> None:
        # Why: a read that asks for a round does not make puts be refused earlier.
        # Compat: as in ConsumeQueue#putMessagePositionInfoWrapper: 30 tries, one a second; then
        # puts are refused. For the index, IndexService#retryGetAndCreateIndexFile has 3 tries.
        self._is_failing = True
        self._tries += not (is_asked and self._tries)
        self.error = str(error)
        if self._tries == 1:
            log.warning("dispatch waits offset=%d reason=%s", self.dispatched_where, error)
        flag, self._failing_part = self._failing_part, RunningFlag.LOGICS_QUEUE_ERROR
        tries_max = _INDEX_TRIES_MAX if flag is RunningFlag.INDEX_FILE_ERROR else _TRIES_MAX
        if self._tries >= tries_max and self._flags.mark(
            flag, f"queues or index cannot be written: {error}"
        ):
            log.error("dispatch failed, puts are refused tries=%d reason=%s", tries_max, error)
