"""Values -> records: encode before the append lock, seal inside it."""

import struct
from collections.abc import Sequence
from typing import Any, Final

from rocketlake.format import layout
from rocketlake.format._kernel.codes import StopReason
from rocketlake.format._kernel.pure.numbers import i32, i64
from rocketlake.format._kernel.pure.properties import body_of, message_properties
from rocketlake.format._kernel.pure.scanning import crc31, crc_digits, fields, probe

_HEAD = struct.Struct(">iiiiiqqiq")  # the fields of scanning's head
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_RECONSUME_PREPARED = struct.Struct(">iq")

_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20


def encode(
    topic: bytes,
    body: bytes,
    properties: bytes,
    queue_id: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    version: int,
    reserve_crc: bool,
) -> bytearray:
    """Return a record whose queue offset, physical offset and store time are still zero.

    The host bits of the system flag follow the hosts. With `reserve_crc` room for the
    whole-record checksum is added behind the properties.

    Raises:
        ValueError: a field does not fit into the format.
    """
    sys_flag = _host_flags(sys_flag, born_host, store_host)
    if reserve_crc:
        properties = _with_crc_room(properties)
    _check_lengths(topic, body, properties, version)
    width = 1 if version == 1 else 2
    size = layout.RECORD_FIXED_SIZE + len(born_host) + len(store_host)
    size += 4 + len(body) + width + len(topic) + 2 + len(properties)
    if size > layout.MAX_I32:
        raise ValueError(f"record of {size} bytes is larger than the format allows")
    magic = layout.MAGIC_V1 if version == 1 else layout.MAGIC_V2
    numbers = (i32(queue_id), i32(flag), 0, 0, i32(sys_flag), i64(born_timestamp))
    middle = _RECONSUME_PREPARED.pack(i32(reconsume_times), i64(prepared_transaction_offset))
    record = bytearray(_HEAD.pack(size, magic, crc31(body), *numbers))
    record += born_host
    record += bytes(8)  # store_timestamp
    record += store_host
    record += middle
    record += _I32.pack(len(body))
    record += body
    record += len(topic).to_bytes(width, "big")
    record += topic
    record += len(properties).to_bytes(2, "big")
    record += properties
    return record


def check_shape(topic: bytes, born_host: bytes, store_host: bytes, version: int) -> None:
    """Check what all records of a batch share.

    Raises:
        ValueError: hosts, version or topic do not fit into the format.
    """
    _host_flags(0, born_host, store_host)
    _check_lengths(topic, b"", b"", version)


def _host_flags(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    for host in (born_host, store_host):
        if len(host) not in (layout.HOST_V4_SIZE, layout.HOST_V6_SIZE):
            raise ValueError(f"a host has 8 or 20 bytes, not {len(host)}")
    sys_flag &= ~(_BORN_V6 | _STORE_V6)
    if len(born_host) == layout.HOST_V6_SIZE:
        sys_flag |= _BORN_V6
    if len(store_host) == layout.HOST_V6_SIZE:
        sys_flag |= _STORE_V6
    return sys_flag


def _with_crc_room(properties: bytes) -> bytes:
    if properties and properties[-1] != layout.PROPERTY_END:
        properties += b"\x02"
    return properties + layout.RECORD_CRC_NAME + b"\x01" + b"0" * 10 + b"\x02"


def _check_lengths(topic: bytes, body: bytes, properties: bytes, version: int) -> None:
    if version not in (1, 2):
        raise ValueError(f"a record has version 1 or 2, not {version}")
    limit = layout.MAX_I8 if version == 1 else layout.MAX_I16
    if len(topic) > limit:
        raise ValueError(f"topic of {len(topic)} bytes; version {version} holds {limit}")
    if len(properties) > layout.MAX_I16:
        raise ValueError(f"properties of {len(properties)} bytes; a record holds 32767")
    if len(body) > layout.MAX_I32 - 131072:
        raise ValueError(f"body of {len(body)} bytes is larger than the format allows")


def encode_batch(
    messages: Sequence[Any],
    topic: bytes,
    queue_id: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    version: int,
    trailing: bool,
    reserve_crc: bool,
) -> tuple[bytearray, list[int]]:
    """Encode messages of one topic and queue behind each other; return bytes and record sizes.

    Of each message `body`, `flag`, `properties`, `keys` and `tags` are read.

    Raises:
        ValueError: a field does not fit into the format.
    """
    check_shape(topic, born_host, store_host, version)
    queue_id, sys_flag, born_timestamp = i32(queue_id), i32(sys_flag), i64(born_timestamp)
    records = bytearray()
    sizes = []
    for message in messages:
        body = body_of(message.body)
        properties = message_properties(message, trailing)
        record = encode(
            topic,
            body,
            properties,
            queue_id,
            message.flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_host,
            0,
            0,
            version,
            reserve_crc,
        )
        records += record
        sizes.append(len(record))
    return records, sizes


def seal(
    record: Any,
    position: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    with_crc: bool,
) -> int:
    """Write what only the append knows into an encoded record; return its size.

    Raises:
        ValueError: no whole record lies at the position.
    """
    position, queue_offset = i64(position), i64(queue_offset)
    physical_offset, store_timestamp = i64(physical_offset), i64(store_timestamp)
    view = memoryview(record).cast("B")
    reason = probe(view, position, len(view)) if position >= 0 else StopReason.TORN
    row = fields(view, position) if reason == StopReason.OK else None
    if row is None:
        raise ValueError(f"no whole record at position {position}")
    end = position + row[9]
    _I64.pack_into(view, position + layout.RECORD_QUEUE_OFFSET_AT, queue_offset)
    _I64.pack_into(view, position + layout.RECORD_PHYSICAL_OFFSET_AT, physical_offset)
    born_host_size = 20 if row[13] & _BORN_V6 else 8
    at = position + layout.RECORD_BORN_HOST_AT + born_host_size
    _I64.pack_into(view, at, store_timestamp)
    if with_crc:
        at = end - layout.RECORD_CRC_SIZE
        if row[17] < layout.RECORD_CRC_SIZE or bytes(view[at : at + 8]) != layout.RECORD_CRC_NAME:
            raise ValueError(f"record at position {position} has no room for its checksum")
        view[at + 9 : at + 19] = crc_digits(crc31(view[position:at]))
    return row[9]
