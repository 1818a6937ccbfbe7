"""Small changes of a message before its append, and questions about it."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rocketlake.format.appending import are_inert
from rocketlake.model import properties as names
from rocketlake.model.message import Message
from rocketlake.store.log.queue_offsets import QueueSlot

_INERT_BODIES: Final = (bytes, bytearray, memoryview)


def waits_for_answer(message: Message) -> bool:
    """Tell whether a put waits until disk and replicas have the message."""
    return message.wait and message.properties.get(names.WAIT) != "false"


def light_offsets(light: Sequence[QueueSlot]) -> Mapping[str, str]:
    """Return the property that names the queue offsets of a message in light queues."""
    offsets = names.MULTI_SEPARATOR.join(str(slot.next_offset) for slot in light)
    return {names.MULTI_QUEUE_OFFSET: offsets}


def with_properties(message: Message, changes: Mapping[str, str]) -> Message:
    """Return the message with properties replaced where they are, or added at the end."""
    return replace(message, properties={**message.properties, **changes})


def without_property(message: Message, name: str) -> Message:
    """Return the message without one of its properties."""
    if name not in message.properties:
        return message
    kept = {key: value for key, value in message.properties.items() if key != name}
    return replace(message, properties=kept)


def inert(message: Message) -> Message:
    """Return the message in types whose reading runs no code of its sender.

    Why: records are encoded under the append lock. A mapping that itself puts a message would wait
    for that lock forever.
    """
    if are_inert((message,)):
        return message
    body, keys = message.body, message.keys
    is_inert = type(body) in _INERT_BODIES or not hasattr(type(body), "__buffer__")
    return replace(
        message,
        body=body if is_inert else bytes(memoryview(body)),
        keys=keys if isinstance(keys, str) else list(keys),
        properties=dict(message.properties),
    )


def plain_fields(message: Message, *, drops_crc: bool) -> Message:
    """Return the message with its delay, if no hook has handled it, as a property."""
    is_plain = not message.delay_level and message.deliver_at is None
    if is_plain and not (drops_crc and names.RECORD_CRC in message.properties):
        return message
    properties = dict(message.properties)
    if drops_crc:
        properties.pop(names.RECORD_CRC, None)
    if message.delay_level:
        properties[names.DELAY] = str(message.delay_level)
    return replace(message, properties=properties, delay_level=0, deliver_at=None)
