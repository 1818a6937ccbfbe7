"""PutRehearsal: what a put would answer to a message, told without a store.

1. The rules are those of the put path: its delay hook and its checks, asked with a store's options.
2. What an answer depends on beyond the options is taken as the worst case: the widest queue id, the
   widest offsets in light queues.
3. What a put refuses because the store is full of something (slots of the timer, light queues) and
   what plug-ins refuse is not known here.
"""

from typing import Final

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.delay.hook import DelayHook
from rocketlake.delay.levels import DelayLevels
from rocketlake.delay.store_access import Usage
from rocketlake.delay.timer_rules import TimerRules
from rocketlake.format import layout
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.model.topics import TIMER_TOPIC
from rocketlake.store.api import AppendRequest, PutReceipt
from rocketlake.store.log.record_shape import RecordShape
from rocketlake.store.options import StoreOptions
from rocketlake.store.put import checks
from rocketlake.store.put.message_fields import plain_fields, with_properties, without_property
from rocketlake.store.queue.light_queues import may_fan_out
from rocketlake.store.queue.unit_kind import QUEUE_OFFSET_MAX

_WIDEST_QUEUE: Final = layout.MAX_I32
_WIDEST_OFFSET: Final = str(QUEUE_OFFSET_MAX)


class _EmptyTimer(Struct, frozen=True):
    """A timer that nothing waits in (delay.hook.TimerGate)."""

    precision_ms: int
    max_delay_ms: int

    def is_rejected(self, _due_ms: int) -> bool:
        """No slot is full."""
        return False


class PutRehearsal:
    """Says why a put would refuse a message. Thread-safety: one thread."""

    def __init__(self, options: StoreOptions, clock: Clock) -> None:
        self._options = options
        self._shape = RecordShape.of(options)
        self._clock = clock
        rules = TimerRules.of(options)
        timer = _EmptyTimer(rules.precision_ms, rules.max_delay_ms)
        self._hook = DelayHook(
            DelayLevels(options.delay_levels_ms),
            clock,
            Usage(),
            timer=timer if options.timer_wheel_enable else None,
            is_4x=options.compat_version.is_4x,
        )
        self._fans_out = checks.has_light_queues(options)

    def refusal_of_topic(self, topic: str) -> str | None:
        """Return why no message may be put to a topic; None if one may."""
        refused = checks.check_topic(topic, self._options.compat_version)
        refused = refused or checks.check_name(topic, self._shape.version(topic))
        return None if refused is None else refused.reason

    def refusal(self, message: Message) -> str | None:
        """Return why a put would refuse a message; None if it would append it."""
        request = AppendRequest(
            message=message,
            queue_id=_WIDEST_QUEUE,
            born_timestamp=self._clock.now_ms(),
            born_host=self._shape.endpoint,
        )
        shown = self._hook.before_put(request)
        if isinstance(shown, PutReceipt):
            return shown.reason
        request = shown or request
        if request.message.topic == TIMER_TOPIC and names.TIMER_DELETE_KEY in message.properties:
            # Why: a put refuses it once that message was delivered, and the append comes later.
            return (
                f"{names.TIMER_DELETE_KEY} = {message.properties[names.TIMER_DELETE_KEY]!r} takes"
                " a timed message back, which may be delivered before the rows are appended; put"
                " it with store.put"
            )
        crc = self._options.enabled_append_prop_crc
        stored = without_property(request.message, names.MULTI_QUEUE_OFFSET)
        stored = plain_fields(stored, drops_crc=crc)
        refused = checks.check_inner_batch(request, _is_batch_queue)
        if refused is None and self._fans_out:
            refused = checks.check_light_queues(stored)
            stored = _with_light_offsets(stored)
        refused = refused or checks.check_sizes(
            stored, request, self._shape, self._options.compat_version
        )
        return None if refused is None else refused.reason


def _is_batch_queue(_topic: str) -> bool:
    """Only asked about batches in one record, which rows never are."""
    return False


def _with_light_offsets(message: Message) -> Message:
    """Return a message with offsets in light queues, as wide as they can become."""
    queues = message.properties.get(names.MULTI_DISPATCH, "").split(names.MULTI_SEPARATOR)
    count = sum(1 for queue in queues if queue)
    if not count or not may_fan_out(message.topic):
        return message
    offsets = names.MULTI_SEPARATOR.join([_WIDEST_OFFSET] * count)
    return with_properties(message, {names.MULTI_QUEUE_OFFSET: offsets})
