"""Flush of the queues, and of the checkpoint behind it [FlushConsumeQueueService]."""

import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.files.background_service import BackgroundService
from rocketlake.store.put.flush import FlushSchedule
from rocketlake.store.queue.queue_set import ConsumeQueueSet

# Why: after a power cut RocketMQ 5.5 makes units of the last ten files of the log only.
_ROLLS_MAX: Final = 4
_REST: Final = 20


class Reached(Struct, frozen=True):
    """The last record that has its units."""

    timestamp: int
    """Its store time; 0 if there is none."""
    physical_offset: int = 0
    """Where it begins; 0 if that is not known."""


class QueueFlush(BackgroundService):
    """Flushes the queues periodically, and less often completely, with the checkpoint.

    A complete round is also due when the log has begun a few files since the last one. After it the
    service rests many times as long as the round took: where files fill faster than queues are
    flushed, puts have priority.
    """

    def __init__(
        self,
        queues: ConsumeQueueSet,
        reached: Callable[[], Reached],
        save: Callable[[Reached], None],
        *,
        schedule: FlushSchedule,
        clock: Clock,
    ) -> None:
        """`reached` returns the record of the last unit, `save` is called once it is on disk."""
        super().__init__("rocketlake-queue-flush", is_daemon=True)
        self._queues = queues
        self._reached = reached
        self._save = save
        self._schedule = schedule
        self._clock = clock
        self._thorough_at_s = clock.monotonic_s()
        self._rested_at_s = self._thorough_at_s
        self._rolls = 0
        self.turn = threading.Lock()
        """Held while queues are flushed for the checkpoint."""

    def note_roll(self) -> None:
        """Count a new file of the log."""
        self._rolls += 1
        if self._rolls == _ROLLS_MAX:
            self.wakeup()

    def pause_s(self) -> float:
        """Wait for the next round."""
        return self._schedule.interval_s

    def run_once(self) -> None:
        """Flush the queues that have enough new pages, or all of them and the checkpoint."""
        now_s = self._clock.monotonic_s()
        has_rolled = self._rolls >= _ROLLS_MAX and now_s >= self._rested_at_s
        if not has_rolled and now_s < self._thorough_at_s + self._schedule.thorough_s:
            self._queues.flush(self._schedule.least_pages)
            return
        self._thorough_at_s = now_s
        self._rolls = 0  # Order: before the round, which does not cover what comes during it
        self.run_last()
        ended_s = self._clock.monotonic_s()
        self._rested_at_s = ended_s + _REST * (ended_s - now_s)

    def run_last(self) -> None:
        """Flush everything, then the checkpoint."""
        with self.turn:
            # Order: read before the flush, so that it speaks of a unit that is covered.
            reached = self._reached()
            self._queues.flush(0)
            self._save(reached)
