"""Turns a delayed message into the one that is delivered."""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from rocketlake.delay.store_access import DueRequest
from rocketlake.format import layout
from rocketlake.format.record import StoredMessage
from rocketlake.model import properties as names
from rocketlake.model.hashes import java_hash
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.queue.light_queues import refused_names

log = logging.getLogger(__name__)

_SHOWN: Final = 100
_INT_MASK: Final = (1 << 32) - 1
_LONG_DIGITS: Final = 19
_CAPACITY: Final = 128
_CAPACITY_4X: Final = 16


class Redelivery(Struct, frozen=True):
    """Makes requests from stored messages, properties in the order that a release writes them.

    Compat: the reference parses the property string into a HashMap and writes it from there
    (MessageDecoder#string2messageProperties); its size, and so its order, changed with 5.x.
    """

    is_4x: bool = False

    def request(
        self, message: StoredMessage, target: QueueKey, properties: Mapping[str, str]
    ) -> DueRequest:
        """Return the request that stores a message in its real queue.

        Body, flags, born time, born host, store host and reconsume times are kept.
        """
        kept = order_properties(properties, is_4x=self.is_4x)
        kept.pop(names.RECORD_CRC, None)  # of the old record
        _drop_bad_light_queues(kept, message.physical_offset)
        return DueRequest(
            message=Message(
                topic=target.topic,
                body=message.stored_body,
                properties=kept,
                flag=message.flag,
                wait=False,
            ),
            queue_id=target.queue_id,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_host=message.store_host,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
        )


def _drop_bad_light_queues(properties: dict[str, str], physical_offset: int) -> None:
    """Remove light queues that a put would refuse.

    Why: a log may hold any name; all messages due after this one would wait for ever.
    """
    wrong = refused_names(properties)
    if not wrong:
        return
    log.warning(
        "delayed message skips light queues of bad names physical_offset=%d names=%r",
        physical_offset,
        [name[:_SHOWN] for name in wrong[:_SHOWN]],
    )
    found = properties.pop(names.MULTI_DISPATCH).split(names.MULTI_SEPARATOR)
    good = [name for name in found if name and name not in wrong]
    if good:
        properties[names.MULTI_DISPATCH] = names.MULTI_SEPARATOR.join(good)


def order_properties(properties: Mapping[str, str], *, is_4x: bool) -> dict[str, str]:
    """Return properties in the order in which a release writes them again."""
    capacity = _CAPACITY_4X if is_4x else _CAPACITY
    return {name: properties[name] for name in hash_map_order(properties, capacity)}


def real_queue(properties: Mapping[str, str]) -> QueueKey | None:
    """Return the real queue of a delayed message; None if its properties lack one."""
    topic = properties.get(names.REAL_TOPIC)
    queue_id = parse_number(properties.get(names.REAL_QUEUE_ID))
    if not topic or queue_id is None or not 0 <= queue_id <= layout.MAX_I32:
        return None
    return QueueKey(topic, queue_id)


def parse_number(text: str | None) -> int | None:
    """Parse a number as Long#parseLong does; None where that fails."""
    if text is None:
        return None
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > _LONG_DIGITS:
        return None
    number = -int(digits) if text.startswith("-") else int(digits)
    return number if -layout.MAX_I64 - 1 <= number <= layout.MAX_I64 else None


def hash_map_order(keys: Iterable[str], capacity: int) -> list[str]:
    """Return keys in the order of a Java HashMap of this initial capacity."""
    found = list(keys)
    while len(found) > capacity * 3 // 4:
        capacity *= 2
    return sorted(found, key=lambda key: _spread_hash(key) & (capacity - 1))


@lru_cache(maxsize=4096)
def _spread_hash(key: str) -> int:
    unsigned = java_hash(key) & _INT_MASK
    return unsigned ^ unsigned >> 16
