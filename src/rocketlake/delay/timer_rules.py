"""TimerRules: the settings of the timer, and its slots."""

from typing import Final, Self

from msgspec import Struct

from rocketlake.format import layout
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import TIMER_TOPIC
from rocketlake.store.options import StoreOptions

TIMER_QUEUE: Final = QueueKey(TIMER_TOPIC, 0)
"""Where messages for a time wait."""

_WINDOW_MAX: Final = layout.WHEEL_SLOTS // 2 - 60  # TimerMessageStore#TIMER_BLANK_SLOTS


class TimerRules(Struct, frozen=True, kw_only=True):
    """The settings of the timer, in its units."""

    precision_ms: int = 1000
    max_delay_ms: int = 259_200_000
    roll_window_slots: int = 172_800
    congest_max: int = layout.MAX_I32
    flush_interval_ms: int = 1000
    log_file_size: int = layout.DEFAULT_TIMER_LOG_FILE_SIZE

    @classmethod
    def of(cls, options: StoreOptions) -> Self:
        """Convert the options of a store."""
        window = options.timer_roll_window_slot
        return cls(
            precision_ms=options.timer_precision_ms,
            max_delay_ms=options.timer_max_delay_sec * 1000,
            # Compat: as the constructor of TimerMessageStore.
            roll_window_slots=window if 2 <= window <= _WINDOW_MAX else _WINDOW_MAX,
            congest_max=options.timer_congest_num_each_slot,
            flush_interval_ms=options.timer_flush_interval_ms,
            log_file_size=options.mapped_file_size_timer_log,
        )

    def floor(self, time_ms: int) -> int:
        """Return the start of the slot of a time."""
        return time_ms // self.precision_ms * self.precision_ms

    def slot_time(self, due_ms: int, write_time: int) -> tuple[int, bool]:
        """Return the slot of a message, and whether it is rolled: entered again later.

        Compat: as TimerMessageStore#doEnqueue; a message must not be further ahead than one turn of
        the wheel.
        """
        window_ms = self.roll_window_slots * self.precision_ms
        ahead_ms = due_ms - write_time
        if ahead_ms < window_ms:
            return due_ms, False
        if ahead_ms - window_ms < self.roll_window_slots // 3 * self.precision_ms:
            return write_time + self.roll_window_slots // 2 * self.precision_ms, True
        return write_time + window_ms, True
