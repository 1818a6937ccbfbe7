"""Messages -> sealed records, straight into a file's memory.

An envelope is (queue_id, sys_flag, born_timestamp, born_host, store_host, reconsume_times,
prepared_transaction_offset, version, trailing, reserve_crc): what is known before the append lock.
Eight bytes behind the last record stay free: a file must have room for its blank record.
"""

from collections.abc import Sequence
from typing import Any

from rocketlake.format import layout
from rocketlake.format._kernel.pure.encoding import check_shape, encode, seal
from rocketlake.format._kernel.pure.numbers import i32, i64, wrap_i64
from rocketlake.format._kernel.pure.properties import message_properties

Envelope = tuple[int, int, int, bytes, bytes, int, int, int, bool, bool]


def append(
    buffer: Any,
    at: int,
    message: Any,
    topic: bytes,
    envelope: Envelope,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> int:
    """Write a sealed record at a position; return its size, negative if it does not fit.

    Raises:
        ValueError: a field does not fit into the format.
    """
    found = append_batch(
        *(buffer, at, [message], topic, envelope, queue_offset, physical_offset, store_timestamp)
    )
    return found if isinstance(found, int) else found[0]


def append_batch(
    buffer: Any,
    at: int,
    messages: Sequence[Any],
    topic: bytes,
    envelope: Envelope,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> list[int] | int:
    """Write sealed records behind each other; return their sizes, or their sum negative.

    Queue offsets count on by one, physical offsets by the sizes. Of records that do not fit
    together some may have been written: the caller fills the file.

    Raises:
        ValueError: a field does not fit into the format.
    """
    view = memoryview(buffer).cast("B")
    at = i64(at)
    if at < 0 or at > len(view):
        raise ValueError(f"position {at} lies outside the buffer")
    # fmt: off
    (
        queue_id, sys_flag, born, born_host, store_host, reconsume, prepared,
        version, trailing, reserve_crc,
    ) = envelope
    # fmt: on
    check_shape(topic, born_host, store_host, version)
    numbers = (i32(queue_id), i32(sys_flag), i64(born), i32(reconsume), i64(prepared))
    places = (i64(queue_offset), i64(physical_offset), i64(store_timestamp))
    room = len(view) - at - layout.BLANK_HEADER_SIZE
    sizes: list[int] = []
    total = 0
    for message in messages:
        body = bytes(message.body)
        record = encode(
            topic,
            body,
            message_properties(message, trailing),
            numbers[0],
            message.flag,
            numbers[1],
            numbers[2],
            born_host,
            store_host,
            numbers[3],
            numbers[4],
            version,
            reserve_crc,
        )
        offset = wrap_i64(places[1] + total)
        seal(record, 0, wrap_i64(places[0] + len(sizes)), offset, places[2], reserve_crc)
        if total + len(record) <= room:
            view[at + total : at + total + len(record)] = record
        total += len(record)
        sizes.append(len(record))
    return sizes if total <= room else -total
