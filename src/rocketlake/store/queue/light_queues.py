"""Records that enter several queues: which ones, and at which offsets (multi-dispatch)."""

from collections.abc import Iterator, Mapping
from typing import Final

from rocketlake.model import properties as names
from rocketlake.model.topics import (
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
    can_name_queues,
    is_lmq,
    is_retry_topic,
    is_system_topic,
)
from rocketlake.store.queue.unit_kind import QUEUE_OFFSET_MAX

_I64_MAX: Final = (1 << 63) - 1
_I16_MAX: Final = (1 << 15) - 1


def may_fan_out(topic: str) -> bool:
    """Tell whether records of a topic may enter light queues too."""
    # Compat: as in MultiDispatchUtils#checkMultiDispatchQueue.
    return not (is_retry_topic(topic) or topic.startswith(SYSTEM_PREFIX) or topic == SCHEDULE_TOPIC)


def light_places(properties: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the light queues a record names, and its offset in each.

    Names that no queue can have, and the store's own topics, are left out: a put refuses them, but
    a log may hold any bytes.
    """
    queues = properties.get(names.MULTI_DISPATCH, "").split(names.MULTI_SEPARATOR)
    offsets = properties.get(names.MULTI_QUEUE_OFFSET, "").split(names.MULTI_SEPARATOR)
    for name, text in zip(queues, offsets, strict=False):
        offset = number_of(text, -1)
        if 0 <= offset <= QUEUE_OFFSET_MAX and can_name_queues(name) and not is_system_topic(name):
            yield name, offset


def inner_batch(properties: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """Return the first queue offset of a record that is a batch, and how many messages it is."""
    base = number_of(properties.get(names.INNER_BASE), queue_offset)
    count = number_of(properties.get(names.INNER_NUM), 1)
    return (
        base if 0 <= base <= QUEUE_OFFSET_MAX else queue_offset,
        count if 1 <= count <= _I16_MAX else 1,
    )


def impossible_names(properties: Mapping[str, str]) -> list[str]:
    """Return the light queues a message names that cannot be."""
    found = properties.get(names.MULTI_DISPATCH, "").split(names.MULTI_SEPARATOR)
    return [name for name in found if name and not can_name_queues(name)]


def refused_names(properties: Mapping[str, str]) -> list[str]:
    """Return the names that no message may be put to as to a light queue.

    Why only `%LMQ%…`: the queues of a topic have messages of their own, whose numbers are given
    out one after the other.
    """
    found = properties.get(names.MULTI_DISPATCH, "").split(names.MULTI_SEPARATOR)
    return [name for name in found if name and not (is_lmq(name) and can_name_queues(name))]


def number_of(text: str | None, default: int) -> int:
    """Return the number of 64 bits a property holds; the default if it is none."""
    try:
        found = int(text) if text else default
    except ValueError:
        return default
    return found if -_I64_MAX <= found <= _I64_MAX else default
