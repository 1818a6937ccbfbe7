"""LevelScheduler: delivers the messages of all delay levels [ScheduleMessageService]."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.delay.levels import DelayLevels, queue_of
from rocketlake.delay.redelivery import Redelivery, real_queue
from rocketlake.delay.store_access import DelayStore, Usage
from rocketlake.errors import StoreError
from rocketlake.files.background_service import BackgroundService
from rocketlake.format import layout
from rocketlake.format.queue_unit import QueueUnit, is_ext_address
from rocketlake.format.record import StoredMessage
from rocketlake.metadata.offsets import DelayOffsets
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import HALF_TOPIC
from rocketlake.store.ports import Arrival

log = logging.getLogger(__name__)

_TURN: Final = 256  # messages of one level before the next level
_RETRY_MS: Final = 100
_RETRY_MAX_MS: Final = 1_000
# Why: pauses are measured without the wall clock, which may be set forward meanwhile.
_PAUSE_MAX_MS: Final = 10_000


class LevelRules(Struct, frozen=True, kw_only=True):
    """The settings of the level scheduler."""

    levels: DelayLevels
    flush_interval_ms: int = 10_000
    is_4x: bool = False
    notes_waiting: bool = True
    """Whether to write the progress of a level that has delivered nothing yet. 4.9: false."""


class _Level:
    """The state of one level. The scheduler's thread owns it; any thread reads `end`, `wake_at`.

    `wake_at` is the time of the next work; None: when a message arrives after `end`. `due` is the
    time of the next delivery, if known.
    """

    __slots__ = ("due", "end", "failures", "key", "number", "offset", "wake_at")

    def __init__(self, number: int, offset: int) -> None:
        self.number = number
        self.key = queue_of(number)
        self.offset = offset
        self.end = -1
        self.wake_at: int | None = 0
        self.due: int | None = None
        self.failures = 0


class LevelScheduler(BackgroundService):
    """Puts each message into its real queue when the delay of its level is over.

    All levels share one thread and take turns, so that a full level does not delay the others. The
    thread sleeps until the next message is due. A failed put is retried, and delays only its own
    level; a record that was deleted is skipped.

    Thread-safety: any thread may call `arrived`; the rest belongs to the thread of the service.

    Durability: progress is written periodically and at the end; the table flushes the delivered
    messages first (metadata.book). After a crash, messages without written progress are delivered
    again.
    """

    def __init__(
        self,
        store: DelayStore,
        clock: Clock,
        offsets: DelayOffsets,
        rules: LevelRules,
        *,
        usage: Usage,
    ) -> None:
        super().__init__("delay levels", is_daemon=True)
        self._store = store
        self._clock = clock
        self._offsets = offsets
        self._usage = usage
        self._table = rules.levels
        self._redelivery = Redelivery(rules.is_4x)
        self._flush_interval_ms = rules.flush_interval_ms
        self._notes_waiting = rules.notes_waiting
        self._levels = [
            _Level(number, offsets.get(number)) for number in range(1, self._table.max_level + 1)
        ]
        self._persist_at: int | None = None

    def cap_progress(self, end_of: Callable[[QueueKey], int]) -> list[str]:
        """Set progress beyond the end of a level's queue to that end, on the disk; return notes.

        Called before the start and before the first put: later, a crash between the first new
        message and the next write of the table would leave progress that skips the message.

        Raises:
            RocketLakeError: the table cannot be written.
        """
        found = self._offsets.cap_progress(lambda level: end_of(queue_of(level)))
        for level in self._levels:
            level.offset = self._offsets.get(level.number)
        self._offsets.persist()
        return [
            f"delay level {level} was delivered up to {offset}, its queue ends at {end}: it goes"
            f" on at {end}"
            for level, (offset, end) in sorted(found.items())
        ]

    # --- any thread ------------------------------------------------------------------------------

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake up if a message arrived for an idle level.

        Why: reads the ends of the queues, since each arrival object would have to be made.
        """
        if self._usage.has_levels and self._has_grown():
            self.wakeup()

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return for each level with messages the next queue offset and the end of its queue."""
        found = {
            level.number: (level.offset, self._store.dispatched_bounds(level.key)[1])
            for level in self._levels
        }
        return {number: (offset, end) for number, (offset, end) in found.items() if end}

    @property
    def waiting_count(self) -> int:
        """How many messages wait."""
        return sum(max(end - offset, 0) for offset, end in self.progress().values())

    @property
    def behind_ms(self) -> int:
        """How long the oldest known message is overdue; 0 if none is."""
        due = [level.due for level in self._levels if level.due is not None]
        return max(self._clock.now_ms() - min(due), 0) if due else 0

    # --- BackgroundService -----------------------------------------------------------------------

    def run_once(self) -> None:
        """Deliver all due messages, and write the progress if it is time."""
        is_busy = True
        while is_busy and not self.is_closing:
            turns = [self._run_level(level) for level in self._levels]
            # Order: checked again after all levels know their ends, since `arrived` may have run
            # before.
            is_busy = any(turns) or self._has_grown()
        now = self._clock.now_ms()
        if self._persist_at is None and self._offsets.is_dirty:
            self._persist_at = now + self._flush_interval_ms
        if self._persist_at is not None and now >= self._persist_at:
            self._persist_at = now + self._flush_interval_ms
            self._persist()

    def run_last(self) -> None:
        """Write the progress; due messages are delivered after the next start."""
        self._persist()

    def pause_s(self) -> float | None:
        """Return the time until the next work; None: until woken."""
        times = [level.wake_at for level in self._levels if level.wake_at is not None]
        if self._persist_at is not None:
            times.append(self._persist_at)
        if not times:
            return None
        return min(max(min(times) - self._clock.now_ms(), 0), _PAUSE_MAX_MS) / 1000

    # --- private ---------------------------------------------------------------------------------

    def _has_grown(self) -> bool:
        return any(
            level.wake_at is None and self._store.dispatched_bounds(level.key)[1] != level.end
            for level in self._levels
        )

    def _run_level(self, level: _Level) -> bool:
        """Deliver due messages of one level, up to one turn; tell whether more are due now."""
        if level.wake_at is not None and level.wake_at > self._clock.now_ms():
            return False
        # Order: the end before the units, so that a message arriving between them counts as growth.
        start, level.end = self._store.dispatched_bounds(level.key)
        if not start <= level.offset <= level.end:
            self._correct(level, start)
        if level.end:
            self._usage.has_levels = True
        if level.offset == level.end:
            level.wake_at = None
            return False
        units = self._store.queue_units(level.key, level.offset, _TURN).tolist()
        for offset, size, tags_code in units:
            if self.is_closing or not self._run_unit(level, QueueUnit(offset, size, tags_code)):
                return False
        if not units:
            level.wake_at = self._clock.now_ms() + _RETRY_MS  # its file is being deleted
        return bool(units)

    def _run_unit(self, level: _Level, unit: QueueUnit) -> bool:
        """Deliver one message; False if it is not due, or could not be put."""
        offset, size = unit.physical_offset, unit.size
        now = self._clock.now_ms()
        level.due = due = self._due(level, unit, now)
        if due > now:
            level.wake_at = due
            if self._notes_waiting:
                self._offsets.set(level.number, level.offset)
            return False
        message = None if size == layout.PREFILL_SIZE else self._store.message_at(offset, size)
        if message is None:
            log.warning(
                "delayed message is gone level=%d queue_offset=%d physical_offset=%d",
                level.number,
                level.offset,
                offset,
            )
        elif not self._deliver(level, message):
            level.failures += 1
            level.wake_at = now + min(_RETRY_MS << min(level.failures - 1, 9), _RETRY_MAX_MS)
            return False
        level.failures = 0
        level.wake_at = 0
        level.due = None
        level.offset += 1
        self._offsets.set(level.number, level.offset)
        return True

    def _due(self, level: _Level, unit: QueueUnit, now: int) -> int:
        due = unit.tags_code
        if is_ext_address(due):
            message = self._store.message_at(unit.physical_offset, unit.size)
            due = 0 if message is None else self._table.due(level.number, message.store_timestamp)
        return self._table.correct_due(level.number, due, now)

    def _deliver(self, level: _Level, message: StoredMessage) -> bool:
        """Put a message into its real queue; True also if it has none."""
        target = real_queue(message.properties)
        if target is None or target.topic == HALF_TOPIC:
            log.error(
                "delayed message has no real topic level=%d queue_offset=%d physical_offset=%d",
                level.number,
                level.offset,
                message.physical_offset,
            )
            return True
        request = self._redelivery.request(message, target, message.properties)
        try:
            receipt = self._store.put(request)
        except (StoreError, ValueError) as error:
            self._log_failure(level, str(error))
            return False
        if not receipt.is_ok:
            self._log_failure(level, f"{receipt.status} {receipt.reason}")
            return False
        return True

    def _log_failure(self, level: _Level, reason: str) -> None:
        if level.failures & (level.failures + 1) == 0:  # the 1st, 2nd, 4th, 8th … in a row
            log.warning(
                "delayed message could not be put level=%d queue_offset=%d times=%d reason=%s",
                level.number,
                level.offset,
                level.failures + 1,
                reason,
            )

    def _correct(self, level: _Level, start: int) -> None:
        right = start if level.offset < start else level.end
        log.warning(
            "progress of delay level corrected level=%d from=%d to=%d",
            level.number,
            level.offset,
            right,
        )
        level.offset = right
        self._offsets.set(level.number, right)

    def _persist(self) -> None:
        self._offsets.persist()
        self._persist_at = None
