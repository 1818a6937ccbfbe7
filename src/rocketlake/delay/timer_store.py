"""TimerStore: delivers messages at an arbitrary time [TimerMessageStore].

1. A message waits in the timer topic. Its unit is written to the timer log and to the slot of its
   time; a slot is delivered when it is over.
2. A message too far ahead is entered into a nearer slot, and put into the topic again from there.
3. A message whose slot is already over is delivered at once.
"""

import heapq
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from rocketlake.clock import Clock
from rocketlake.delay.redelivery import parse_number
from rocketlake.delay.store_access import DelayStore, Usage
from rocketlake.delay.timer_delivery import SlotWork, TimerDelivery
from rocketlake.delay.timer_files import TimerFiles
from rocketlake.delay.timer_recovery import TimerStart, rebuild, recover
from rocketlake.delay.timer_rules import TIMER_QUEUE, TimerRules
from rocketlake.errors import CorruptRecordError, StoreError
from rocketlake.files.background_service import BackgroundService
from rocketlake.format import layout
from rocketlake.format.record import StoredMessage
from rocketlake.format.timer import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    TimerCheckpoint,
    TimerUnit,
)
from rocketlake.metadata.timer_metrics import TimerMetrics
from rocketlake.model import properties as names
from rocketlake.model.hashes import java_hash
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import NO_OFFSET
from rocketlake.store.ports import Arrival

log = logging.getLogger(__name__)

_TURN: Final = 256  # messages entered before slots are checked again
_RETRY_MS: Final = 100
_RETRY_MAX_MS: Final = 1_000
_PAUSE_MAX_MS: Final = 10_000  # the wall clock may be set forward meanwhile
_METRICS_INTERVAL_MS: Final = 10_000
_CLEAN_INTERVAL_MS: Final = 30_000


class TimerStore(BackgroundService):
    """Keeps messages until their time, and puts them into their real queues then.

    It sleeps until the next slot is over, and creates its files for the first message. A failed put
    is retried and delays later messages; a record that was deleted, or that the store always
    refuses, is skipped. `close` waits for the slot being delivered.

    Thread-safety: any thread may call `arrived` and `is_rejected`; the rest belongs to the thread
    of the service.

    Durability: units, slots and progress are written periodically and at the end; TimerFiles
    flushes the delivered messages first. After a crash, unwritten work is done again.
    """

    def __init__(
        self,
        store: DelayStore,
        clock: Clock,
        files: TimerFiles,
        rules: TimerRules,
        *,
        metrics: TimerMetrics,
        usage: Usage,
    ) -> None:
        super().__init__("timer", is_daemon=True)
        self._store = store
        self._clock = clock
        self._files = files
        self._rules = rules
        self._metrics = metrics
        self._usage = usage
        self._delivery = TimerDelivery(store, clock, metrics)
        self._random = random.Random()  # noqa: S311 - spreads refusals, guards nothing
        self._start: TimerStart | None = None
        self._queue_offset = 0
        self._seen_end = 0
        self._write_time = 0
        self._waiting: list[int] = []  # times of slots that are not delivered, a heap
        self._is_waiting: set[int] = set()  # the same times
        self._work: SlotWork | None = None
        self._retry_at: int | None = None
        self._flush_at: int | None = None
        self._metrics_at = 0
        self._clean_at = 0

    def load(self) -> None:
        """Open the files of an earlier run, if any; otherwise wait for the first message.

        Raises:
            StoreError: a file cannot be used.
        """
        if self._start is None and self._files.exist:
            self._open(self._clock.now_ms())

    def cap_progress(self, end_of: Callable[[QueueKey], int]) -> list[str]:
        """Set progress beyond the end of the timer queue to that end, on the disk; return notes.

        Called before `load` and before the first put (LevelScheduler.cap_progress says why).

        Raises:
            RocketLakeError: the checkpoint of the timer cannot be read or written.
        """
        end = end_of(TIMER_QUEUE)
        found = self._files.cap_progress(end)
        if found is None:
            return []
        return [f"the timer was at {found} of its queue, which ends at {end}: it goes on at {end}"]

    # --- asked by DelayHook ----------------------------------------------------------------------

    @property
    def precision_ms(self) -> int:
        """Milliseconds per slot."""
        return self._rules.precision_ms

    @property
    def max_delay_ms(self) -> int:
        """The longest delay."""
        return self._rules.max_delay_ms

    def is_rejected(self, due_ms: int) -> bool:
        """Tell whether too many messages wait for this time: the more, the likelier.

        Compat: TimerMessageStore#isReject has the same limits; between them its chance falls as the
        count grows.
        """
        limit = self._rules.congest_max
        if limit >= layout.MAX_I32 or self._start is None:
            return False
        slot = self._files.wheel.slot(due_ms)
        excess = 0 if slot is None else slot.count - limit
        return excess > 0 and self._random.randrange(limit) < excess

    # --- any thread ------------------------------------------------------------------------------

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake up if a message arrived in the timer queue."""
        if self._usage.has_timers and self._has_grown():
            self.wakeup()

    @property
    def unset_count(self) -> int:
        """How many messages of the timer queue were not entered yet."""
        return max(self._store.dispatched_bounds(TIMER_QUEUE)[1] - self._queue_offset, 0)

    @property
    def waiting_counts(self) -> dict[str, int]:
        """How many messages wait, by topic."""
        return self._metrics.counts()

    @property
    def behind_ms(self) -> int:
        """How long the next slot is overdue; 0 if none is."""
        waiting = self._waiting
        due = waiting[0] + self._rules.precision_ms if waiting else self._clock.now_ms()
        return max(self._clock.now_ms() - due, 0)

    # --- BackgroundService -----------------------------------------------------------------------

    def run_once(self) -> None:
        """Deliver all slots that are over, and enter all new messages."""
        now = self._clock.now_ms()
        if self._start is None:
            if not self._files.exist and not self._has_grown():
                return
            self._open(now)
        if self._retry_at is None or now >= self._retry_at:
            self._retry_at = None
            while self._dequeue() and self._enqueue() and self._has_grown():
                if self.is_closing:
                    break
        if self._flush_at is not None and now >= self._flush_at:
            self._flush_at = now + self._rules.flush_interval_ms
            self._flush(now)

    def run_last(self) -> None:
        """Write all changes, and close the files."""
        if self._start is not None:
            self._write_time = max(self._write_time, self._rules.floor(self._clock.now_ms()))
            self._metrics_at = 0
            try:
                self._flush(self._clock.now_ms())
            finally:
                self._files.close()

    def pause_s(self) -> float | None:
        """Return the time until the next work; None: until woken."""
        if self._start is None:
            return 0 if self._files.exist or self._has_grown() else None
        times = [] if self._flush_at is None else [self._flush_at]
        if self._retry_at is not None:
            times.append(self._retry_at)
        elif self._has_grown():
            # Why: after a start nothing else shows that messages of an earlier run were not
            # entered; they arrived before this listened.
            return 0
        elif self._waiting:
            times.append(self._waiting[0] + self._rules.precision_ms)
        if not times:
            return None
        return min(max(min(times) - self._clock.now_ms(), 0), _PAUSE_MAX_MS) / 1000

    # --- private ---------------------------------------------------------------------------------

    def _open(self, now: int) -> None:
        self._files.open(self._rules.floor(now))
        self._begin(recover(self._files, self._store, self._rules, now))
        self._usage.has_timers = True
        self._clean_at = now + _CLEAN_INTERVAL_MS

    def _begin(self, start: TimerStart) -> None:
        self._queue_offset = start.queue_offset
        self._seen_end = NO_OFFSET
        self._waiting = list(start.due_times)  # sorted, so it is a heap
        self._is_waiting = set(start.due_times)
        self._start = start

    def _has_grown(self) -> bool:
        return self._store.dispatched_bounds(TIMER_QUEUE)[1] != self._seen_end

    def _dequeue(self) -> bool:
        """Deliver the slots that are over; False if that must be retried."""
        self._write_time = max(self._write_time, self._rules.floor(self._clock.now_ms()))
        while self._waiting and self._waiting[0] < self._write_time and not self.is_closing:
            self._note_change()
            if self._work is None:
                units = self._read_slot(self._waiting[0])
                if units is None:
                    self._rebuild()
                    continue
                self._work = SlotWork(self._waiting[0], units)
            if not self._delivery.run(self._work):
                self._retry_later(self._delivery.failures)
                return False
            self._work = None
            self._is_waiting.discard(heapq.heappop(self._waiting))
        return True

    def _read_slot(self, time: int) -> list[TimerUnit] | None:
        """Return the units of a slot, oldest first; None if it is damaged."""
        slot = self._files.wheel.slot(time)
        if slot is None:
            log.error("slot of the timer is lost time=%d", time)
            return None
        try:
            units = self._files.log.chain(slot.last_position)
        except CorruptRecordError as error:
            log.error("slot of the timer is damaged time=%d: %s", time, error)  # noqa: TRY400
            return None
        if any(self._rules.floor(unit.due) != time for unit in units):
            log.error("slot of the timer has units of another time=%d", time)
            return None
        return units

    def _rebuild(self) -> None:
        """Discard log and wheel, and enter all waiting messages again."""
        start = rebuild(self._files, self._store, self._waiting[0], seen_to=self._queue_offset)
        self._begin(start)

    def _enqueue(self) -> bool:
        """Enter one turn of new messages; False if that must be retried."""
        start, end = self._store.dispatched_bounds(TIMER_QUEUE)
        self._queue_offset = min(max(self._queue_offset, start), end)
        units = self._store.queue_units(TIMER_QUEUE, self._queue_offset, _TURN).tolist()
        try:
            for physical_offset, size, _ in units:
                if self.is_closing or not self._enqueue_unit(physical_offset, size):
                    self._retry_later(self._delivery.failures)
                    return False
                self._queue_offset += 1
                self._note_change()
        except StoreError as error:
            log.warning("message is not entered now queue_offset=%d: %s", self._queue_offset, error)
            self._retry_later(1)
            return False
        if not units and self._queue_offset < end:
            self._retry_later(1)  # its file is being deleted
            return False
        # Order: the end from before the units were read; later messages count as growth.
        self._seen_end = min(self._queue_offset, end)
        return True

    def _enqueue_unit(self, physical_offset: int, size: int) -> bool:
        if self._start is not None and physical_offset in self._start.entered:
            return True
        message = self._store.message_at(physical_offset, size)
        if message is None:
            log.warning("timed message is gone queue_offset=%d", self._queue_offset)
            return True
        due = parse_number(message.properties.get(names.TIMER_OUT_MS))
        if due is None or message.topic != TIMER_QUEUE.topic:
            log.error("message without a time is skipped queue_offset=%d", self._queue_offset)
            return True
        if self._was_done_before(message, due):
            return True
        if due < self._write_time:
            return self._delivery.deliver_late(message)
        self._append(message, due)
        return True

    def _was_done_before(self, message: StoredMessage, due: int) -> bool:
        """Tell whether a message was delivered before the log was lost."""
        start = self._start
        if start is None or self._queue_offset >= start.seen_to:
            return False
        stored = self._rules.floor(message.store_timestamp)
        return self._rules.slot_time(due, stored)[0] < start.read_time

    def _append(self, message: StoredMessage, due: int) -> None:
        """Write the unit of a message, and add it to its slot."""
        time, is_rolled = self._rules.slot_time(due, self._write_time)
        # Why: a slot that does not wait was delivered before the clock was set back. Its position
        # cannot belong to another waiting slot, since all slots that are over were delivered.
        slot = self._files.wheel.slot(time) if time in self._is_waiting else None
        is_delete = names.TIMER_DELETE_KEY in message.properties
        topic = message.properties.get(names.REAL_TOPIC, "")
        position = self._files.log.append(
            TimerUnit(
                previous_position=-1 if slot is None else slot.last_position,
                magic=MAGIC_DEFAULT | is_rolled * MAGIC_ROLL | is_delete * MAGIC_DELETE,
                write_time=self._write_time,
                delay=time - self._write_time,
                physical_offset=message.physical_offset,
                record_size=message.store_size,
                topic_hash=java_hash(topic),
            )
        )
        self._files.wheel.put(time, position=position, is_delete=is_delete, is_first=slot is None)
        if time not in self._is_waiting:
            heapq.heappush(self._waiting, time)
            self._is_waiting.add(time)
        self._metrics.add(topic, -1 if is_delete else 1)

    def _retry_later(self, failures: int) -> None:
        pause = min(_RETRY_MS << min(max(failures, 1) - 1, 9), _RETRY_MAX_MS)
        self._retry_at = self._clock.now_ms() + pause

    def _note_change(self) -> None:
        if self._flush_at is None:
            self._flush_at = self._clock.now_ms() + self._rules.flush_interval_ms

    def _flush(self, now: int) -> None:
        if self._files.flush(self._checkpoint(now)):
            self._flush_at = None
        if now >= self._metrics_at:
            self._metrics_at = now + _METRICS_INTERVAL_MS
            self._metrics.persist()
        if now >= self._clean_at:
            self._clean_at = now + _CLEAN_INTERVAL_MS
            self._files.log.delete_expired(self._store.log_bounds()[0])

    def _checkpoint(self, now: int) -> TimerCheckpoint:
        old = self._files.checkpoint
        read_time = min(self._waiting[0], self._write_time) if self._waiting else self._write_time
        seen_to = self._queue_offset
        if self._start is not None and self._start.seen_to > self._queue_offset:
            # Log and wheel are being rebuilt: of the messages without a unit, exactly those whose
            # slot is before the old time were delivered.
            read_time, seen_to = self._start.read_time, self._start.seen_to
        # Compat: as TimerMessageStore#prepareTimerCheckPoint, a version for each step of progress.
        is_new = (read_time, self._queue_offset) != (old.last_read_time, old.queue_offset)
        return TimerCheckpoint(
            last_read_time=read_time,
            flushed_position=self._files.log.end,
            queue_offset=self._queue_offset,
            primary_queue_offset=seen_to,
            state_version=old.state_version,
            version_timestamp=now if is_new else old.version_timestamp,
            version_counter=old.version_counter + is_new,
        )
