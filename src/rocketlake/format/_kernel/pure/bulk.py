"""Rows of columns -> staged records -> sealed records in a file's memory, many at a time.

A staged record is a record whose place is not known yet. Until it is appended, three of its fields
say where it wants to go:

1. the queue offset is the number of its route: a topic of the table that the append is given;
2. the queue id is a queue; or -1: the route's queues take turns; or -2: the queue of its key;
3. the physical offset is then the Java hash of that key.

Anything else in a stream of staged records has a size, another magic, and is left to the caller.
"""

import struct
from collections.abc import Sequence
from typing import Any

from rocketlake.format import layout
from rocketlake.format._kernel.codes import BulkStop
from rocketlake.format._kernel.pure.encoding import encode
from rocketlake.format._kernel.pure.numbers import i64, wrap_i64
from rocketlake.format._kernel.pure.scanning import crc31, crc_digits

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_PLACES = struct.Struct(">qq")
_HEAD = struct.Struct(">ii")
_MAGICS = (layout.MAGIC_V1, layout.MAGIC_V2)
_BORN_V6 = 0x10
_TURN = -1
_BY_KEY = -2


def encode_rows(
    bodies: Any,
    body_places: Any,
    texts: Any,
    text_places: Any,
    rows: Any,
    topics: Sequence[bytes],
    versions: Sequence[int],
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    trailing: bool,
    reserve_crc: bool,
) -> bytearray:
    """Return staged records for rows.

    Row i has the bytes between places i and i + 1 (i64) as its body, and likewise its property
    string, whose last property is ended; `rows` has its route, queue, key hash and flag (i32).

    Raises:
        ValueError: a place or route lies outside, or a field does not fit into the format.
    """
    body_view, text_view = memoryview(bodies).cast("B"), memoryview(texts).cast("B")
    body_ends, text_ends = memoryview(body_places), memoryview(text_places)
    table = memoryview(rows)
    count = len(table)
    if len(body_ends) != count + 1 or len(text_ends) != count + 1:
        raise ValueError("places are one more than rows")
    if len(versions) != len(topics):
        raise ValueError("each topic has a version")
    born_timestamp = i64(born_timestamp)
    out = bytearray()
    for i in range(count):
        route, queue_id, key_hash, flag = (table[i, column] for column in range(4))
        if not 0 <= route < len(topics):
            raise ValueError(f"row {i} is of topic {route}, and there are {len(topics)}")
        body = _between(body_view, body_ends[i], body_ends[i + 1], i)
        text = _between(text_view, text_ends[i], text_ends[i + 1], i)
        record = encode(
            topics[route],
            body,
            text if trailing else text[:-1],
            queue_id,
            flag,
            0,
            born_timestamp,
            born_host,
            store_host,
            0,
            0,
            versions[route],
            reserve_crc,
        )
        _PLACES.pack_into(record, layout.RECORD_QUEUE_OFFSET_AT, route, key_hash)
        out += record
    return out


def _between(view: memoryview, start: int, end: int, row: int) -> bytes:
    if not 0 <= start <= end <= len(view):
        raise ValueError(f"row {row} lies outside the buffer")
    return bytes(view[start:end])


def append_rows(
    buffer: Any,
    at: int,
    records: Any,
    position: int,
    routes: Any,
    offsets: Any,
    physical_offset: int,
    store_timestamp: int,
    with_crc: bool,
) -> tuple[int, int, int, int]:
    """Copy staged records into a file's memory and seal them, until something ends it.

    A route has the number of its first slot, how many queues it has (0: the caller puts its records
    by hand), whose turn it is, and bytes appended so far; `offsets` has the next queue offset of
    each slot. Both are i64 and move on. Return why it ended, how many records were written, where
    the next one begins, and how many bytes were written.

    Raises:
        ValueError: a position lies outside its buffer.
    """
    view = memoryview(buffer).cast("B")
    source = memoryview(records).cast("B")
    table, slots = memoryview(routes), memoryview(offsets)
    at, position, place = i64(at), i64(position), i64(physical_offset)
    if not 0 <= at <= len(view):
        raise ValueError(f"position {at} lies outside the buffer")
    if not 0 <= position <= len(source):
        raise ValueError(f"position {position} lies outside the records")
    now = i64(store_timestamp)
    room = len(view) - at - layout.BLANK_HEADER_SIZE
    stop, count, done = BulkStop.DONE, 0, 0
    while position < len(source):
        stop, size, route, queue = _look(source, position, table, with_crc)
        if stop != BulkStop.DONE:
            break
        slot = table[route, 0] + queue
        if not 0 <= slot < len(slots):
            stop = BulkStop.BAD
            break
        if size > room - done:
            stop = BulkStop.FULL
            break
        record = bytearray(source[position : position + size])
        _seal(record, queue, (slots[slot], wrap_i64(place + done), now), with_crc)
        view[at + done : at + done + size] = record
        slots[slot] = wrap_i64(slots[slot] + 1)
        if _queue_id(source, position) == _TURN:
            table[route, 2] = (queue + 1) % table[route, 1]
        table[route, 3] = wrap_i64(table[route, 3] + size)
        position, done, count = position + size, done + size, count + 1
    return int(stop), count, position, done


def _queue_id(source: memoryview, position: int) -> int:
    return int(_I32.unpack_from(source, position + layout.RECORD_QUEUE_ID_AT)[0])


def _look(
    source: memoryview, position: int, table: Any, with_crc: bool
) -> tuple[BulkStop, int, int, int]:
    """Return whether a staged record may be appended, its size, its route and its queue."""
    bad = (BulkStop.BAD, 0, 0, 0)
    left = len(source) - position
    if left < _HEAD.size:
        return bad
    size, magic = _HEAD.unpack_from(source, position)
    if not _HEAD.size <= size <= left:
        return bad
    if magic not in _MAGICS:
        return (BulkStop.BY_HAND, size, 0, 0)
    if size < layout.RECORD_MIN_SIZE:
        return bad
    route = _I64.unpack_from(source, position + layout.RECORD_QUEUE_OFFSET_AT)[0]
    if not 0 <= route < len(table):
        return bad
    count = table[route, 1]
    if count == 0:
        return (BulkStop.BY_HAND, size, 0, 0)
    queue = _queue_id(source, position)
    if queue == _TURN:
        queue = table[route, 2]
    elif queue == _BY_KEY:
        key_hash = _I32.unpack_from(source, position + layout.RECORD_PHYSICAL_OFFSET_AT + 4)[0]
        queue = abs(key_hash) % count if count > 0 else -1
    trailer = bytes(source[position + size - layout.RECORD_CRC_SIZE :][:8])
    if not 0 <= queue < count or (with_crc and trailer != layout.RECORD_CRC_NAME):
        return bad
    return (BulkStop.DONE, size, route, queue)


def _seal(record: bytearray, queue: int, places: tuple[int, int, int], with_crc: bool) -> None:
    _I32.pack_into(record, layout.RECORD_QUEUE_ID_AT, queue)
    _PLACES.pack_into(record, layout.RECORD_QUEUE_OFFSET_AT, places[0], places[1])
    flags = _I32.unpack_from(record, layout.RECORD_SYS_FLAG_AT)[0]
    born_size = layout.HOST_V6_SIZE if flags & _BORN_V6 else layout.HOST_V4_SIZE
    _I64.pack_into(record, layout.RECORD_BORN_HOST_AT + born_size, places[2])
    if with_crc:
        end = len(record) - layout.RECORD_CRC_SIZE
        record[end + 9 : end + 19] = crc_digits(crc31(memoryview(record)[:end]))
