"""DelayHook: the put hook that redirects delayed messages to the topics where they wait.

Compat: as HookUtils#handleScheduleMessage of 5.x; 4.x does the same for levels in its commit log.

1. Only messages that enter a queue are delayed, not prepared or rolled back ones.
2. A level overrides a time, and removes it.
3. An existing property is replaced in its place; new ones follow the others, in the order of this
   module.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import structs

from rocketlake.clock import Clock
from rocketlake.delay.levels import DelayLevels, queue_of
from rocketlake.delay.redelivery import parse_number
from rocketlake.delay.store_access import DueRequest, Usage
from rocketlake.delay.timer_rules import TIMER_QUEUE
from rocketlake.model import flags, topics
from rocketlake.model import properties as names
from rocketlake.model.queues import QueueKey
from rocketlake.model.unix_time import to_unix_ms
from rocketlake.store.api import AppendRequest, PutReceipt, PutStatus

_TIMES: Final = (names.TIMER_DELAY_S, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
_SHOWN: Final = 100  # characters of a value in a reason
_DELAYS: Final = frozenset({names.DELAY, *_TIMES})
_OWN_TOPICS: Final = frozenset({topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC})


class TimerGate(Protocol):
    """What the hook asks the timer before a message is put."""

    @property
    def precision_ms(self) -> int:
        """Milliseconds per slot."""

    @property
    def max_delay_ms(self) -> int:
        """How long a message may wait at most."""

    def is_rejected(self, due_ms: int) -> bool:
        """Tell whether too many messages wait for this time."""


class DelayHook:
    """Redirects a message with a delay to the topic where it waits.

    A store may skip it for messages without a delay level, a time and such properties
    (`sees_only_special`).

    Thread-safety: any thread; its only state is `usage`, whose flags are only set.
    """

    sees_only_special: Final = True

    def __init__(
        self,
        levels: DelayLevels,
        clock: Clock,
        usage: Usage,
        *,
        timer: TimerGate | None,
        is_4x: bool = False,
    ) -> None:
        """Without a timer, messages for an arbitrary time are refused.

        In 4.x the properties of the timer are ordinary properties.
        """
        self._levels = levels
        self._clock = clock
        self._usage = usage
        self._timer = timer
        self._is_4x = is_4x

    @property
    def name(self) -> str:
        """The name of the hook in logs."""
        return "handleScheduleMessage"

    def before_put(self, request: AppendRequest) -> AppendRequest | PutReceipt | None:
        """Return None for no change, a redirected request, or the receipt of a refusal.

        Raises:
            ValueError: the message is for a time without a time zone.
        """
        message = request.message
        if message.topic in _OWN_TOPICS:
            self._note(message.topic)
        if message.delay_level <= 0 and message.deliver_at is None:
            if _DELAYS.isdisjoint(message.properties) or isinstance(request, DueRequest):
                return None
            properties = dict(message.properties)
        elif isinstance(request, DueRequest):
            return None
        else:
            properties = _with_fields(request)
        return self._delay(request, properties)

    def _delay(
        self, request: AppendRequest, properties: dict[str, str]
    ) -> AppendRequest | PutReceipt:
        if not flags.enters_queue(request.sys_flag):
            return _rewritten(request, properties)
        level = parse_number(properties.get(names.DELAY, "0"))
        if level is None:
            text = _shown(properties[names.DELAY])
            return _refused(PutStatus.MESSAGE_ILLEGAL, f"DELAY is {text}, not a number")
        if level > 0:
            return self._delay_by_level(request, properties, self._levels.clamp(level))
        is_waiting = request.message.topic == topics.TIMER_TOPIC
        if (
            is_waiting
            or names.TIMER_OUT_MS in properties
            or not self._has_time(request, properties)
        ):
            return _rewritten(request, properties)
        return self._delay_to_time(request, properties)

    def _delay_by_level(
        self, request: AppendRequest, properties: dict[str, str], level: int
    ) -> AppendRequest:
        if not self._is_4x and request.message.topic != topics.TIMER_TOPIC:
            for name in _TIMES:
                properties.pop(name, None)
        if level <= 0:
            return _rewritten(request, properties)  # a store without levels
        properties[names.DELAY] = str(level)
        return self._send(request, properties, queue_of(level))

    def _delay_to_time(
        self, request: AppendRequest, properties: dict[str, str]
    ) -> AppendRequest | PutReceipt:
        timer = self._timer
        if timer is None:
            return _refused(
                PutStatus.WHEEL_TIMER_NOT_ENABLE,
                "messages for an arbitrary time need timerWheelEnable",
            )
        now = self._clock.now_ms()
        name, due = _due(properties, now)
        if due is not None and due <= now and names.TIMER_DELETE_KEY not in properties:
            return _rewritten(request, properties)
        if due is None or due <= now or due - now > timer.max_delay_ms:
            fault = _fault(due, now, timer.max_delay_ms)
            reason = f"{name} is {_shown(properties[name])}: {fault}"
            return _refused(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, reason)
        # Compat: a time on the border of two slots goes to the earlier one. A slot is delivered
        # when it is over, so that no message is early.
        due = (due - 1) // timer.precision_ms * timer.precision_ms
        if timer.is_rejected(due):
            return _refused(
                PutStatus.WHEEL_TIMER_FLOW_CONTROL, f"too many messages wait for {due} already"
            )
        properties[names.TIMER_OUT_MS] = str(due)
        return self._send(request, properties, TIMER_QUEUE)

    def _has_time(self, request: AppendRequest, properties: Mapping[str, str]) -> bool:
        if self._is_4x:
            return request.message.deliver_at is not None
        return any(name in properties for name in _TIMES)

    def _send(
        self, request: AppendRequest, properties: dict[str, str], queue: QueueKey
    ) -> AppendRequest:
        properties[names.REAL_TOPIC] = request.message.topic
        properties[names.REAL_QUEUE_ID] = str(request.queue_id)
        self._note(queue.topic)
        return _rewritten(request, properties, queue)

    def _note(self, topic: str) -> None:
        # Order: before the put, so that the listeners of the arrival see the flag.
        if topic == topics.SCHEDULE_TOPIC:
            self._usage.has_levels = True
        else:
            self._usage.has_timers = True


def _with_fields(request: AppendRequest) -> dict[str, str]:
    """Return the properties, with those that the fields of the message add."""
    message = request.message
    properties = dict(message.properties)
    if message.delay_level > 0:
        properties.setdefault(names.DELAY, str(message.delay_level))
    if message.deliver_at is not None and not any(name in properties for name in _TIMES):
        properties[names.TIMER_DELIVER_MS] = str(to_unix_ms(message.deliver_at, "deliver_at"))
    return properties


def _due(properties: Mapping[str, str], now: int) -> tuple[str, int | None]:
    """Return the property that counts, and the time it asks for; None if that is no number."""
    for name, unit_ms in ((names.TIMER_DELAY_S, 1000), (names.TIMER_DELAY_MS, 1)):
        if name in properties:
            delay = parse_number(properties[name])
            return name, None if delay is None else now + delay * unit_ms
    return names.TIMER_DELIVER_MS, parse_number(properties[names.TIMER_DELIVER_MS])


def _fault(due: int | None, now: int, max_delay_ms: int) -> str:
    if due is None:
        return "the time to deliver is not a number"
    if due <= now:
        return "the message to delete was delivered before"
    return f"{due - now} ms are more than timerMaxDelaySec allows ({max_delay_ms} ms)"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _rewritten(
    request: AppendRequest, properties: dict[str, str], queue: QueueKey | None = None
) -> AppendRequest:
    message = request.message
    target = queue or QueueKey(message.topic, request.queue_id)
    message = structs.replace(
        message, topic=target.topic, properties=properties, delay_level=0, deliver_at=None
    )
    return structs.replace(request, message=message, queue_id=target.queue_id)


def _refused(status: PutStatus, reason: str) -> PutReceipt:
    return PutReceipt(status=status, reason=reason)
