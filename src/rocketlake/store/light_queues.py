"""Records that enter several queues: which ones, and at which offsets (multi-dispatch)."""

from collections.abc import Iterator, Mapping

from rocketlake.model import properties as names
from rocketlake.model.topics import SCHEDULE_TOPIC, SYSTEM_PREFIX, is_retry_topic


def may_fan_out(topic: str) -> bool:
    """Tell whether records of a topic may enter light queues too."""
    # Compat: as in MultiDispatchUtils#checkMultiDispatchQueue.
    return not (is_retry_topic(topic) or topic.startswith(SYSTEM_PREFIX) or topic == SCHEDULE_TOPIC)


def light_places(properties: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the light queues a record names, and its offset in each."""
    queues = properties.get(names.MULTI_DISPATCH, "").split(names.MULTI_SEPARATOR)
    offsets = properties.get(names.MULTI_QUEUE_OFFSET, "").split(names.MULTI_SEPARATOR)
    for name, text in zip(queues, offsets, strict=False):
        offset = number_of(text, -1)
        if name and offset >= 0:
            yield name, offset


def number_of(text: str | None, default: int) -> int:
    """Return the number a property holds; the default if it is none."""
    try:
        return int(text) if text else default
    except ValueError:
        return default
