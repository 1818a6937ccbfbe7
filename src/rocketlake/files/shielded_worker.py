"""ShieldedWorker: work that an exception in the thread that waits for it cannot end half done."""

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from rocketlake.files.handed_call import HandedCall

log = logging.getLogger(__name__)

_END_S: Final = 10.0
_STEP_S: Final = 0.1
_NO_THREAD: Final = ("can't start new thread", "can't create new thread")
"""How the interpreter says that it makes no thread."""

Value = TypeVar("Value")


class _Server:
    """A thread, what it is asked to do, and how far its life is."""

    __slots__ = ("_forget_owner", "gate", "has_begun", "has_ended", "is_given_up", "thread", "work")

    def __init__(self, name: str, owner: "ShieldedWorker") -> None:
        self.work: SimpleQueue[HandedCall[Any] | None] = SimpleQueue()
        self.has_begun = False
        self.has_ended = False
        self.is_given_up = False
        self.gate = threading.Lock()
        self.gate.acquire()
        self.thread = threading.Thread(
            target=self._run, args=(owner.turn, owner.served), name=name, daemon=True
        )
        # Why: the thread ends when its worker is garbage. At the end of the program it stays, since
        # a store may still have to be closed.
        end_with_owner = weakref.finalize(owner, self.work.put, None)
        end_with_owner.atexit = False
        self._forget_owner = end_with_owner.detach

    @property
    def may_be_there(self) -> bool:
        """Whether `wait_end` has something to wait for."""
        return not self.has_ended and (self.has_begun or not self.is_given_up)

    def wait_end(self, timeout_s: float) -> None:
        """Wait until the thread has ended.

        Why not `Thread.join` alone: an exception inside it makes it take the thread for ended.
        """
        if not self.has_begun:
            # Why once: an exception may have come before the system made the thread. If it begins
            # later all the same, it finds that it is to end.
            self.is_given_up = True
            self.gate.acquire(timeout=_STEP_S)
        steps = int(timeout_s / _STEP_S) if self.has_begun else 0
        for _ in range(steps):
            # Why the flag: the gate opens once, and an exception may come behind this line.
            if self.has_ended or self.gate.acquire(timeout=_STEP_S):
                break
        with suppress(RuntimeError):  # it never began
            # One that has said that it ends needs a moment more, on a busy machine a long one.
            self.thread.join(timeout_s if self.has_ended else _STEP_S)

    def _run(self, turn: threading.Lock, served: threading.local) -> None:
        self.has_begun = True
        served.is_worker = True
        try:
            _serve(self.work, turn)
        finally:
            self._forget_owner()
            self.has_ended = True
            self.gate.release()


class ShieldedWorker:
    """A thread that does what must not stop in the middle: opening, closing, changing tables.

    Why: a signal handler may raise in the main thread between any two instructions (Ctrl-C, a time
    limit), and so may a debugger in any thread. This thread runs no handlers.

    `end` may be called while a call is under way, by a thread that was interrupted while it waited
    for it. The next call of `run` then makes another thread, which waits for its turn.

    Thread-safety: any thread may call `run`, one call is done after the other.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._server: _Server | None = None
        self._servers: list[_Server] = []
        """All threads that may still run, those that are to end included."""
        self._guard = threading.Lock()
        self.turn = threading.Lock()
        """Held by the thread that is at work."""
        self.served = threading.local()
        """Has an attribute in the threads of this worker: what they ask for, they do."""

    def run(self, call: Callable[[], Value]) -> Value:
        """Call a function to its end, and return what it returns or raise what it raises.

        An exception that comes from elsewhere while it runs is raised when the function has ended;
        a second one at once, and the function goes on.
        """
        if hasattr(self.served, "is_worker"):
            return call()
        work = HandedCall(call)
        try:
            self._hand_over(work)
        except BaseException as error:
            # Why again: the exception may have come before the call was handed over. A call that
            # is handed over twice is made once.
            self._hand_over(work)
            cause = error.__context__
            # Why: one that comes inside a Condition of the standard library may become this.
            if isinstance(error, RuntimeError) and cause is not None:
                raise cause from None
            raise
        return work.result()

    def _hand_over(self, work: HandedCall[Value]) -> None:
        """Have a thread make a call, and wait for its end."""
        while not work.is_done:
            server = self._server or self._start()
            if server is None:
                work.run()
                return
            server.work.put(work)
            self._await(work, server)

    def _await(self, work: HandedCall[Value], server: _Server) -> None:
        """Wait for work to end; return too if the thread ended before it had begun.

        Why the second: an exception may leave a thread that was told to end as the one in use.
        """
        while not work.is_done and not work.gate.acquire(timeout=_STEP_S):
            if not server.may_be_there and not work.has_begun:
                self._forget(server)
                return

    def _forget(self, server: _Server) -> None:
        with self._guard:
            if self._server is server:
                self._server = None

    def end(self) -> None:
        """End the thread, and wait for it unless it is the caller; `run` makes a new one."""
        with self._guard:
            self._server = None
            # Those that were given up before they began are not waited for again.
            servers = [one for one in self._servers if one.has_begun or not one.is_given_up]
            self._servers = servers
            for server in servers:
                server.work.put(None)
        if hasattr(self.served, "is_worker"):
            return
        # Why all: one that has said that it ends may still be there for a moment.
        for server in servers:
            server.wait_end(_END_S)
        with self._guard:
            self._servers = [server for server in self._servers if server.may_be_there]

    def _start(self) -> _Server | None:
        with self._guard:
            if self._server is None:
                server = _Server(self._name, self)
                try:
                    # Order: known before it begins, so that `end` waits for it, whatever happens.
                    self._servers = [*self._servers, server]
                    server.thread.start()
                    self._server = server
                except BaseException as error:
                    server.work.put(None)  # it may have begun
                    if isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD):
                        # The interpreter is ending and makes no more threads.
                        server.has_ended = True
                        log.debug("no thread name=%s reason=%s", self._name, error)
                        return None
                    raise
            return self._server


def _serve(queue: "SimpleQueue[HandedCall[Any] | None]", turn: threading.Lock) -> None:
    """Do what is asked for until the end is."""
    while (work := queue.get()) is not None:
        with turn:
            work.run()
        del work
