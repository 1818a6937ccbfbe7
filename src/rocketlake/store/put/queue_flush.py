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
    """Flushes the queues from time to time, thoroughly and with the checkpoint more seldom.

    A thorough round is due as well when the log has begun a few files since the last one, but the
    service rests many times as long as such a round took: where files are filled faster than queues
    are flushed, the disk belongs to the puts.
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
        """`reached` tells the record of the last unit; `save` learns that the unit is on disk."""
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
        """Be told that the log begins another file."""
        self._rolls += 1
        if self._rolls == _ROLLS_MAX:
            self.wakeup()

    def pause_s(self) -> float:
        """Wait for the next round."""
        return self._schedule.interval_s

    def run_once(self) -> None:
        """Flush what is worth it; after a thorough round the checkpoint can speak of it."""
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
