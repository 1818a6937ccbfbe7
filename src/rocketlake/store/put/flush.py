"""Group commit, periodic flush, transient commit.

1. With SYNC_FLUSH a put waits until its end offset is on the disk; one flush serves all waiting
   puts. With ASYNC_FLUSH the log is flushed periodically.
2. A failed flush poisons the store: what the disk holds is unknown, so nothing more is
   acknowledged, and the waiting puts fail at once.
3. Write buffers are committed to their files first; only then can a flush reach their bytes.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns, sleep
from typing import Final, Self

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.errors import FlushFailedError, StorePoisonedError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.store.api import PutStatus

log = logging.getLogger(__name__)

_WATCH_S: Final = 0.01
_CROWD: Final = 12  # after serving so many at once, more are about to come
_SLOW_S: Final = 0.05  # after a slower flush, puts leave flushing to the thread
_OK: Final = PutStatus.PUT_OK
_TIMEOUT: Final = PutStatus.FLUSH_DISK_TIMEOUT


class Poison:
    """The first failed flush, if there was one; it is final."""

    __slots__ = ("_on_taken", "error")

    def __init__(self, on_taken: Callable[[], object] | None = None) -> None:
        self.error: FlushFailedError | None = None
        self._on_taken = on_taken

    def take(self, error: FlushFailedError) -> None:
        """Record the first failure."""
        if self.error is None:
            self.error = error
            if self._on_taken is not None:
                self._on_taken()
            log.critical("flush failed: the store takes no more messages reason=%s", error)

    def check(self) -> None:
        """Raise if a flush has failed.

        Raises:
            StorePoisonedError: one has.
        """
        if self.error is not None:
            raise self.exception()

    def exception(self) -> StorePoisonedError:
        """Return the error for callers."""
        failed = StorePoisonedError(
            f"a flush failed ({self.error}): what was written before may not be on the disk, so "
            "nothing more is accepted; close the store and open it again"
        )
        failed.__cause__ = self.error
        return failed


class FlushSchedule(Struct, frozen=True):
    """How often files are flushed if enough is new, and how often completely."""

    interval_s: float
    thorough_s: float
    least_pages: int

    @classmethod
    def of_ms(cls, interval_ms: int, thorough_ms: int, least_pages: int) -> Self:
        """Take the numbers of options."""
        return cls(interval_ms / 1000, thorough_ms / 1000, least_pages)


class StepTimes(Struct, frozen=True):
    """Flushes and commits files, and records the time of each step that moved something."""

    note_flush: Callable[[int], None] = lambda _: None
    """Gets the nanoseconds of a flush."""
    note_commit: Callable[[int], None] = lambda _: None

    def flush_one(self, files: MappedFileQueue, least_pages: int) -> bool:
        """Flush one file; return whether the flushed end moved.

        Raises:
            FlushFailedError: the bytes may not be on the disk.
        """
        began = perf_counter_ns()
        has_moved = files.flush(least_pages)
        if has_moved:
            self.note_flush(perf_counter_ns() - began)
        return has_moved

    def commit_one(self, files: MappedFileQueue, least_pages: int) -> bool:
        """Commit the write buffer of one file; return whether the committed end moved."""
        began = perf_counter_ns()
        has_moved = files.commit(least_pages)
        if has_moved:
            self.note_commit(perf_counter_ns() - began)
        return has_moved


class FlushWait:
    """A put that waits until an offset is on the disk."""

    __slots__ = ("deadline_s", "end_offset", "error", "status")

    def __init__(self, end_offset: int, deadline_s: float) -> None:
        self.end_offset = end_offset
        self.deadline_s = deadline_s
        self.status: PutStatus | None = None
        self.error: Exception | None = None

    def finish(self, status: PutStatus, error: Exception | None = None) -> None:
        """Complete the wait; a second answer has no effect."""
        if self.status is None:
            self.error = error
            self.status = status
            self.tell(status, error)

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        """Pass the answer to the put."""
        raise NotImplementedError


class BlockedPut(FlushWait):
    """A put whose thread waits."""

    __slots__ = ("_gate",)

    def __init__(self, end_offset: int) -> None:
        super().__init__(end_offset, float("inf"))
        self._gate = threading.Lock()
        self._gate.acquire()

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        """Wake the thread."""
        del status, error  # the thread reads them
        with suppress(RuntimeError):  # another thread answered at the same moment
            self._gate.release()

    def wait(self, timeout_s: float) -> PutStatus:
        """Wait for the answer; FLUSH_DISK_TIMEOUT after the timeout.

        Raises:
            StorePoisonedError: the flush failed.
        """
        if not self._gate.acquire(timeout=timeout_s):
            return _TIMEOUT
        if self.error is not None:
            raise self.error
        return self.status or _TIMEOUT


class _Flusher(BackgroundService):
    """The base of group commit and periodic flush."""

    def __init__(
        self,
        name: str,
        files: MappedFileQueue,
        poison: Poison,
        note_flush: Callable[[int], None],
    ) -> None:
        super().__init__(name, is_daemon=True)
        self._files = files
        self._poison = poison
        self._note_flush = note_flush
        self.times = StepTimes()

    def flush_all(self) -> None:
        """Flush everything appended so far, in the caller's thread.

        Raises:
            StorePoisonedError: a flush failed, now or before.
        """
        self._poison.check()
        self._flush_to(self._files.wrote_where)
        self._poison.check()

    def _flush_to(self, end: int) -> None:
        """Flush file after file up to an offset; a failure poisons the store.

        Does nothing in a poisoned store: a sync that succeeds after a failed one may be about pages
        that the system has dropped, and neither puts nor the checkpoint may rely on it.
        """
        files = self._files
        if self._poison.error is not None:
            return
        try:
            # Order: bytes in write buffers first become the file's.
            while files.committed_where < end and self.times.commit_one(files, 0):
                pass
            while files.flushed_where < end and self.times.flush_one(files, 0):
                pass
        except FlushFailedError as error:
            self._poison.take(error)
            return
        if files.store_timestamp > 0:
            self._note_flush(files.store_timestamp)


class GroupCommit(_Flusher):
    """Flushes for puts that wait; one flush serves all of them.

    An uncontended put runs the flush itself: that saves it two changes of threads. Puts that arrive
    meanwhile are served by the service's thread. While the disk is slow only that thread flushes,
    so that puts keep their timeout.

    Only the service's thread completes waiting puts: a put that runs the flush may be interrupted
    by an exception anywhere, which must not affect the others.

    Thread-safety: any thread may call anything.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        poison: Poison,
        note_flush: Callable[[int], None],
        clock: Clock,
    ) -> None:
        super().__init__("rocketlake-group-commit", files, poison, note_flush)
        self._clock = clock
        self._waiting: deque[FlushWait] = deque()
        self._turn = threading.Lock()
        self._is_slow = False
        self._crowd = 0

    def flush_for(self, end_offset: int, timeout_s: float) -> PutStatus:
        """Flush up to an offset; FLUSH_DISK_TIMEOUT if that takes too long.

        Raises:
            StorePoisonedError: the flush failed, now or before.
        """
        # Why the second: while puts wait, the service's thread must not compete for its turn.
        if self._is_slow or self._waiting or self._is_closed or self._turn.locked():
            wait = BlockedPut(end_offset)
            self.ask(wait)
            return wait.wait(timeout_s)
        # Why `locked` and not a try: only a `with` block releases a lock after any exception. A put
        # that takes the lock between the two lines costs this one the wait for a flush.
        with self._turn:
            elapsed_s = self._flush_for_waiting(end_offset)
        if end_offset <= self._files.flushed_where:
            return _OK if elapsed_s <= timeout_s else _TIMEOUT
        self._poison.check()
        return _TIMEOUT

    def ask(self, wait: FlushWait) -> None:
        """Complete a put when its offset is on the disk, or can no longer get there."""
        if self._poison.error is None and not self._is_closed:
            self._waiting.append(wait)
            self.wakeup()
        if self._poison.error is not None or self._is_closed:
            self._answer(wait)  # the last run may not have seen it

    def run_once(self) -> None:
        """Flush, and complete the waiting puts."""
        if self._crowd >= _CROWD:
            sleep(0)  # puts that were just completed may be followed by more, for the same flush
        with self._turn:
            served = tuple(self._waiting)
            self._crowd = len(served)
            self._flush_for_waiting(0 if served else self._files.wrote_where)
        for _ in served:
            self._answer(self._waiting.popleft())

    def _flush_for_waiting(self, end_offset: int) -> float:
        """Flush up to an offset and for all waiting puts; return the seconds it took."""
        begin_s = self._clock.monotonic_s()
        if self._poison.error is None:
            waiting = max((wait.end_offset for wait in tuple(self._waiting)), default=0)
            self._flush_to(max(end_offset, waiting))
        elapsed_s = self._clock.monotonic_s() - begin_s
        self._is_slow = elapsed_s > _SLOW_S
        return elapsed_s

    def run_last(self) -> None:
        """Flush the rest, and complete all waiting puts."""
        self.run_once()
        with self._turn:
            self._flush_to(self._files.wrote_where)
        while self._waiting:
            self._answer(self._waiting.popleft())

    def _answer(self, wait: FlushWait) -> None:
        if wait.end_offset <= self._files.flushed_where:
            wait.finish(_OK)
        else:
            is_failed = self._poison.error is not None
            wait.finish(_TIMEOUT, self._poison.exception() if is_failed else None)


class FlushWatcher(BackgroundService):
    """Ends waits at their deadlines, oldest first [FlushDiskWatcher]."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("rocketlake-flush-watcher", is_daemon=True)
        self._clock = clock
        # Waits of one kind have the same timeout, so that the oldest ends first.
        self._flushes: deque[FlushWait] = deque()
        self._replicas: deque[FlushWait] = deque()
        self._is_idle = True  # the next watched put wakes the thread

    def watch(self, wait: FlushWait) -> None:
        """End a wait for the flush at its deadline."""
        self._flushes.append(wait)
        if self._is_idle:
            self.wakeup()

    def watch_replicas(self, wait: FlushWait) -> None:
        """End a wait for replicas at its deadline."""
        self._replicas.append(wait)
        if self._is_idle:
            self.wakeup()
        if self._is_closed and not self.is_running:
            wait.finish(_TIMEOUT)  # the last run may not have seen it

    def pause_s(self) -> float | None:
        """Check often while a put waits."""
        # Order: the flag before the look: a put in between is seen by one of the two.
        self._is_idle = True
        return _WATCH_S if self._flushes or self._replicas else None

    def run_once(self) -> None:
        """Drop the completed waits, and end those past their deadline."""
        self._is_idle = False
        now_s = self._clock.monotonic_s()
        for waits in (self._flushes, self._replicas):
            while waits and (waits[0].status is not None or waits[0].deadline_s <= now_s):
                waits.popleft().finish(_TIMEOUT)

    def run_last(self) -> None:
        """End all remaining waits."""
        for waits in (self._flushes, self._replicas):
            while waits:
                waits.popleft().finish(_TIMEOUT)


class PeriodicFlush(_Flusher):
    """Flushes the log periodically, completely less often [FlushRealTimeService]."""

    def __init__(
        self,
        files: MappedFileQueue,
        poison: Poison,
        note_flush: Callable[[int], None],
        *,
        schedule: FlushSchedule,
        clock: Clock,
        is_timed: bool = False,
    ) -> None:
        """With `is_timed` wake-ups have no effect: only the schedule decides."""
        super().__init__("rocketlake-flush", files, poison, note_flush)
        self._is_timed = is_timed
        self._clock = clock
        self._schedule = schedule
        self._thorough_at_s = float("-inf")

    def wakeup(self) -> None:
        """Flush now, unless only the schedule decides."""
        # Compat: FlushRealTimeService sleeps with flushCommitLogTimed, and cannot be woken.
        if not self._is_timed:
            super().wakeup()

    def pause_s(self) -> float:
        """Return the interval of the schedule."""
        return self._schedule.interval_s

    def run_once(self) -> None:
        """Flush if enough is new, or if a complete flush is due."""
        if self._poison.error is not None:
            return
        now_s = self._clock.monotonic_s()
        is_thorough = now_s >= self._thorough_at_s + self._schedule.thorough_s
        if is_thorough:
            self._thorough_at_s = now_s
        try:
            least_pages = 0 if is_thorough else self._schedule.least_pages
            while self.times.flush_one(self._files, least_pages):
                pass
        except FlushFailedError as error:
            self._poison.take(error)
            return
        if self._files.store_timestamp > 0:
            self._note_flush(self._files.store_timestamp)

    def run_last(self) -> None:
        """Flush the rest."""
        if self._poison.error is None:
            self._flush_to(self._files.wrote_where)


class BufferCommit(BackgroundService):
    """Commits write buffers to their files [CommitRealTimeService]."""

    def __init__(
        self,
        files: MappedFileQueue,
        wake_flush: Callable[[], None],
        *,
        schedule: FlushSchedule,
        clock: Clock,
    ) -> None:
        super().__init__("rocketlake-commit", is_daemon=True)
        self.times = StepTimes()
        self._files = files
        self._wake_flush = wake_flush
        self._clock = clock
        self._schedule = schedule
        self._thorough_at_s = float("-inf")

    def pause_s(self) -> float:
        """Return the interval of the schedule."""
        return self._schedule.interval_s

    def run_once(self) -> None:
        """Commit if enough is new, or if a complete commit is due."""
        now_s = self._clock.monotonic_s()
        is_thorough = now_s >= self._thorough_at_s + self._schedule.thorough_s
        has_moved = False
        least_pages = 0 if is_thorough else self._schedule.least_pages
        while self.times.commit_one(self._files, least_pages):
            has_moved = True
        if is_thorough or has_moved:
            self._thorough_at_s = now_s
        if has_moved:
            self._wake_flush()

    def run_last(self) -> None:
        """Commit the rest."""
        while self.times.commit_one(self._files, 0):
            pass
