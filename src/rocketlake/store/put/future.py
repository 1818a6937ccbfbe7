"""PutFuture: the answer to a put that nothing waits for yet.

1. The thread that answers takes no lock that a caller may hold: an exception that a signal handler
   raises inside `concurrent.futures` or `threading` can leave such a lock taken for ever, and that
   thread answers all other puts too. An answer is one step (`dict.setdefault`). A waiter
   registers first and looks for the answer then, so that one of the two sees the other.
2. `concurrent.futures.wait` and `as_completed` hold the future's condition while they look at its
   state. Once one of them has come, the state changes under that lock, on the thread of callbacks.
3. Callbacks are code of the caller, and run on a thread of their own: they may put, wait, close the
   store, or raise what they like.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as WaitTimeoutError
from contextlib import suppress
from typing import Any, Final, TypeAlias

from rocketlake.store.api import PutReceipt, PutStatus

log = logging.getLogger(__name__)

OnFailure: TypeAlias = Callable[[PutReceipt], BaseException]
"""Makes the error of a put whose receipt is not PUT_OK."""
Callback: TypeAlias = Callable[[Future[PutReceipt]], object]

_Answer: TypeAlias = tuple[PutReceipt | None, BaseException | None]

_OK: Final = PutStatus.PUT_OK
_FINISHED: Final = "FINISHED"
_LOCK_S: Final = 0.1
_making: Final = threading.Lock()


class PutFuture(Future[PutReceipt]):
    """A future of `concurrent.futures` that costs little until it is waited for.

    Why: condition, lock and lists of a plain future take longer to make than the append that it
    answers. Here they are made at the first wait, look or callback; most futures of a sender with
    many puts under way are answered before that.

    Thread-safety: as a plain future. A wait can be interrupted by an exception at any moment, and
    the thread that answers does not notice.
    """

    on_failure: OnFailure | None = None
    """Set before a caller has the future: `result` raises, and `exception` returns, what it makes
    of a receipt that is not PUT_OK. Without it the receipt is the result, whatever its status.

    Why: applied when the result is read, so that a put that succeeds pays one assignment for it.
    """

    def __init__(self) -> None:  # pyright: ignore[reportMissingSuperCall] - it makes what is left out
        self._state = "PENDING"

    # --- the answer ------------------------------------------------------------------------------

    def answer(self, receipt: PutReceipt) -> None:
        """Complete the future with a receipt; a second answer has no effect."""
        self._complete((receipt, None))

    def set_result(self, result: PutReceipt) -> None:
        """Complete the future with a receipt.

        Raises:
            InvalidStateError: it was completed before.
        """
        if not self._complete((result, None)):
            raise InvalidStateError(f"{self._state}: {self!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        """Complete the future with an error.

        Raises:
            InvalidStateError: it was completed before.
        """
        if not self._complete((None, exception)):
            raise InvalidStateError(f"{self._state}: {self!r}")

    def _complete(self, answer: _Answer) -> bool:
        if self.__dict__.setdefault("_answer", answer) is not answer:
            return False
        # Order: after the answer, which a later caller looks for.
        waits: _Waits | None = self.__dict__.get("_waits")
        if waits is None:
            self.show_finished()
        else:
            waits.tell(self)
        return True

    def show_finished(self) -> None:
        """Let the functions of `concurrent.futures` see that there is an answer."""
        self._state = _FINISHED

    # --- looking ---------------------------------------------------------------------------------

    def done(self) -> bool:
        """Tell whether there is an answer."""
        return "_answer" in self.__dict__

    def running(self) -> bool:
        """Tell that it is not: a put is under way or done."""
        return False

    def cancelled(self) -> bool:
        """Tell that it is not: it cannot be."""
        return False

    def cancel(self) -> bool:
        """Refuse, always: the message has its place in the log and cannot be taken back."""
        return False

    def result(self, timeout: float | None = None) -> PutReceipt:
        """Return the receipt as soon as there is one, or raise what the put would raise."""
        receipt, error = self._await(timeout)
        if error is not None:
            raise error
        assert receipt is not None, "an answer is a receipt or an error"
        if receipt.status is not _OK and self.on_failure is not None:
            raise self.on_failure(receipt)
        return receipt

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what `result` would raise; None if it would return a receipt."""
        receipt, error = self._await(timeout)
        if receipt is None or receipt.status is _OK or self.on_failure is None:
            return error
        return self.on_failure(receipt)

    def _await(self, timeout: float | None) -> _Answer:
        """Wait until the future is done, and return its answer.

        Raises:
            TimeoutError: the time is over.
        """
        if "_answer" not in self.__dict__:
            gate = threading.Lock()
            gate.acquire()
            self.call_at_answer(gate.release)
            if not gate.acquire(timeout=-1 if timeout is None else max(timeout, 0.0)):
                raise WaitTimeoutError
        answer: _Answer = self.__dict__["_answer"]
        return answer

    # --- callbacks -------------------------------------------------------------------------------

    def call_at_answer(self, call: Callable[[], object]) -> None:
        """Have something called in the thread that answers; it must not wait, and not raise."""
        waits = self._noted()
        waits.calls.append(call)
        if "_answer" in self.__dict__:
            waits.run_calls()

    def add_done_callback(self, fn: Callback) -> None:
        """Have a function called with the future when it is done: soon, or now if it is.

        It is called by a thread that does nothing else, in the order of the answers.
        """
        waits = self._noted()
        waits.callbacks.append(fn)
        if "_answer" in self.__dict__:
            waits.run_callbacks(self)

    def _noted(self) -> "_Waits":
        found: _Waits = self.__dict__.setdefault("_waits", _Waits())
        return found

    # --- what the functions of concurrent.futures use --------------------------------------------

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # made when needed
        return self._noted().make_condition(self)

    @property
    def _waiters(self) -> "_Waiters":  # type: ignore[override]  # made when needed
        return self._noted().waiters

    @property
    def _result(self) -> PutReceipt | None:  # type: ignore[override]  # for its text
        answer: _Answer = self.__dict__.get("_answer", (None, None))
        return answer[0]

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]  # for its text
        answer: _Answer = self.__dict__.get("_answer", (None, None))
        return answer[1]


class _Waiters(list[Any]):
    """The waiters of `concurrent.futures.wait` and `as_completed`."""

    def append(self, waiter: Any) -> None:  # noqa: ANN401 - of a private class of the library
        """Note a waiter.

        Why another event: an exception inside `Event.wait` may leave the lock of a plain event
        taken, and the thread that completes the future would wait for it.
        """
        if not isinstance(waiter.event, _GateEvent):
            waiter.event = _GateEvent()
        super().append(waiter)


class _Waits:
    """What waits for one future. The thread that makes a call removes it first: it is made once."""

    __slots__ = ("_condition", "callbacks", "calls", "waiters")

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()
        self.callbacks: deque[Callback] = deque()
        self.waiters = _Waiters()
        self._condition: threading.Condition | None = None

    def make_condition(self, future: PutFuture) -> threading.Condition:
        """Return what `wait` and `as_completed` hold while they look at the state."""
        with _making:
            if self._condition is None:
                self._condition = threading.Condition()
                # Order: made first, then looked. An answer that comes later sees the condition, and
                # the state changes under its lock; one that came before is seen here.
                if future.done():
                    future.show_finished()
            return self._condition

    def tell(self, future: PutFuture) -> None:
        """Tell all that an answer is there; nothing that a caller does can hold this up."""
        self.run_calls()
        with _making:
            condition = self._condition
            if condition is None:
                future.show_finished()
        if condition is not None or self.callbacks:
            callback_thread.run_soon(lambda: self._tell_callers(future, condition))

    def _tell_callers(self, future: PutFuture, condition: threading.Condition | None) -> None:
        if condition is not None:
            # Why a limit: an exception inside `wait` may have left the lock taken for ever.
            is_held = condition.acquire(timeout=_LOCK_S)
            try:
                future.show_finished()
                failed = future.exception() is not None
                for waiter in list(self.waiters):
                    (waiter.add_exception if failed else waiter.add_result)(future)
            finally:
                if is_held:
                    condition.release()
        self.run_callbacks(future)

    def run_calls(self) -> None:
        """Make the calls that are not made yet."""
        with suppress(IndexError):  # there are no more
            while True:
                self.calls.popleft()()

    def run_callbacks(self, future: PutFuture) -> None:
        """Call what is to be called; what it raises is logged, as by a plain future."""
        while True:
            try:
                callback = self.callbacks.popleft()
            except IndexError:
                return
            try:
                callback(future)
            except Exception:  # it is the caller's own
                log.exception("callback of a put failed callback=%r", callback)


class _GateEvent:
    """As `threading.Event`; but a wait that an exception ends leaves nothing locked.

    Thread-safety: any thread; each wait has a lock of its own, which `set` releases.
    """

    __slots__ = ("_gates", "_is_set")

    def __init__(self) -> None:
        self._gates: deque[threading.Lock] = deque()
        self._is_set = False

    def is_set(self) -> bool:
        """Tell whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Wake all that wait."""
        self._is_set = True
        with suppress(IndexError):  # another thread sets it, too
            for _ in range(len(self._gates)):
                self._gates.popleft().release()

    def clear(self) -> None:
        """Have the next wait wait."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; tell whether it is."""
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        # Order: registered first, then checked; a `set` in between releases the lock.
        if self._is_set:
            return True
        return gate.acquire(timeout=-1 if timeout is None else max(timeout, 0.0)) or self._is_set


class CallbackThread:
    """Runs callbacks in the order in which they come; the thread ends when there are no more.

    Thread-safety: any thread may call anything.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: deque[Callable[[], None]] = deque()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def run_soon(self, call: Callable[[], None]) -> None:
        """Have something called that may wait, but raises nothing."""
        self._work.append(call)
        with self._guard:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is ending and makes no more threads
                self._thread = None
        if self._thread is None:
            self._run()

    def wait_idle(self, timeout_s: float) -> None:
        """Return when what came so far was called, or the time is over; at once in the thread."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def forget(self) -> None:
        """Begin anew: the thread is not in a fork."""
        self._work = deque()
        self._guard = threading.Lock()
        self._thread = None

    def _run(self) -> None:
        while True:
            try:
                call = self._work.popleft()
            except IndexError:
                with self._guard:
                    # Order: looked at under the lock, under which others look for the thread.
                    if not self._work:
                        self._thread = None
                        return
                continue
            try:
                call()
            except BaseException:  # `sys.exit` in a callback ends no other one
                log.exception("callback of a put failed")


callback_thread: Final = CallbackThread("rocketlake-callbacks")
os.register_at_fork(after_in_child=callback_thread.forget)
