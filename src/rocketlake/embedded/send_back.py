"""Redelivery of a message that a group could not consume: a retry, or the dead letters.

Compat: as AbstractSendMessageProcessor#consumerSendMsgBack, which answers CONSUMER_SEND_MSG_BACK.
"""

from typing import Final

from rocketlake.delay.redelivery import order_properties
from rocketlake.format.record import StoredMessage
from rocketlake.metadata.groups import SubscriptionGroup
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.model.topics import dlq_topic, retry_topic
from rocketlake.store.api import AppendRequest

FIRST_LEVEL: Final = 3
"""The delay level of the first retry; each further retry adds one level."""

OF_ONE_RECORD: Final = frozenset({names.RECORD_CRC, names.INNER_BASE, names.MULTI_QUEUE_OFFSET})
"""Properties that a put writes for one record at one log offset."""


def send_back_request(
    message: StoredMessage,
    group: SubscriptionGroup,
    *,
    delay_level: int = 0,
    max_times: int | None = None,
    is_4x: bool = False,
) -> AppendRequest:
    """Return the put that redelivers a message to its group.

    `delay_level` 0 means three plus the redeliveries so far; below 0 the message goes to the dead
    letters at once, as it does after `max_times` (None: the limit of the group).
    """
    properties = {k: v for k, v in message.properties.items() if k not in OF_ONE_RECORD}
    properties.setdefault(names.RETRY_TOPIC, message.topic)
    properties[names.WAIT] = "false"
    times = message.reconsume_times
    is_dead = delay_level < 0 or times >= (
        group.retry_max_times if max_times is None else max_times
    )
    level = 0 if is_dead else delay_level or FIRST_LEVEL + times
    properties[names.DELAY] = str(level)
    if not properties.get(names.ORIGIN_MESSAGE_ID, "").strip():
        properties[names.ORIGIN_MESSAGE_ID] = message.msg_id
    # Compat: the reference chooses the retry queue at random. There is usually one.
    queue_id = 0 if is_dead else message.physical_offset % max(group.retry_queue_count, 1)
    topic = dlq_topic(group.name) if is_dead else retry_topic(group.name)
    if level > 0:
        # Compat: the delay puts these into the same map, which determines their order.
        properties |= {names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
    return AppendRequest(
        message=Message(
            topic=topic,
            body=message.stored_body,
            properties=order_properties(properties, is_4x=is_4x),
            flag=message.flag,
            wait=False,
        ),
        queue_id=queue_id,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        sys_flag=message.sys_flag,
        reconsume_times=times + 1,
    )
