"""HandedCall: a call that one thread makes for another, and its outcome."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

Value = TypeVar("Value")


class HandedCall(Generic[Value]):
    """A call handed to another thread; the caller waits for `gate` and then takes `result`.

    Why a lock of its own and no Condition: an exception may end the wait at any moment, and leaves
    nothing locked that another thread needs.
    """

    __slots__ = ("_call", "_error", "_value", "gate", "has_begun", "is_done")

    def __init__(self, call: Callable[[], Value]) -> None:
        self._call = call
        self._value: Value | None = None
        self._error: BaseException | None = None
        self.has_begun = False
        self.is_done = False
        self.gate = threading.Lock()
        self.gate.acquire()

    def run(self) -> None:
        """Make the call, keep its outcome, and open the gate; nothing if that was done before.

        Thread-safety: one thread at a time.
        """
        if self.has_begun:
            return
        self.has_begun = True
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self._error = error
        finally:
            self.is_done = True
            self.gate.release()

    def result(self) -> Value:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return cast(Value, self._value)
