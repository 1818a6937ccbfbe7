"""IndexCatchUp: brings the keys of old records to the index while the store is in use.

1. After an unclean stop the index may have to be built again from far back in the log. Puts and
   reads of queues do not need it, so a start does not wait for it.
2. Until it has caught up, dispatch adds nothing to it: entries are in the order of the log.
3. A query by key waits for it. Only the service's thread, while it runs, writes to the index: an
   exception in a waiting thread (Ctrl-C) leaves no half-written entry.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from rocketlake.errors import RocketLakeError
from rocketlake.files.background_service import BackgroundService
from rocketlake.format.record import Check, RecordColumns, StopReason, scan
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.log.bad_records import size_to_pass
from rocketlake.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

_WINDOW: Final = 4 << 20
_ROWS_MAX: Final = 32_768
_AT_CLOSE_MAX: Final = 256 << 20  # so much is still done when the store is closed
_RETRY_S: Final = 1.0


class Dispatched(Protocol):
    """How far records are in the queues (Dispatcher)."""

    @property
    def dispatched_where(self) -> int:
        """Everything below is dispatched."""
        ...

    def exclusively(self, action: Callable[[], object]) -> object:
        """Do something while nothing is dispatched."""
        ...


class IndexCatchUp(BackgroundService):
    """Stands between dispatch and the index.

    Thread-safety: dispatch calls `put`, any thread `finish`. The holder of dispatch's lock may take
    the one of this work, never the other way round.

    Invariants: the index has the keys of all records below `where`, and of none behind it; with
    None there, of all that were dispatched.
    """

    def __init__(self, source: CommitLog, index: IndexFileSet) -> None:
        super().__init__("rocketlake-index-catch-up", is_daemon=True)
        self._log = source
        self._index = index
        self._dispatched: Dispatched | None = None
        self.work = threading.Lock()
        """Held while records are read for their keys."""
        self._error: RocketLakeError | None = None  # why the last run failed
        self._gates: deque[threading.Lock] = deque()
        self.where: int | None = None

    def attach(self, dispatched: Dispatched) -> None:
        """Name the dispatcher."""
        self._dispatched = dispatched

    def defer(self, where: int) -> None:
        """Have records from an offset on indexed later; nothing is dispatched meanwhile."""
        self.where = where
        log.info("keys are indexed in the background from=%d", where)

    def go_back_to(self, where: int) -> None:
        """Index records from an offset on once more; under `work`, and nothing is dispatched."""
        self.defer(where if self.where is None else min(self.where, where))
        self.wakeup()

    @property
    def behind_bytes(self) -> int:
        """How much of the log is still to be indexed."""
        where, dispatched = self.where, self._dispatched
        if where is None or dispatched is None:
            return 0
        return max(dispatched.dispatched_where - where, 0)

    def put(self, columns: RecordColumns) -> None:
        """Take the keys of records that are dispatched; before it has caught up, take none."""
        if self.where is None:
            self._index.put(columns)

    # --- the thread ------------------------------------------------------------------------------

    def pause_s(self) -> float | None:
        """Wait only where something failed: what is left is done in one run."""
        return _RETRY_S if self._error is not None else None

    def run_once(self) -> None:
        """Index all that is left, or as much as there is time for."""
        gates = [self._gates.popleft() for _ in range(len(self._gates))]
        self._error = None
        try:
            self._go_on(lambda: self.is_closing)
        except RocketLakeError as error:
            self._error = error
            log.warning("index waits where=%s reason=%s", self.where, error)
        finally:
            for gate in gates:
                gate.release()

    def run_last(self) -> None:
        """Finish if that is soon done; else the store counts as not closed, and begins anew."""
        try:
            if self.behind_bytes <= _AT_CLOSE_MAX:
                self._go_on(lambda: False)
            else:
                log.info("index is not complete behind_bytes=%d", self.behind_bytes)
        finally:
            while self._gates:
                self._gates.popleft().release()

    def finish(self) -> None:
        """Return when the index has the keys of all dispatched records.

        Raises:
            RocketLakeError: the index cannot be written.
        """
        if self.where is None:
            return
        if not self.is_running or threading.current_thread() is self._thread:
            self._go_on(lambda: False)
            return
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        self.wakeup()
        if self._is_closed:
            return  # the last run may not have seen it
        gate.acquire()
        if self._error is not None:
            raise self._error

    # --- the work --------------------------------------------------------------------------------

    def _go_on(self, is_enough: Callable[[], bool]) -> None:
        while self.where is not None and not is_enough():
            if self.behind_bytes > _WINDOW:
                self._index_some()
                continue
            assert self._dispatched is not None, "attached at assembly"
            self._dispatched.exclusively(self._end)

    def _end(self) -> None:
        """Index the rest; dispatch goes on from there."""
        while self.behind_bytes:
            self._index_some()
        with self.work:
            if self.where is not None:
                log.info("index is complete where=%d", self.where)
                self.where = None

    def _index_some(self) -> None:
        with self.work:
            where, dispatched = self.where, self._dispatched
            if where is None or dispatched is None:
                return
            end = dispatched.dispatched_where
            if where < end:
                self.where = self._index_range(where, end)

    def _index_range(self, where: int, end: int) -> int:
        """Index records of one file; return where to go on."""
        file_size = self._log.files.file_size
        file_end = where - where % file_size + file_size
        held = self._log.slice(where)
        if held is None:  # expired meanwhile, or lost
            later = [f.base_offset for f in self._log.files.files if f.base_offset > where]
            return min([*later, end])
        with held:
            limit = min(held.size, end - where)
            for size in (min(limit, _WINDOW), limit):
                found = scan(
                    held.view, 0, size, base_offset=where, checks=Check.OFFSET, rows_max=_ROWS_MAX
                )
                if len(found.columns):
                    self._index.put(found.columns)
                    return where + found.position
                if found.reason is not StopReason.TORN or size == limit:
                    if passed := size_to_pass(held.view[:limit], where, found.reason):
                        return where + passed
                    break
        # The end of a file, or what dispatch could not read either.
        return min(file_end, end)
