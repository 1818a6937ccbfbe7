"""Dispatcher: commit log -> queues, index, listeners [ReputMessageService].

1. Records are taken in the order of the log, many at a time, up to the confirmed end.
2. Doing it again does no harm: queues and index pass over what they have.
3. Whoever wants to read what was just put has it dispatched in the own thread, without waiting for
   this one.
"""

import logging
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from rocketlake.errors import RocketLakeError
from rocketlake.files.service import BackgroundService
from rocketlake.format.dispatch import dispatch_columns, key_entries
from rocketlake.format.record import Check, RecordColumns, Scan, StopReason, scan
from rocketlake.store.arrivals import Arrivals
from rocketlake.store.commit_log import CommitLog
from rocketlake.store.ports import ArrivalListener, CustomDispatcher, DispatchSlice
from rocketlake.store.running_flags import RunningFlag, RunningFlags
from rocketlake.store.unit_builder import Round, UnitBuilder

log = logging.getLogger(__name__)

Value = TypeVar("Value")

ROWS_MAX: Final = 32_768
# Why: a round costs the same for one record as for hundreds. While messages come, the thread rests
# many times as long as it works, so that who puts keeps the interpreter; but never for long.
_PAUSE_MIN_S: Final = 0.001
_PAUSE_MAX_S: Final = 0.010
_REST: Final = 20
_IDLE_ROUNDS: Final = 50
_RETRY_S: Final = 1.0
_TRIES_MAX: Final = 30
_WINDOW: Final = 16 << 20


class IndexSink(Protocol):
    """Takes the keys of records."""

    def put(
        self,
        columns: RecordColumns,
        hashes: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int32],
    ) -> None:
        """Add an entry for each hash, whose record is in the row of the same number."""
        ...


class Dispatcher(BackgroundService):
    """Builds what readers need from the log.

    Thread-safety: one round at a time, under a lock; `dispatched_where` may be read by anybody.

    Invariants: everything below `dispatched_where` is in the queues and in the index.
    """

    def __init__(
        self,
        source: CommitLog,
        builder: UnitBuilder,
        index: IndexSink | None,
        flags: RunningFlags,
        *,
        is_replica: bool = False,
    ) -> None:
        super().__init__("rocketlake-dispatch", is_daemon=True)
        self._log = source
        self._builder = builder
        self._index = index
        self._flags = flags
        self._is_replica = is_replica
        self._round = threading.RLock()
        self.first: list[CustomDispatcher] = []
        self.last: list[CustomDispatcher] = []
        self.listeners: list[ArrivalListener] = []
        self.elsewhere: Callable[[int, int], int] | None = None  # does the work of dispatch_range
        self.dispatched_where = 0
        self.dispatched_timestamp = 0  # store time of the last record that was dispatched
        self.records = 0
        self.buffer_max = 0
        self.is_idle = False  # who appends wakes the thread then
        self._empty_rounds = 0
        self._round_s = 0.0  # how long the last round took
        self._tries = 0
        self._is_failing = False
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

    def pause_s(self) -> float | None:
        """Wait shortly while messages come, for a wakeup when none do."""
        if self._is_failing:
            return _RETRY_S
        if self._empty_rounds < _IDLE_ROUNDS:
            return min(max(_PAUSE_MIN_S, _REST * self._round_s), _PAUSE_MAX_S)
        self.is_idle = True
        # Order: first say so, then look: an append in between sees one or the other.
        return 0.0 if self.behind_bytes else None

    def run_once(self) -> None:
        """Dispatch what is confirmed."""
        self.is_idle = False
        before, started = self.records, perf_counter()
        try:
            self.catch_up(self._log.confirm_offset)
        except RocketLakeError as error:
            self._note_failure(error)
            return
        self._round_s = perf_counter() - started
        self._empty_rounds = 0 if self.records != before else self._empty_rounds + 1

    def catch_up(self, end: int) -> None:
        """Dispatch up to an offset, in the caller's thread.

        Raises:
            RocketLakeError: a queue or the index cannot be written; a later round goes on there.
        """
        if self.dispatched_where >= end:
            return
        with self._round:
            start = max(self.dispatched_where, self._log.min_offset)
            self.dispatch_range(start, min(end, self._log.confirm_offset))
            if self._is_failing:
                log.info("dispatch goes on offset=%d", self.dispatched_where)
                # Why: as a rule the disk was full. The reference would have to be restarted.
                self._flags.clear(RunningFlag.LOGICS_QUEUE_ERROR)
            self._is_failing = False
            self._tries = 0
            self.error = None

    def exclusively(self, action: Callable[[], Value]) -> Value:
        """Do something while nothing is dispatched."""
        with self._round:
            return action()

    # --- the work --------------------------------------------------------------------------------

    def dispatch_range(self, start: int, end: int) -> int:
        """Dispatch the records of a range, and return where that ended.

        Raises:
            RocketLakeError: a queue or the index cannot be written.
        """
        if self.elsewhere is not None:
            return self.elsewhere(start, end)
        with self._round:
            where = start
            while where < end:
                following = self._dispatch_some(where, end)
                if following <= where:
                    break
                where = following
                self.dispatched_where = max(self.dispatched_where, where)
            return where

    def _dispatch_some(self, where: int, end: int) -> int:
        """Dispatch records of one file; return where to go on, the same place if nobody knows."""
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
                self._dispatch(found.columns)
                return where + found.position
            return self._pass_stop(found, where, (limit, min(held.size, end - where)))

    def _pass_gap(self, where: int, end: int) -> int:
        """Return where the log goes on behind a place that no file holds."""
        if self._log.files.find(where) is not None:
            return where  # a file holds it, but it is still in the file's write buffer
        bases = [file.base_offset for file in self._log.files.files if file.base_offset > where]
        return min(bases[0], end) if bases else where

    def _pass_stop(self, found: Scan, where: int, limits: tuple[int, int]) -> int:
        """Return where to go on behind bytes that are no record."""
        file_size = self._log.files.file_size
        limit, available = limits
        if found.reason is StopReason.END_OF_FILE:
            return where + file_size - where % file_size
        if found.reason is StopReason.TORN and limit < available:
            # The window cuts a record that is larger than it: take that one alone.
            return self._dispatch_large(where, available)
        if found.reason in (StopReason.END_OF_DATA, StopReason.TORN) or self._is_replica:
            return where  # more of it may come
        # Compat: as in ReputMessageService#doReput, a primary passes over the rest of what it sees.
        log.error("bad record in the log, the rest of the file is passed over offset=%d", where)
        return where + available

    def _dispatch_large(self, where: int, available: int) -> int:
        held = self._log.slice(where, available)
        if held is None:
            return where
        with held:
            found = scan(held.view, base_offset=where, checks=Check.OFFSET, rows_max=1)
            if len(found.columns):
                self._dispatch(found.columns)
            return where + found.position

    def _dispatch(self, columns: RecordColumns) -> None:
        dispatched = DispatchSlice(columns)
        for dispatcher in self.first:
            dispatcher.dispatch(dispatched)
        records = Round(columns, dispatch_columns(columns), dispatched.bitmaps)
        self._builder.put(records)
        if self._index is not None:
            self._index.put(columns, *key_entries(columns))
        for dispatcher in self.last:
            dispatcher.dispatch(dispatched)
        self.records += len(columns)
        self.dispatched_timestamp = int(columns["store_timestamp"][-1])
        if self.listeners:
            self._tell(Arrivals(records))

    def _tell(self, arrivals: Arrivals) -> None:
        for listener in self.listeners:
            try:
                listener.arrived(arrivals)
            except Exception:  # a listener's fault must not stop dispatch
                log.exception("arrival listener failed listener=%r", listener)

    def _note_failure(self, error: RocketLakeError) -> None:
        # Compat: as in ConsumeQueue#putMessagePositionInfoWrapper: 30 tries, one a second; then
        # puts are refused.
        self._is_failing = True
        self._tries += 1
        self.error = str(error)
        if self._tries == 1:
            log.warning("dispatch waits offset=%d reason=%s", self.dispatched_where, error)
        is_new = self._tries >= _TRIES_MAX and self._flags.mark(
            RunningFlag.LOGICS_QUEUE_ERROR, f"queues or index cannot be written: {error}"
        )
        if is_new:
            log.error("dispatch failed, puts are refused tries=%d reason=%s", _TRIES_MAX, error)
