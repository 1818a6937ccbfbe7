"""StatsSampler: looks at the counters once a second, for the rates."""

from typing import Final

from rocketlake.clock import Clock
from rocketlake.files.background_service import BackgroundService
from rocketlake.store.stats.store_stats import StoreStats

_INTERVAL_S: Final = 1.0


class StatsSampler(BackgroundService):
    """Takes a sample of a store's counters every second."""

    def __init__(self, stats: StoreStats, clock: Clock) -> None:
        super().__init__("rocketlake-stats", is_daemon=True)
        self._stats = stats
        self._clock = clock

    def pause_s(self) -> float:
        """Wait a second."""
        return _INTERVAL_S

    def run_once(self) -> None:
        """Take a sample."""
        self._stats.sample(self._clock.now_ms())
