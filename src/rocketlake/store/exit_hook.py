"""What happens to open stores when a program ends, gets SIGTERM, or forks.

1. A store that is still open is closed when the program ends: normally, by an exception, by Ctrl-C.
   Only a process that is killed, or leaves by `os._exit`, leaves an `abort`.
2. Only the process that opened a store closes it. A fork has a copy of the object, but neither its
   threads nor its lock: it closes nothing, and is notified so that the copy refuses to work.
3. SIGTERM ends a program without any of this, unless it asks for `closing_on_sigterm`.
"""

import atexit
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Protocol

from msgspec import Struct

log = logging.getLogger(__name__)

TERMINATED: Final = 128 + signal.SIGTERM
"""The exit code of a program that SIGTERM ended, as shells show it."""


class Closeable(Protocol):
    """An open store."""

    def close(self) -> None:
        """Bring everything to disk and close."""
        ...


class _Opened(Struct, frozen=True):
    store: Closeable
    pid: int


class _Registry:
    """The open stores, oldest first, and the callbacks of a fork.

    Why: these are strong references. A store that a program no longer holds is open all the same
    (its threads write, its lock is taken), and must be closed like the others.

    Thread-safety: `_guard` owns both collections; it is renewed in a fork.
    """

    def __init__(self) -> None:
        self._opened: list[_Opened] = []
        self._on_fork: dict[object, Callable[[], None]] = {}
        self._guard = threading.Lock()

    def add(self, store: Closeable) -> None:
        with self._guard:
            self._opened.append(_Opened(store, os.getpid()))

    def remove(self, store: Closeable) -> None:
        with self._guard:
            self._opened = [opened for opened in self._opened if opened.store is not store]

    def take_newest(self) -> Closeable | None:
        """Return an open store of this process, and forget it; None if there is none."""
        with self._guard:
            pid = os.getpid()
            for index in reversed(range(len(self._opened))):
                if self._opened[index].pid == pid:
                    return self._opened.pop(index).store
            return None

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        key = object()
        with self._guard:
            self._on_fork[key] = listener

        def remove() -> None:
            with self._guard:
                self._on_fork.pop(key, None)

        return remove

    def tell_fork(self) -> None:
        # Why: a thread that held the lock when the process forked is not in the fork.
        self._guard = threading.Lock()
        for listener in list(self._on_fork.values()):
            try:
                listener()
            except Exception:  # no caller could handle it: the fork goes on
                log.exception("listener of a fork failed")


_registry = _Registry()


def register(store: Closeable) -> None:
    """Have a store closed when this process ends; the newest first."""
    _registry.add(store)


def unregister(store: Closeable) -> None:
    """Forget a store: it was closed. Nothing if it is not known."""
    _registry.remove(store)


def on_fork(callback: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in every fork of this process; return one that ends that.

    It runs before anything else does in the fork, where no other thread is left.
    """
    return _registry.add_listener(callback)


def close_all() -> None:
    """Close the open stores of this process, newest first; what goes wrong is logged."""
    interrupt: BaseException | None = None
    while (store := _registry.take_newest()) is not None:
        try:
            store.close()
        except Exception:  # the program is ending: the other stores have their turn
            log.exception("store not closed at the end of the program store=%r", store)
        except BaseException as error:  # noqa: BLE001 - so they have with Ctrl-C
            interrupt = error
    if interrupt is not None:
        raise interrupt


@contextmanager
def closing_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as `sys.exit(143)` does, with all stores of the process closed.

    Public as `rocketlake.closing_on_sigterm`; it decorates a function, too. The signal raises
    SystemExit in the main thread, so that `finally` blocks run; further signals are ignored while
    that is under way. Behind the block the program's former handler is back, unless the block has
    put another one in place. Signals reach the main thread only: in another one the block is as
    any other.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_ending = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if is_ending:
            # Order: before the old handler is back, which may end the process at once.
            close_all()
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


atexit.register(close_all)
os.register_at_fork(after_in_child=_registry.tell_fork)
