"""TimerDelivery: delivers a slot of the wheel, or a message that is late for its slot."""

import logging
from collections.abc import Sequence
from typing import Final

from rocketlake.clock import Clock
from rocketlake.delay.redelivery import Redelivery, parse_number, real_queue
from rocketlake.delay.store_access import DelayStore
from rocketlake.delay.timer_rules import TIMER_QUEUE
from rocketlake.errors import StoreError
from rocketlake.format import layout
from rocketlake.format.record import StoredMessage
from rocketlake.format.timer import MAGIC_DELETE, MAGIC_ROLL, TimerUnit
from rocketlake.metadata.timer_metrics import TimerMetrics
from rocketlake.model import properties as names
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import HALF_TOPIC
from rocketlake.store.api import PutStatus

log = logging.getLogger(__name__)

NEVER_ENQUEUED: Final = layout.MAX_I64

_REFUSED_FOR_GOOD: Final = frozenset(
    {
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.WHEEL_TIMER_NOT_ENABLE,
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
    }
)


class SlotWork:
    """The units of one slot, and how many are delivered. Owned by the thread of the timer."""

    __slots__ = ("deleted", "done", "matched", "time", "units")

    def __init__(self, time: int, units: Sequence[TimerUnit]) -> None:
        self.time = time
        self.units = units
        self.done = 0
        self.deleted: dict[str, str] | None = None  # key of a deleted message -> its topic
        self.matched: set[str] = set()


class TimerDelivery:
    """Puts due messages into their real queues.

    Thread-safety: only the thread of the timer.
    """

    def __init__(self, store: DelayStore, clock: Clock, metrics: TimerMetrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._redelivery = Redelivery()
        self._failures = 0

    @property
    def failures(self) -> int:
        """How many puts have failed in a row."""
        return self._failures

    def run(self, work: SlotWork) -> bool:
        """Deliver the rest of a slot; False if a put failed: retry with the same work later."""
        if work.deleted is None:
            work.deleted = self._find_deleted(work.units)
        while work.done < len(work.units):
            if not self._run_unit(work, work.units[work.done], work.deleted):
                return False
            work.done += 1
        for key, topic in work.deleted.items():
            if key not in work.matched:
                self._metrics.add(topic, 1)  # it was counted as one less
        return True

    def deliver_late(self, message: StoredMessage) -> bool:
        """Deliver a message whose slot is over; False if the put failed."""
        if names.TIMER_DELETE_KEY in message.properties:
            log.warning("too late to delete physical_offset=%d", message.physical_offset)
            return True
        return self._put(message, NEVER_ENQUEUED, is_rolled=False)

    def _find_deleted(self, units: Sequence[TimerUnit]) -> dict[str, str]:
        found: dict[str, str] = {}
        for unit in units:
            message = self._read(unit) if _is_delete(unit) else None
            key = message and message.properties.get(names.TIMER_DELETE_KEY)
            if message is not None and key:
                found[key] = message.properties.get(names.REAL_TOPIC, "")
        return found

    def _run_unit(self, work: SlotWork, unit: TimerUnit, deleted: dict[str, str]) -> bool:
        if _is_delete(unit):
            return True
        message = self._read(unit)
        if message is None:
            log.warning(
                "timed message is gone time=%d physical_offset=%d", work.time, unit.physical_offset
            )
            return True
        topic = message.properties.get(names.REAL_TOPIC, "")
        key = f"{topic}+{message.unique_key}"
        if key in deleted:
            work.matched.add(key)
            return True
        if not self._put(message, unit.write_time, is_rolled=bool(unit.magic & MAGIC_ROLL)):
            return False
        self._metrics.add(topic, -1)
        return True

    def _read(self, unit: TimerUnit) -> StoredMessage | None:
        message = self._store.message_at(unit.physical_offset, unit.record_size)
        return message if message is not None and message.topic == TIMER_QUEUE.topic else None

    def _put(self, message: StoredMessage, enqueue_time: int, *, is_rolled: bool) -> bool:
        """Put a message into its next queue; True also if it has none."""
        target = TIMER_QUEUE if is_rolled else real_queue(message.properties)
        if target is None or target.topic == HALF_TOPIC:
            log.error("timed message has no real topic physical_offset=%d", message.physical_offset)
            return True
        properties = dict(message.properties)
        properties[names.TIMER_ENQUEUE_MS] = str(enqueue_time)
        if is_rolled:
            times = parse_number(properties.get(names.TIMER_ROLL_TIMES)) or 0
            properties[names.TIMER_ROLL_TIMES] = str(times + 1)
        properties[names.TIMER_DEQUEUE_MS] = str(self._clock.now_ms())
        reason = self._try_put(message, target, properties)
        if reason is None:
            self._failures = 0
            return True
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:  # the 1st, 2nd, 4th, 8th … in a row
            log.warning(
                "timed message could not be put physical_offset=%d times=%d reason=%s",
                message.physical_offset,
                self._failures,
                reason,
            )
        return False

    def _try_put(
        self, message: StoredMessage, target: QueueKey, properties: dict[str, str]
    ) -> str | None:
        """Put a message; return the reason of a failure."""
        try:
            receipt = self._store.put(self._redelivery.request(message, target, properties))
        except (StoreError, ValueError) as error:
            return str(error)
        if receipt.is_ok:
            return None
        reason = f"{receipt.status} {receipt.reason}"
        if receipt.status in _REFUSED_FOR_GOOD:
            # Compat: as TimerMessageStore#doPut. All later times would wait for ever.
            log.error(
                "timed message is lost physical_offset=%d reason=%s",
                message.physical_offset,
                reason,
            )
            return None
        return reason


def _is_delete(unit: TimerUnit) -> bool:
    """Tell whether a unit deletes another one of its slot; not while it is rolled."""
    return bool(unit.magic & MAGIC_DELETE) and not unit.magic & MAGIC_ROLL
