"""PutFuture: the answer to a put that nobody waits for yet."""

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from rocketlake.store.api import PutReceipt

if TYPE_CHECKING:
    from collections.abc import Callable

_FINISHED: Final = "FINISHED"
_making: Final = threading.Lock()


class PutFuture(Future[PutReceipt]):
    """A future of `concurrent.futures` that costs little until somebody waits for it.

    Why: condition, lock and lists of a plain future take longer to make than the append that it
    answers. Here they are made for whoever waits, looks or wants to be called; most futures of a
    sender with many puts under way are answered before that.

    Thread-safety: as a plain future. Who answers it and who waits meet under one lock.
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
                self._made = threading.Condition()
            return self._made

    def answer(self, receipt: PutReceipt) -> None:
        """Complete the future with a receipt."""
        with _making:
            if self._made is None:
                # Order: who sees the state takes the result.
                self._result = receipt
                self._state = _FINISHED
                return
        self.set_result(receipt)

    def result(self, timeout: float | None = None) -> PutReceipt:
        """Return the receipt as soon as there is one, or raise what the put would raise."""
        if self._state == _FINISHED and self._result is not None:
            return self._result
        return super().result(timeout)

    def cancel(self) -> bool:
        """Refuse, always: the message has its place in the log and cannot be taken back."""
        return False
