"""The table of delay levels."""

from msgspec import Struct

from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.options.delay_levels import delay_of


class DelayLevels(Struct, frozen=True):
    """The delay of each level; level 1 is the first, in queue 0."""

    delays_ms: tuple[int, ...]

    @property
    def max_level(self) -> int:
        """The highest level; 0 if there is none."""
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """Return the level, at most the highest."""
        return min(level, self.max_level)

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level; that of the highest for one beyond the table."""
        return delay_of(self.delays_ms, level)

    def due(self, level: int, store_timestamp: int) -> int:
        """Return when a message stored at a time is due."""
        return store_timestamp + self.delay_ms(level)

    def correct_due(self, level: int, due: int, now_ms: int) -> int:
        """Return when to deliver: now, if `due` is further away than the delay of the level.

        That happens after the clock was set back or the table was changed.
        """
        return now_ms if due > now_ms + self.delay_ms(level) else due


def queue_of(level: int) -> QueueKey:
    """Return the queue where messages of a level wait."""
    return QueueKey(SCHEDULE_TOPIC, level - 1)
