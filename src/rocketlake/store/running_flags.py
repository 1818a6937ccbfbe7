"""Why a store may not be read or written at the moment."""

import threading
from enum import IntFlag


class RunningFlag(IntFlag):
    """One reason each; the bits are the reference's."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


_NOT_READABLE = int(RunningFlag.NOT_READABLE)
_NOT_WRITABLE = sum(RunningFlag) - RunningFlag.NOT_READABLE
# A full disk or a fence stops puts; what is in the log is still dispatched.
_QUEUE_NOT_WRITABLE = _NOT_WRITABLE - RunningFlag.DISK_FULL - RunningFlag.FENCED


class RunningFlags:
    """The reasons that hold now.

    Thread-safety: changes take a lock; a question reads one integer.
    """

    __slots__ = ("_lock", "_words", "bits")

    def __init__(self) -> None:
        self.bits = 0
        self._words: dict[RunningFlag, str] = {}
        self._lock = threading.Lock()

    @property
    def is_readable(self) -> bool:
        """Tell whether messages may be read."""
        return not self.bits & _NOT_READABLE

    @property
    def is_writable(self) -> bool:
        """Tell whether messages may be put."""
        return not self.bits & _NOT_WRITABLE

    @property
    def is_queue_writable(self) -> bool:
        """Tell whether what is in the log may be dispatched to queues."""
        return not self.bits & _QUEUE_NOT_WRITABLE

    def has(self, flag: RunningFlag) -> bool:
        """Tell whether a reason holds."""
        return bool(self.bits & flag)

    def mark(self, flag: RunningFlag, words: str = "") -> bool:
        """Set a flag, with a text for it; return whether it was not set before."""
        with self._lock:
            if words:
                self._words = {**self._words, flag: words}
            before = self.bits
            self.bits = before | int(flag)
            return self.bits != before

    def clear(self, flag: RunningFlag) -> bool:
        """Let a reason no longer hold; tell whether it did before."""
        with self._lock:
            before = self.bits
            self.bits = before & ~int(flag)
            self._words = {other: text for other, text in self._words.items() if other != flag}
            return self.bits != before

    def explain(self) -> str:
        """Return the names of the set flags, and their texts."""
        words = [text for flag, text in sorted(self._words.items()) if self.bits & flag]
        return ": ".join([str(self), "; ".join(dict.fromkeys(words))] if words else [str(self)])

    def __str__(self) -> str:
        names = [str(flag.name) for flag in RunningFlag if self.bits & flag]
        return "|".join(names) or "OK"
