"""Messages -> sealed records, straight into a file's memory.

1. Eight bytes behind the last record stay free: a file must have room for its blank record.
2. What does not fit, or cannot be encoded, leaves nothing behind.
3. A guarded frame takes only plain messages: those that need nothing but the append and are not too
   large. For others an append returns 0, and the caller takes the way through the checks of a put.
"""

from collections.abc import Sequence
from typing import Any

from rocketlake.format import layout
from rocketlake.format._kernel.pure.encoding import check_shape, encode, seal
from rocketlake.format._kernel.pure.numbers import i32, i64, wrap_i64
from rocketlake.format._kernel.pure.properties import body_of, message_properties

_RESERVED = frozenset({b"DELAY", b"WAIT", b"__CRC32#"})
_RESERVED_PREFIXES = (b"TIMER_", b"INNER_")


class RecordFrame:
    """What the records of one topic and queue share; made before the append lock is taken."""

    __slots__ = (
        "topic", "queue_id", "sys_flag", "born_host", "store_host", "reconsume_times",
        "prepared", "version", "trailing", "reserve_crc", "body_max", "record_max",
        "batch_max", "is_guarded", "topic_text",
    )  # fmt: skip

    def __init__(
        self,
        topic: bytes,
        queue_id: int,
        sys_flag: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        prepared: int,
        version: int,
        trailing: bool,
        reserve_crc: bool,
        body_max: int,
        record_max: int,
        batch_max: int,
        is_guarded: bool,
    ) -> None:
        """Check what can be checked without a message.

        Raises:
            ValueError: a field does not fit into the format.
        """
        check_shape(topic, born_host, store_host, version)
        self.topic = topic
        self.queue_id = i32(queue_id)
        self.sys_flag = i32(sys_flag)
        self.born_host = born_host
        self.store_host = store_host
        self.reconsume_times = i32(reconsume_times)
        self.prepared = i64(prepared)
        self.version = version
        self.trailing = trailing
        self.reserve_crc = reserve_crc
        self.body_max = i64(body_max)
        self.record_max = i64(record_max)
        self.batch_max = i64(batch_max)
        self.topic_text = topic.decode("utf-8", "surrogateescape")
        self.is_guarded = is_guarded


def append(
    buffer: Any,
    at: int,
    message: Any,
    frame: RecordFrame,
    born_timestamp: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> int:
    """Write a sealed record at a position; return its size, negative if it does not fit.

    0: the message does not qualify for the guarded frame.

    Raises:
        ValueError: a field does not fit into the format.
    """
    found = _append(
        buffer,
        at,
        [message],
        frame,
        born_timestamp,
        queue_offset,
        physical_offset,
        store_timestamp,
        False,
    )
    return found if isinstance(found, int) else found[0]


def append_batch(
    buffer: Any,
    at: int,
    messages: Sequence[Any],
    frame: RecordFrame,
    born_timestamp: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> list[int] | int:
    """Write sealed records behind each other; return their sizes, or their sum negative.

    Queue offsets count on by one, physical offsets by the sizes. 0: a message, or all of them
    together, do not qualify for the guarded frame; one may have another topic than the frame.

    Raises:
        ValueError: a field does not fit into the format.
    """
    return _append(
        buffer,
        at,
        messages,
        frame,
        born_timestamp,
        queue_offset,
        physical_offset,
        store_timestamp,
        True,
    )


def _append(
    buffer: Any,
    at: int,
    messages: Sequence[Any],
    frame: RecordFrame,
    born_timestamp: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    is_batch: bool,
) -> list[int] | int:
    view = memoryview(buffer).cast("B")
    at = i64(at)
    if at < 0 or at > len(view):
        raise ValueError(f"position {at} lies outside the buffer")
    born = i64(born_timestamp)
    places = (i64(queue_offset), i64(physical_offset), i64(store_timestamp))
    records: list[bytearray] = []
    total = 0
    for message in messages:
        if frame.is_guarded and is_batch and message.topic != frame.topic_text:
            return 0
        record = _encode(message, frame, born)
        if record is None:
            return 0
        if frame.is_guarded and is_batch and total + len(record) > frame.batch_max:
            return 0
        offset = wrap_i64(places[1] + total)
        queue_place = wrap_i64(places[0] + len(records))
        seal(record, 0, queue_place, offset, places[2], frame.reserve_crc)
        total += len(record)
        records.append(record)
    if total > len(view) - at - layout.BLANK_HEADER_SIZE:
        return -total
    view[at : at + total] = b"".join(records)
    return [len(record) for record in records]


def _encode(message: Any, frame: RecordFrame, born: int) -> bytearray | None:
    body = body_of(message.body)
    if frame.is_guarded and (len(body) > frame.body_max or not _is_plain(message)):
        return None
    properties = message_properties(message, frame.trailing)
    if frame.is_guarded:
        width = len(properties)
        if frame.reserve_crc:
            width += layout.RECORD_CRC_SIZE + (not frame.trailing and width > 0)
        if width > layout.MAX_I16:
            return None
    record = encode(
        frame.topic,
        body,
        properties,
        frame.queue_id,
        message.flag,
        frame.sys_flag,
        born,
        frame.born_host,
        frame.store_host,
        frame.reconsume_times,
        frame.prepared,
        frame.version,
        frame.reserve_crc,
    )
    return None if frame.is_guarded and len(record) > frame.record_max else record


def _is_plain(message: Any) -> bool:
    if message.delay_level or message.deliver_at is not None or not message.wait:
        return False
    return not any(is_reserved(name.encode()) for name in message.properties)


def is_reserved(name: bytes) -> bool:
    """Tell whether the store itself acts on a property of this name."""
    return name in _RESERVED or name.startswith(_RESERVED_PREFIXES)
