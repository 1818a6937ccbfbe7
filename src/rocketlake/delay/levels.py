"""The table of delay levels."""

from msgspec import Struct

from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.options.delay_levels import delay_of


class DelayLevels(Struct, frozen=True):
    """How long each level waits; level 1 is the first and waits in queue 0."""

    delays_ms: tuple[int, ...]

    @property
    def max_level(self) -> int:
        """The highest level; 0 if there is none."""
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """Return the level, or the highest one if it is beyond that."""
        return min(level, self.max_level)

    def delay_ms(self, level: int) -> int:
        """Return how long a level waits; one beyond the table as long as the highest."""
        return delay_of(self.delays_ms, level)

    def due(self, level: int, store_timestamp: int) -> int:
        """Return when a message that was stored at this time is to be delivered."""
        return store_timestamp + self.delay_ms(level)

    def correct_due(self, level: int, due: int, now_ms: int) -> int:
        """Return the time to deliver at: now, if it is further away than the level waits.

        The clock was set back then, or the table was changed.
        """
        return now_ms if due > now_ms + self.delay_ms(level) else due


def queue_of(level: int) -> QueueKey:
    """Return the queue where messages of a level wait."""
    return QueueKey(SCHEDULE_TOPIC, level - 1)
