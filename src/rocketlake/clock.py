"""The time, passed in as an argument; the only caller of time.time()."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where every other module gets the time from."""

    def now_ms(self) -> int:
        """Return Unix milliseconds, as records carry them."""
        ...

    def now_ns(self) -> int:
        """Return Unix nanoseconds: the same time, cheaper to ask for."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards, for waiting."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        ...


class SystemClock:
    """The machine's clock."""

    now_ns = staticmethod(time.time_ns)  # called without a frame of ours

    def now_ms(self) -> int:
        """Return Unix milliseconds, as records carry them."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards, for waiting."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)
