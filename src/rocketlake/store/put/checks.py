"""The checks of a put, in the order of the reference.

A check returns a receipt, which ends the put, or None.
"""

import re
from collections.abc import Callable, Collection
from typing import Final

from rocketlake.format import layout
from rocketlake.format.record import message_properties
from rocketlake.model import flags
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.model.topics import (
    LIGHT_QUEUE_PREFIX,
    QUEUE_NAME_SIZE_MAX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TOPIC_SIZE_MAX,
    can_name_queues,
    is_lmq,
    topic_size_max,
)
from rocketlake.store.api import AppendRequest, BatchRequest, PutReceipt, PutStatus
from rocketlake.store.log.record_shape import RecordShape
from rocketlake.store.options import CompatVersion, StoreOptions
from rocketlake.store.queue.light_queues import may_fan_out, refused_names

_SHOWN: Final = 300  # characters of a name in a reason
_ILLEGAL: Final = PutStatus.MESSAGE_ILLEGAL
_SHORT: Final = re.compile(r"[+-]?\d{1,64}")
_SHORT_MAX: Final = 32_767
_NAME_WORDS: Final = (
    f"the name of a queue has at most {QUEUE_NAME_SIZE_MAX} bytes and no '/' or NUL, and is not"
    " '.' or '..'"
)


def refuse(status: PutStatus, reason: str) -> PutReceipt:
    """Return the receipt of a put that ends here."""
    return PutReceipt(status, reason=reason)


def check_topic(topic: str, version: CompatVersion) -> PutReceipt | None:
    """Refuse a topic that is too long for the release."""
    if version.is_4x:
        # Compat: 4.x counts characters, in units of UTF-16, for every topic.
        length, limit = len(topic.encode("utf-16-le", "surrogatepass")) // 2, TOPIC_SIZE_MAX
    else:
        length, limit = len(topic.encode()), topic_size_max(topic)
    if length > limit:
        return refuse(_ILLEGAL, f"topic of {length} bytes: {topic!r}; at most {limit} are allowed")
    return None


def check_name(topic: str, record_version: int) -> PutReceipt | None:
    """Refuse a topic that no record of a version can hold, or no directory can be named after."""
    size = len(topic.encode()) if record_version == 1 else 0
    # Compat: the limits of the reference count characters (4.x), or are higher (5.x, topics of
    # retries). It answers PUT_OK, and writes a length that makes the record one that ends the log.
    if size > layout.MAX_I8:
        words = f"at most {layout.MAX_I8} can be written"
        return refuse(_ILLEGAL, f"topic of {size} bytes: {topic!r}; {words}")
    if can_name_queues(topic):
        return None
    return refuse(_ILLEGAL, f"topic {topic[:_SHOWN]!r} can have no queues: {_NAME_WORDS}")


def has_light_queues(options: StoreOptions) -> bool:
    """Tell whether messages of a store can enter light queues."""
    return options.enable_lmq and options.enable_multi_dispatch


def check_light_queues(message: Message) -> PutReceipt | None:
    """Refuse a message that is to enter a light queue that cannot be, now or when it is due."""
    properties = message.properties
    if names.MULTI_DISPATCH not in properties:
        return None
    is_late = message.topic in {SCHEDULE_TOPIC, TIMER_TOPIC}
    if not may_fan_out(properties.get(names.REAL_TOPIC, "") if is_late else message.topic):
        return None
    wrong = refused_names(properties)
    if not wrong:
        return None
    text = f"property {names.MULTI_DISPATCH} names {wrong[0][:_SHOWN]!r}: "
    if not is_lmq(wrong[0]):
        return refuse(_ILLEGAL, f"{text}the name of a light queue begins with {LIGHT_QUEUE_PREFIX}")
    return refuse(_ILLEGAL, text + _NAME_WORDS)


def check_light_queue_count(
    message: Message, known: Collection[str], options: StoreOptions
) -> PutReceipt | None:
    """Refuse a message for light queues while the store has too many; `known` are those it has."""
    limit, is_4_9 = options.max_lmq_consume_queue_num, options.compat_version is CompatVersion.V4_9
    text = message.properties.get(names.MULTI_DISPATCH, "")
    if not text.strip() or not (is_4_9 or options.enable_lmq_quota):
        return None
    # Compat: 4.9 (DefaultMessageStore#checkLmqMessage) refuses messages for queues that are there
    # too, and only beyond the limit. 5.3.3 never looks. 5.5 (HookUtils#handleLmqQuota) refuses new
    # queues at the limit.
    queues = text.split(names.MULTI_SEPARATOR)
    is_new = any(is_lmq(name) and name not in known for name in queues)
    if (len(known) > limit) if is_4_9 else (is_new and len(known) >= limit):
        words = f"the store has {len(known)} light queues; maxLmqConsumeQueueNum allows {limit}"
        return refuse(PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, words)
    return None


def check_batch_light_queues(message: Message) -> PutReceipt | None:
    """Refuse a message of a batch that is to enter light queues.

    Compat: the reference stores it, and it enters none of them.
    """
    if not message.properties.get(names.MULTI_DISPATCH) or not may_fan_out(message.topic):
        return None
    text = "messages of a batch cannot enter light queues; put them one by one"
    return refuse(_ILLEGAL, f"property {names.MULTI_DISPATCH}: {text}")


def check_batch(
    batch: BatchRequest, shape: RecordShape, size_max: int, version: CompatVersion
) -> PutReceipt | None:
    """Refuse a batch that cannot be, is too large, or has a message that is.

    Raises:
        ValueError: a message is for another topic, or a property cannot be written.
    """
    if batch.sys_flag & flags.TRANSACTION_MASK:
        return refuse(_ILLEGAL, "a batch cannot be part of a transaction")
    overhead = shape.overhead(batch.topic, batch.born_host, batch.store_host)
    total = 0
    for message in batch.messages:
        if message.topic != batch.topic:
            raise ValueError(f"a batch for {batch.topic!r} holds a message for {message.topic!r}")
        if message.delay_level or message.deliver_at is not None:
            return refuse(_ILLEGAL, "messages of a batch cannot be delayed")
        properties = len(message_properties(message, shape.trailing))
        # Compat: 5.x looks at the client's encoding of the batch, 4.x at the records.
        if version.is_4x:
            total += overhead + len(message.body) + properties
        else:
            total += layout.BATCH_ENTRY_FIXED_SIZE + len(message.body) + properties
        if total > size_max:
            text = f"batch of more than {total} bytes; maxMessageSize allows {size_max}"
            return refuse(_ILLEGAL, text)
    return None


def check_inner_batch(
    request: AppendRequest, is_batch_queue: Callable[[str], bool]
) -> PutReceipt | None:
    """Refuse a batch in one record that is not marked as such, or does not belong to its topic."""
    is_inner = bool(request.sys_flag & flags.INNER_BATCH)
    if names.INNER_NUM in request.message.properties and not is_inner:
        return refuse(_ILLEGAL, f"property {names.INNER_NUM} without the flag of an inner batch")
    if is_inner and not is_batch_queue(request.message.topic):
        return refuse(
            _ILLEGAL, f"inner batch for {request.message.topic!r}, whose queues are no BatchCQ"
        )
    count = request.message.properties.get(names.INNER_NUM)
    if is_inner and count is not None and not _is_short(count):
        # Compat: as in CommitLog#getMessageNum, which throws before anything is appended.
        return refuse(_ILLEGAL, f"{names.INNER_NUM} = {count!r} is no number of 16 bits")
    return None


def _is_short(text: str) -> bool:
    """Tell whether Short.parseShort takes a text."""
    return _SHORT.fullmatch(text) is not None and -_SHORT_MAX - 1 <= int(text) <= _SHORT_MAX


def check_sizes(
    message: Message, request: AppendRequest, shape: RecordShape, version: CompatVersion
) -> PutReceipt | None:
    """Refuse properties, a body or a record that is too large.

    Raises:
        ValueError: a property cannot be written.
    """
    raw = message_properties(message, shape.trailing)
    properties, room = len(raw), shape.properties_max
    if properties > room:
        text = f"properties of {properties} bytes; at most {room} are allowed"
        return refuse(_properties_status(raw, version), text)
    if len(message.body) > shape.body_max:
        text = f"body of {len(message.body)} bytes; maxMessageSize allows {shape.body_max}"
        return refuse(_ILLEGAL, text)
    overhead = shape.overhead(message.topic, request.born_host, request.store_host)
    size = overhead + len(message.body) + properties
    if size > shape.record_max:
        text = f"record of {size} bytes; at most {shape.record_max} are allowed"
        return refuse(_ILLEGAL, text)
    return None


def refuse_busy(
    refused: PutReceipt | None, check_busy: Callable[[], PutReceipt | None]
) -> PutReceipt | None:
    """Check that the log is not busy: after the length of the properties, before other sizes."""
    # Compat: as in DefaultMessageStore#putMessage of 4.6; its log looks at the record later.
    if refused is not None and refused.status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
        return refused
    return check_busy() or refused


def _properties_status(raw: bytes, version: CompatVersion) -> PutStatus:
    """Return how a release refuses properties that are too long."""
    exceeded = PutStatus.PROPERTIES_SIZE_EXCEEDED
    if not version.is_4x:
        return exceeded
    # Compat: 4.x counts characters first, and bytes when it encodes; 4.6 and 4.9 swap the answers.
    units = len(raw.decode("utf-8", "replace").encode("utf-16-le", "surrogatepass")) // 2
    is_early = units > layout.MAX_I16
    return exceeded if is_early is (version is CompatVersion.V4_6) else _ILLEGAL
