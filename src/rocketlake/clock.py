"""The time, as a thing that is passed in; the only caller of time.time()."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where every other module gets the time from."""

    def now_ms(self) -> int:
        """Return Unix milliseconds, as records carry them."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards, for waiting."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return Unix milliseconds, as records carry them."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards, for waiting."""
        return time.monotonic()
