"""ManualClock: time that passes when a test says so."""


class ManualClock:
    """A Clock whose two kinds of time move together, and only by `advance_ms`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._passed_ms = 0

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        return self._now_ms + self._passed_ms

    def now_ns(self) -> int:
        """Return Unix nanoseconds."""
        return self.now_ms() * 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds since an unknown moment."""
        return 1000.0 + self._passed_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.advance_ms(round(seconds * 1000))

    def advance_ms(self, count: int) -> None:
        """Let time pass."""
        self._passed_ms += count
