"""BackgroundService: a thread, a wakeup and run_once()."""

import logging
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final

from rocketlake.errors import StoreError

log = logging.getLogger(__name__)

_FAILURE_PAUSE_S: Final = 0.1
_CLOSE_MAX_S: Final = 30.0


class _Bell:
    """An event for one thread: set once or many times, it ends one wait.

    Why: an Event does the same with a lock for each wait, which shows where a put waits for a
    thread and the thread for a put.

    Thread-safety: any thread rings, one waits.
    """

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def set(self) -> None:
        """Ring."""
        if self._silence.locked():
            with suppress(RuntimeError):  # another thread rang in between
                self._silence.release()

    def wait(self, timeout_s: float | None) -> None:
        """Wait until it rings, and silence it; or until the time is over."""
        self._silence.acquire(timeout=-1 if timeout_s is None else timeout_s)

    def clear(self) -> None:
        """Silence it."""
        self._silence.acquire(blocking=False)


class BackgroundService(ABC):
    """Work that is done again and again; the thread only decides when.

    `start` makes the thread, which calls `run_once` after each wakeup or pause. `close` ends it
    after the run in progress and then calls `run_last` in the caller's thread. Tests call
    `run_once` themselves and start nothing.

    The thread is no daemon: a program that ends without `close` waits for it, and `atexit` hooks
    come only after that wait. A service that is closed by such a hook is a daemon.

    Thread-safety: `wakeup`, `start` and `close` may be called from any thread. `run_once` and
    `run_last` are never called by two threads at a time.
    """

    def __init__(self, name: str, *, is_daemon: bool = False) -> None:
        self.name = name
        self._is_daemon = is_daemon
        self._wake = _Bell()
        self._closing = threading.Event()
        self._life = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._is_closed = False
        self._failures = 0

    @abstractmethod
    def run_once(self) -> None:
        """Do what is to be done now."""

    def run_last(self) -> None:
        """Do what is left when the thread has ended: the same once more, unless overridden."""
        self.run_once()

    def pause_s(self) -> float | None:
        """Return how long to wait for a wakeup before the next run; None is for ever."""
        return None

    def on_wait_end(self) -> None:  # noqa: B027 - most have nothing to do
        """Called at the end of a pause, before the run that follows it."""

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called: long runs check it."""
        return self._closing.is_set()

    @property
    def is_running(self) -> bool:
        """Whether the thread is there.

        Why not `Thread.is_alive`: an exception inside it, as a signal handler may raise, makes it
        take the thread for ended from then on.
        """
        return self._is_running

    def start(self) -> None:
        """Make the thread; a second call does nothing, and so does one after `close`."""
        with self._life:
            if self._thread is None and not self.is_closing:
                self._thread = threading.Thread(
                    target=self._run, name=self.name, daemon=self._is_daemon
                )
                self._is_running = True
                self._thread.start()

    def wakeup(self) -> None:
        """End the pause, or leave out the next one."""
        self._wake.set()

    def close(self) -> None:
        """Let the run in progress end, and the thread with it, then run for the last time.

        A second call waits for the first and does nothing. What the last run raises is raised.

        Raises:
            StoreError: the run in progress does not end; the last one is left out.
        """
        self._closing.set()
        self._wake.set()
        with self._life:
            thread = self._thread
            assert thread is not threading.current_thread(), f"{self.name} cannot close itself"
            if thread is not None:
                thread.join(_CLOSE_MAX_S)
                if thread.is_alive():
                    raise StoreError(
                        f"the thread {self.name} has not ended within {_CLOSE_MAX_S:.0f} s: the "
                        "disk or a listener holds it up"
                    )
            if not self._is_closed:
                self._is_closed = True
                self.run_last()

    def _run(self) -> None:
        log.debug("service started name=%s", self.name)
        try:
            while not self._closing.is_set():
                self._wake.wait(self.pause_s())
                # Order: cleared before the run, so that a wakeup during it is not lost.
                self._wake.clear()
                self._run_guarded()
        finally:
            self._is_running = False
        log.debug("service ended name=%s", self.name)

    def _run_guarded(self) -> None:
        try:
            self.on_wait_end()
            if not self._closing.is_set():
                self.run_once()
        except (
            BaseException
        ):  # the thread's way ends here; `sys.exit` in a listener does not end it
            self._failures += 1
            # A run that fails is tried again; the log shows the 1st, 2nd, 4th, 8th … in a row.
            if self._failures & (self._failures - 1) == 0:
                log.exception("run failed name=%s times_in_a_row=%d", self.name, self._failures)
            self._closing.wait(_FAILURE_PAUSE_S)
            self._wake.set()
        else:
            self._failures = 0
