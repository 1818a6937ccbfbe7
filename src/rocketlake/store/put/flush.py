"""Group commit, periodic flush, transient commit.

1. With SYNC_FLUSH a put hands in the offset it wants on the disk and waits; one flush serves all
   that wait. With ASYNC_FLUSH the log is flushed from time to time.
2. A flush that fails poisons the store: nobody knows what is on the disk, so nothing more is
   acknowledged. Whoever waits is told at once.
3. Write buffers are committed to their files first; only then can a flush reach their bytes.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, perf_counter_ns, sleep
from typing import Final, Self

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.errors import FlushFailedError, StorePoisonedError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.store.api import PutStatus

log = logging.getLogger(__name__)

_WATCH_S: Final = 0.01
_CROWD: Final = 12  # with so many at a time, more are about to come
_SLOW_S: Final = 0.05  # a flush that takes longer is no longer left to puts
_OK: Final = PutStatus.PUT_OK
_TIMEOUT: Final = PutStatus.FLUSH_DISK_TIMEOUT


class Poison:
    """Whether a flush has failed; once it has, for good."""

    __slots__ = ("_on_taken", "error")

    def __init__(self, on_taken: Callable[[], object] | None = None) -> None:
        self.error: FlushFailedError | None = None
        self._on_taken = on_taken

    def take(self, error: FlushFailedError) -> None:
        """Remember the first failure."""
        if self.error is None:
            self.error = error
            if self._on_taken is not None:
                self._on_taken()
            log.critical("flush failed: the store takes no more messages reason=%s", error)

    def check(self) -> None:
        """Refuse to go on once a flush has failed.

        Raises:
            StorePoisonedError: it has.
        """
        if self.error is not None:
            raise self.exception()

    def exception(self) -> StorePoisonedError:
        """Return what callers are told."""
        failed = StorePoisonedError(
            f"a flush failed ({self.error}): what was written before may not be on the disk, so "
            "nothing more is accepted; close the store and open it again"
        )
        failed.__cause__ = self.error
        return failed


class FlushSchedule(Struct, frozen=True):
    """When something is flushed: every so often if enough is new, and thoroughly more seldom."""

    interval_s: float
    thorough_s: float
    least_pages: int

    @classmethod
    def of_ms(cls, interval_ms: int, thorough_ms: int, least_pages: int) -> Self:
        """Take the numbers of options."""
        return cls(interval_ms / 1000, thorough_ms / 1000, least_pages)


class StepTimes(Struct, frozen=True):
    """Flushes and commits files, and counts the time of those that moved something."""

    note_flush: Callable[[int], None] = lambda _: None
    """Is told the nanoseconds of a flush."""
    note_commit: Callable[[int], None] = lambda _: None

    def flush_one(self, files: MappedFileQueue, least_pages: int) -> bool:
        """Flush one file; tell whether something moved.

        Raises:
            FlushFailedError: the bytes may not be on the disk.
        """
        began = perf_counter_ns()
        has_moved = files.flush(least_pages)
        if has_moved:
            self.note_flush(perf_counter_ns() - began)
        return has_moved

    def commit_one(self, files: MappedFileQueue, least_pages: int) -> bool:
        """Commit the write buffer of one file; tell whether something moved."""
        began = perf_counter_ns()
        has_moved = files.commit(least_pages)
        if has_moved:
            self.note_commit(perf_counter_ns() - began)
        return has_moved


class FlushWait:
    """One put that waits for an offset to be on the disk."""

    __slots__ = ("deadline_s", "end_offset", "error", "status")

    def __init__(self, end_offset: int, deadline_s: float) -> None:
        self.end_offset = end_offset
        self.deadline_s = deadline_s
        self.status: PutStatus | None = None
        self.error: Exception | None = None

    def finish(self, status: PutStatus, error: Exception | None = None) -> None:
        """Answer; a second answer is not heard."""
        if self.status is None:
            self.error = error
            self.status = status
            self.tell(status, error)

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        """Hand the answer on."""
        raise NotImplementedError


class BlockedPut(FlushWait):
    """A put whose thread waits."""

    __slots__ = ("_gate",)

    def __init__(self, end_offset: int) -> None:
        super().__init__(end_offset, float("inf"))
        self._gate = threading.Lock()
        self._gate.acquire()

    def tell(self, status: PutStatus, error: Exception | None) -> None:
        """Let the thread go on."""
        del status, error  # it looks for itself
        with suppress(RuntimeError):  # another thread answered at the same moment
            self._gate.release()

    def wait(self, timeout_s: float) -> PutStatus:
        """Wait for the answer; after the timeout that is FLUSH_DISK_TIMEOUT.

        Raises:
            StorePoisonedError: the flush failed.
        """
        if not self._gate.acquire(timeout=timeout_s):
            return _TIMEOUT
        if self.error is not None:
            raise self.error
        return self.status or _TIMEOUT


class _Flusher(BackgroundService):
    """What both ways to flush the log share."""

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
        """Have everything appended so far on the disk, in the caller's thread.

        Raises:
            StorePoisonedError: a flush failed, now or before.
        """
        self._poison.check()
        self._flush_to(self._files.wrote_where)
        self._poison.check()

    def _flush_to(self, end: int) -> None:
        """Flush file after file up to an offset; a failure poisons the store.

        Nothing once it is poisoned: a sync that succeeds behind a failed one tells of pages that
        the system has given up, and neither puts nor the checkpoint may believe it.
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

    Only the service's thread answers waiting puts. A put that runs the flush may be interrupted by
    an exception anywhere, and takes nothing away from the others then.

    Thread-safety: any thread may ask.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        poison: Poison,
        note_flush: Callable[[int], None],
    ) -> None:
        super().__init__("rocketlake-group-commit", files, poison, note_flush)
        self._waiting: deque[FlushWait] = deque()
        self._turn = threading.Lock()
        self._is_slow = False
        self._crowd = 0

    def flush_for(self, end_offset: int, timeout_s: float) -> PutStatus:
        """Flush up to an offset; FLUSH_DISK_TIMEOUT if that takes too long.

        Raises:
            StorePoisonedError: the flush failed, now or before.
        """
        # Why the second: while puts wait, the service's thread must not fight for its turn.
        if self._is_slow or self._waiting or self._is_closed or self._turn.locked():
            wait = BlockedPut(end_offset)
            self.ask(wait)
            return wait.wait(timeout_s)
        # Why `locked` and not a try: only a `with` block gives a lock back whatever happens. A put
        # that comes between the two lines waits for one flush.
        with self._turn:
            elapsed_s = self._flush_for_waiting(end_offset)
        if end_offset <= self._files.flushed_where:
            return _OK if elapsed_s <= timeout_s else _TIMEOUT
        self._poison.check()
        return _TIMEOUT

    def ask(self, wait: FlushWait) -> None:
        """Have a put answered when its offset is on the disk, or can never be."""
        if self._poison.error is None and not self._is_closed:
            self._waiting.append(wait)
            self.wakeup()
        if self._poison.error is not None or self._is_closed:
            self._answer(wait)  # the last run may not have seen it

    def run_once(self) -> None:
        """Flush, and answer every put whose offset is then on the disk."""
        if self._crowd >= _CROWD:
            sleep(0)  # puts that were just answered may have more: one flush for all is cheaper
        with self._turn:
            served = tuple(self._waiting)
            self._crowd = len(served)
            self._flush_for_waiting(0 if served else self._files.wrote_where)
        for _ in served:
            self._answer(self._waiting.popleft())

    def _flush_for_waiting(self, end_offset: int) -> float:
        """Flush up to an offset and for all that wait; return how many seconds that took."""
        begin_s = monotonic()
        if self._poison.error is None:
            waiting = max((wait.end_offset for wait in tuple(self._waiting)), default=0)
            self._flush_to(max(end_offset, waiting))
        elapsed_s = monotonic() - begin_s
        self._is_slow = elapsed_s > _SLOW_S
        return elapsed_s

    def run_last(self) -> None:
        """Flush what is left, and answer all that wait."""
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
    """Ends waits that have lasted too long, oldest first [FlushDiskWatcher]."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("rocketlake-flush-watcher", is_daemon=True)
        self._clock = clock
        # Waits of one kind last equally long, so that the oldest ends first.
        self._flushes: deque[FlushWait] = deque()
        self._replicas: deque[FlushWait] = deque()
        self._is_idle = True  # a put that is to be watched wakes the thread

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
        """Look often while a put waits."""
        # Order: first say so, then look: a put in between sees one or the other.
        self._is_idle = True
        return _WATCH_S if self._flushes or self._replicas else None

    def run_once(self) -> None:
        """Forget who was answered, and answer who waited too long."""
        self._is_idle = False
        now_s = self._clock.monotonic_s()
        for waits in (self._flushes, self._replicas):
            while waits and (waits[0].status is not None or waits[0].deadline_s <= now_s):
                waits.popleft().finish(_TIMEOUT)

    def run_last(self) -> None:
        """Answer everybody who is left."""
        for waits in (self._flushes, self._replicas):
            while waits:
                waits.popleft().finish(_TIMEOUT)


class PeriodicFlush(_Flusher):
    """Flushes the log from time to time, thoroughly more seldom [FlushRealTimeService]."""

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
        """A flusher that `is_timed` keeps to its schedule, whatever wakes it."""
        super().__init__("rocketlake-flush", files, poison, note_flush)
        self._is_timed = is_timed
        self._clock = clock
        self._schedule = schedule
        self._thorough_at_s = float("-inf")

    def wakeup(self) -> None:
        """Flush now, unless only the time decides."""
        # Compat: FlushRealTimeService sleeps with flushCommitLogTimed, and cannot be woken.
        if not self._is_timed:
            super().wakeup()

    def pause_s(self) -> float:
        """Wait for the next round."""
        return self._schedule.interval_s

    def run_once(self) -> None:
        """Flush if enough is new, or if it was long ago."""
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
        """Flush what is left."""
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
        """Wait for the next round."""
        return self._schedule.interval_s

    def run_once(self) -> None:
        """Commit if enough is new, or if it was long ago."""
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
        """Commit what is left."""
        while self.times.commit_one(self._files, 0):
            pass
