"""PutFuture: the answer to a put that nothing waits for yet."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as WaitTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from rocketlake.store.api import PutReceipt, PutStatus

OnFailure: TypeAlias = Callable[[PutReceipt], BaseException]
"""Makes the error of a put whose receipt is not PUT_OK."""

_OK: Final = PutStatus.PUT_OK
_FINISHED: Final = "FINISHED"
_making: Final = threading.Lock()


class _WholeCondition(threading.Condition):
    """A condition whose `with` block an exception cannot enter by half.

    Why: `Condition.__enter__` is Python code, and a signal handler may raise between its taking
    the lock and its return: the block is left, the lock stays taken, and the thread that answers
    the future waits for it forever. Here a `with` block finds the lock's own methods, which are no
    Python code.
    """

    if not TYPE_CHECKING:
        __enter__ = property(lambda self: self._lock.__enter__)
        __exit__ = property(lambda self: self._lock.__exit__)


class PutFuture(Future[PutReceipt]):
    """A future of `concurrent.futures` that costs little until it is waited for.

    Why: condition, lock and lists of a plain future take longer to make than the append that it
    answers. Here they are made at the first wait, look or callback; most futures of a sender with
    many puts under way are answered before that.

    Thread-safety: as a plain future. An answer and a wait meet under one lock. A wait can be
    interrupted by an exception at any moment, and the thread that answers does not notice.
    """

    on_failure: OnFailure | None = None
    """Set before a caller has the future: `result` raises, and `exception` returns, what it makes
    of a receipt that is not PUT_OK. Without it the receipt is the result, whatever its status.

    Why: applied by who reads, so that a put that succeeds pays one assignment for it.
    """

    def __init__(self) -> None:  # pyright: ignore[reportMissingSuperCall] - it makes what is left out
        self._state = "PENDING"
        self._result: PutReceipt | None = None
        self._exception: BaseException | None = None
        self._made: threading.Condition | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # made when needed
        with _making:
            if self._made is None:
                self._waiters = []
                self._done_callbacks: list[Callable[[Future[PutReceipt]], object]] = []
                self._made = _WholeCondition()
            return self._made

    def answer(self, receipt: PutReceipt) -> None:
        """Complete the future with a receipt; a second answer is not heard."""
        with _making:
            if self._made is None:
                # Order: who sees the state takes the result.
                self._result = receipt
                self._state = _FINISHED
                return
        with suppress(InvalidStateError):
            self.set_result(receipt)

    def result(self, timeout: float | None = None) -> PutReceipt:
        """Return the receipt as soon as there is one, or raise what the put would raise."""
        if self._state != _FINISHED:
            self._await(timeout)
        receipt = self._result
        if receipt is None:
            return super().result()
        if receipt.status is not _OK and self.on_failure is not None:
            raise self.on_failure(receipt)
        return receipt

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what `result` would raise; None if it would return a receipt."""
        if self._state != _FINISHED:
            self._await(timeout)
        receipt = self._result
        if receipt is None:
            return super().exception()
        if receipt.status is _OK or self.on_failure is None:
            return None
        return self.on_failure(receipt)

    def cancel(self) -> bool:
        """Refuse, always: the message has its place in the log and cannot be taken back."""
        return False

    def _await(self, timeout: float | None) -> None:
        """Wait until the future is done.

        Why not as a plain future waits: `Condition.wait` gives its lock back and takes it again,
        in Python code that an exception may leave in between. The gate belongs to this wait alone.

        Raises:
            TimeoutError: the time is over.
        """
        gate = threading.Lock()
        gate.acquire()
        self.add_done_callback(lambda _: gate.release())
        if not gate.acquire(timeout=-1 if timeout is None else max(timeout, 0.0)):
            raise WaitTimeoutError
