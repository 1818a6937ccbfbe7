"""Readable reference implementation of the hot loops.

1. This is the specification: `native` gives the same answers on every input, garbage included.
2. Buffers in, integers and buffers out. Nothing here keeps state or calls back.
3. Every read is checked against the end of the buffer.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rocketlake.format import layout
from rocketlake.format._kernel.codes import Check, StopReason
from rocketlake.model.hashes import java_hash, key_hash

Buffer = bytes | bytearray | memoryview

__all__ = [
    "NAME",
    "crc31",
    "decode_properties",
    "encode",
    "encode_batch",
    "encode_properties",
    "filter_units",
    "index_lookup",
    "index_put",
    "intern_topics",
    "java_hash",
    "key_hash",
    "message_properties",
    "scan",
    "scan_at",
    "seal",
]

NAME: Final = "pure"

_HEAD = struct.Struct(
    ">"
    "i"  # total_size
    "i"  # magic
    "i"  # body_crc
    "i"  # queue_id
    "i"  # flag
    "q"  # queue_offset
    "q"  # physical_offset
    "i"  # sys_flag
    "q"  # born_timestamp
)
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_SIZE_MAGIC = struct.Struct(">ii")
_RECONSUME_PREPARED = struct.Struct(">iq")
_ROW = struct.Struct(layout.ROW_FORMAT)
_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")
_UNIT = struct.Struct(">qiq")

_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20


# --- scan --------------------------------------------------------------------------------------


def scan(
    buffer: Buffer, start: int, end: int, base_offset: int, checks: int, rows: Any
) -> tuple[int, int, int]:
    """Parse records from `start` until something ends it; return count, reason and position.

    `base_offset` is the physical offset of the buffer's first byte. `rows` is a writable buffer;
    the scan also ends, with reason OK, when it has no room for another row. The position is that
    of the first byte not parsed.
    """
    if start < 0:
        raise ValueError(f"a scan starts at 0 or later, not at {start}")
    view = memoryview(buffer)
    out = memoryview(rows).cast("B")
    end = min(end, len(view))
    capacity = len(out) // layout.ROW_SIZE
    position = start
    for count in range(capacity):
        reason, row = _parse(view, position, end, base_offset, checks)
        if reason != StopReason.OK:
            return count, reason, position
        _ROW.pack_into(out, count * layout.ROW_SIZE, *row)
        position += row[9]
    return capacity, StopReason.OK, position


def scan_at(
    buffer: Buffer, places: Any, checks: int, rows: Any, reasons: Any
) -> int:
    """Parse the records at given places; return how many of them are good.

    `places` holds three native i64 for each: position in the buffer, size that the queue unit
    claims, physical offset. Row i and reason i belong to place i; the row of a bad one is zero.
    A record whose size is not the claimed one is BAD_SIZE.
    """
    view = memoryview(buffer)
    wanted = memoryview(places).cast("B").cast("q")
    out = memoryview(rows).cast("B")
    why = memoryview(reasons).cast("B")
    good = 0
    for i in range(min(len(wanted) // 3, len(out) // layout.ROW_SIZE, len(why))):
        position, size, offset = wanted[3 * i : 3 * i + 3]
        reason, row = _parse_claimed(view, position, size, offset, checks)
        why[i] = reason
        good += reason == StopReason.OK
        _ROW.pack_into(out, i * layout.ROW_SIZE, *row)
    return good


_NO_ROW: Final = (0,) * 18
_Row = tuple[int, ...]


def _parse_claimed(
    view: memoryview, position: int, size: int, offset: int, checks: int
) -> tuple[int, _Row]:
    if size < layout.RECORD_MIN_SIZE:
        return StopReason.BAD_SIZE, _NO_ROW
    if position < 0 or position > len(view) - size:
        return StopReason.TORN, _NO_ROW
    reason, row = _parse(view, position, position + size, offset - position, checks)
    if reason == StopReason.OK and row[9] != size:
        return StopReason.BAD_SIZE, _NO_ROW
    return reason, row


def _parse(
    view: memoryview, position: int, end: int, base_offset: int, checks: int
) -> tuple[int, _Row]:
    """Return OK and a row, or what is wrong and an empty one."""
    reason = _probe(view, position, end)
    if reason != StopReason.OK:
        return reason, _NO_ROW
    row = _fields(view, position)
    if row is None:
        return StopReason.BAD_SIZE, _NO_ROW
    if checks & Check.OFFSET and row[1] != base_offset + position:
        return StopReason.BAD_OFFSET, _NO_ROW
    if not _checksums_hold(view, row, checks):
        return StopReason.BAD_CRC, _NO_ROW
    return StopReason.OK, row


def _probe(view: memoryview, position: int, end: int) -> int:
    """Look at size and magic alone."""
    left = end - position
    if left <= 0:
        return StopReason.END_OF_DATA
    if left < layout.BLANK_HEADER_SIZE:
        return StopReason.END_OF_DATA if not any(view[position:end]) else StopReason.TORN
    size, magic = _SIZE_MAGIC.unpack_from(view, position)
    if magic == layout.MAGIC_BLANK:
        return StopReason.END_OF_FILE
    if magic == 0 and size == 0:
        return StopReason.END_OF_DATA
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
        return StopReason.BAD_MAGIC
    if size < layout.RECORD_MIN_SIZE:
        return StopReason.BAD_SIZE
    return StopReason.TORN if size > left else StopReason.OK


def _fields(view: memoryview, position: int) -> _Row | None:
    """Read every field of a record that lies wholly in the view; None if lengths disagree."""
    size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = (
        _HEAD.unpack_from(view, position)
    )
    limit = position + size
    at = position + layout.RECORD_BORN_HOST_AT + (20 if sys_flag & _BORN_V6 else 8)
    store_host_size = 20 if sys_flag & _STORE_V6 else 8
    if at + 8 + store_host_size + 12 + 4 > limit:
        return None
    (stored,) = _I64.unpack_from(view, at)
    at += 8 + store_host_size
    reconsume_times, prepared = _RECONSUME_PREPARED.unpack_from(view, at)
    at += 12
    (body_size,) = _I32.unpack_from(view, at)
    body = at + 4
    width = 1 if magic == layout.MAGIC_V1 else 2
    if body_size < 0 or body + body_size + width > limit:
        return None
    at = body + body_size
    topic_size = int.from_bytes(view[at : at + width], "big", signed=True)
    topic = at + width
    if topic_size < 0 or topic + topic_size + 2 > limit:
        return None
    at = topic + topic_size
    properties_size = int.from_bytes(view[at : at + 2], "big", signed=True)
    if properties_size < 0 or at + 2 + properties_size != limit:
        return None
    return (
        *(position, physical_offset, queue_offset, born, stored, prepared, body, topic, at + 2),
        *(size, body_crc, queue_id, flag, sys_flag, reconsume_times, body_size),
        *(topic_size, properties_size),
    )


def _checksums_hold(view: memoryview, row: _Row, checks: int) -> bool:
    if checks & (Check.RECORD_CRC | Check.RECORD_CRC_REQUIRED):
        verdict = _record_crc_holds(view, row)
        if verdict is None and checks & Check.RECORD_CRC_REQUIRED:
            return False
        if verdict is not None:
            return verdict
    if checks & Check.BODY_CRC and row[15]:
        return crc31(view[row[6] : row[6] + row[15]]) == row[10]
    return True


def _record_crc_holds(view: memoryview, row: _Row) -> bool | None:
    """Compare the whole-record checksum; None if the record carries none."""
    if row[17] < layout.RECORD_CRC_SIZE:
        return None
    end = row[0] + row[9]
    at = end - layout.RECORD_CRC_SIZE
    trailer = bytes(view[at:end])
    if trailer[:9] != layout.RECORD_CRC_NAME + b"\x01" or trailer[19] != layout.PROPERTY_END:
        return None
    return trailer[9:19] == _crc_digits(crc31(view[row[0] : at]))


def _crc_digits(crc: int) -> bytes:
    """Spell a checksum in ten digits, the lowest first."""
    return (b"%010d" % crc)[::-1]


def crc31(buffer: Buffer) -> int:
    """Return CRC-32 without its top bit."""
    return zlib.crc32(buffer) & layout.CRC_MASK


# --- topics of a scan --------------------------------------------------------------------------


def intern_topics(buffer: Buffer, rows: Any, count: int, codes: Any) -> list[bytes]:
    """Number the distinct topics of scanned rows; write each row's number as a native i32."""
    view = memoryview(buffer)
    table = memoryview(rows).cast("B")
    out = memoryview(codes).cast("B").cast("i")
    numbers: dict[bytes, int] = {}
    for i in range(min(count, len(out), len(table) // layout.ROW_SIZE)):
        row = _ROW.unpack_from(table, i * layout.ROW_SIZE)
        topic = bytes(view[row[7] : row[7] + row[16]]) if _within(row[7], row[16], view) else b""
        out[i] = numbers.setdefault(topic, len(numbers))
    return list(numbers)


def _within(position: int, size: int, view: memoryview) -> bool:
    return position >= 0 and size >= 0 and position <= len(view) - size


# --- encode, seal ------------------------------------------------------------------------------


def encode(  # noqa: PLR0913, PLR0917 - the fields of a record, in the order of the record
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
    reserve_crc: bool,  # noqa: FBT001 - positional for the compiled twin
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
    try:
        head = _HEAD.pack(
            *(size, magic, crc31(body), queue_id, flag, 0, 0, sys_flag, born_timestamp)
        )
        middle = _RECONSUME_PREPARED.pack(reconsume_times, prepared_transaction_offset)
    except struct.error:
        raise ValueError("a number does not fit into its field of the record") from None
    record = bytearray(head)
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


def encode_batch(  # noqa: PLR0913, PLR0917 - the fields of a record, in the order of the record
    messages: Sequence[Any],
    topic: bytes,
    queue_id: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    version: int,
    trailing: bool,  # noqa: FBT001 - positional for the compiled twin
    reserve_crc: bool,  # noqa: FBT001 - positional for the compiled twin
) -> tuple[bytearray, list[int]]:
    """Encode messages of one topic and queue behind each other; return bytes and record sizes.

    Of each message `body`, `flag`, `properties`, `keys` and `tags` are read.

    Raises:
        ValueError: a field does not fit into the format.
    """
    records = bytearray()
    sizes = []
    for message in messages:
        properties = message_properties(message, trailing)
        record = encode(
            *(topic, message.body, properties, queue_id, message.flag, sys_flag, born_timestamp),
            *(born_host, store_host, 0, 0, version, reserve_crc),
        )
        records += record
        sizes.append(len(record))
    return records, sizes


def seal(  # noqa: PLR0913, PLR0917 - what is known only inside the append lock
    record: Any,
    position: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    with_crc: bool,  # noqa: FBT001 - positional for the compiled twin
) -> int:
    """Write what only the append knows into an encoded record; return its size.

    Raises:
        ValueError: no whole record lies at the position.
    """
    view = memoryview(record).cast("B")
    reason = _probe(view, position, len(view)) if position >= 0 else StopReason.TORN
    row = _fields(view, position) if reason == StopReason.OK else None
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
        if row[17] < layout.RECORD_CRC_SIZE or view[at : at + 8] != layout.RECORD_CRC_NAME:
            raise ValueError(f"record at position {position} has no room for its checksum")
        view[at + 9 : at + 19] = _crc_digits(crc31(view[position:at]))
    return row[9]


# --- properties --------------------------------------------------------------------------------


def encode_properties(
    properties: Mapping[str, str | None],
    trailing: bool,  # noqa: FBT001 - positional for the compiled twin
) -> bytes:
    """Return the property string of a map; `trailing` ends the last property too.

    A property whose value is None is left out.

    Raises:
        ValueError: a name or value holds one of the two separator characters, or a name is empty.
    """
    parts = []
    for name, value in properties.items():
        if value is None:
            continue
        if not name:
            raise ValueError("a property without a name")
        for text in (name, value):
            if "\x01" in text or "\x02" in text:
                raise ValueError(f"property {name!r} holds a separator character")
        parts.append(f"{name}\x01{value}")
    text = "\x02".join(parts)
    if parts and trailing:
        text += "\x02"
    return text.encode()


def message_properties(message: Any, trailing: bool) -> bytes:  # noqa: FBT001 - see encode
    """Return the property string of a message: its properties, then KEYS and TAGS."""
    properties: Mapping[str, str] = message.properties
    keys, tags = message.keys, message.tags
    if (keys and "KEYS" not in properties) or (tags and "TAGS" not in properties):
        properties = dict(properties)
        if keys:
            properties.setdefault("KEYS", " ".join(keys))
        if tags:
            properties.setdefault("TAGS", tags)
    return encode_properties(properties, trailing)


def decode_properties(data: Buffer) -> dict[str, str]:
    """Return the map of a property string; what is not name and value is passed over."""
    found = {}
    for item in bytes(data).split(b"\x02"):
        name, separator, value = item.partition(b"\x01")
        if separator and name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


# --- queue units -------------------------------------------------------------------------------


def filter_units(buffer: Buffer, hashes: Any, keep: Any) -> int:
    """Mark the units whose tags code has one of the hashes (native i32); return how many.

    A unit with an extension address is kept: its code is elsewhere. `keep` has a byte per unit.
    """
    view = memoryview(buffer)
    wanted = set(memoryview(hashes).cast("B").cast("i"))
    out = memoryview(keep).cast("B")
    kept = 0
    for i in range(min(len(view) // layout.UNIT_SIZE, len(out))):
        tags_code = _UNIT.unpack_from(view, i * layout.UNIT_SIZE)[2]
        hit = tags_code <= layout.EXT_ADDRESS_MAX or _low_i32(tags_code) in wanted
        out[i] = hit
        kept += hit
    return kept


def _low_i32(value: int) -> int:
    """Wrap as Java's int does."""
    low = value & 0xFFFFFFFF
    return low - 0x100000000 if low > layout.MAX_I32 else low


def _low_i64(value: int) -> int:
    """Wrap as Java's long does."""
    low = value & 0xFFFFFFFFFFFFFFFF
    return low - 0x10000000000000000 if low > layout.MAX_I64 else low


# --- index -------------------------------------------------------------------------------------


def index_put(  # noqa: PLR0913, PLR0917 - one entry and the shape of its file
    buffer: Any,
    slots: int,
    entries: int,
    hash_: int,
    physical_offset: int,
    store_timestamp: int,
    count_every_put: bool,  # noqa: FBT001 - positional for the compiled twin
) -> bool:
    """Add an entry to an index file and update its header; False if the file is full.

    `count_every_put` counts slots as releases up to 4.6 did.

    Raises:
        ValueError: the buffer is smaller than its slots and entries.
    """
    view = memoryview(buffer).cast("B")
    first_entry = layout.INDEX_HEADER_SIZE + slots * layout.INDEX_SLOT_SIZE
    if slots <= 0 or entries < 0 or len(view) < first_entry + entries * layout.INDEX_ENTRY_SIZE:
        raise ValueError(f"{len(view)} bytes do not hold {slots} slots and {entries} entries")
    begin, end, begin_offset, end_offset, used, count = _INDEX_HEADER.unpack_from(view, 0)
    count = max(count, 1)
    if count >= entries:
        return False
    slot_at = layout.INDEX_HEADER_SIZE + hash_ % slots * layout.INDEX_SLOT_SIZE
    (previous,) = _I32.unpack_from(view, slot_at)
    if previous <= 0 or previous > count:
        previous = 0
    diff = _index_diff(store_timestamp, begin)
    entry_at = first_entry + count * layout.INDEX_ENTRY_SIZE
    _INDEX_ENTRY.pack_into(view, entry_at, hash_, physical_offset, diff, previous)
    _I32.pack_into(view, slot_at, count)
    if count <= 1:
        begin_offset, begin = physical_offset, store_timestamp
    if previous == 0 or count_every_put:
        used = _low_i32(used + 1)
    count += 1
    end_offset, end = physical_offset, store_timestamp
    _INDEX_HEADER.pack_into(view, 0, begin, end, begin_offset, end_offset, used, count)
    return True


def _index_diff(store_timestamp: int, begin: int) -> int:
    """Return whole seconds since the file's begin; Java divides toward zero."""
    diff = _low_i64(store_timestamp - begin)
    if begin <= 0 or diff < 0:
        return 0
    return min(diff // 1000, layout.MAX_I32)


def index_lookup(  # noqa: PLR0913, PLR0917 - the question and the shape of the file
    buffer: Buffer, slots: int, hash_: int, begin: int, end: int, limit: int
) -> list[int]:
    """Return the physical offsets of entries with this hash and a time in range, newest first."""
    view = memoryview(buffer)
    first_entry = layout.INDEX_HEADER_SIZE + slots * layout.INDEX_SLOT_SIZE
    if slots <= 0 or len(view) < first_entry:
        return []
    file_begin, _, _, _, _, count = _INDEX_HEADER.unpack_from(view, 0)
    count = max(count, 1)
    slot_at = layout.INDEX_HEADER_SIZE + hash_ % slots * layout.INDEX_SLOT_SIZE
    (entry,) = _I32.unpack_from(view, slot_at)
    found: list[int] = []
    steps = 0
    while 0 < entry <= count and steps <= count and len(found) < limit:
        entry_at = first_entry + entry * layout.INDEX_ENTRY_SIZE
        if entry_at + layout.INDEX_ENTRY_SIZE > len(view):
            break
        entry_hash, physical_offset, diff, previous = _INDEX_ENTRY.unpack_from(view, entry_at)
        if diff < 0:
            break
        time = _low_i64(file_begin + diff * 1000)
        if entry_hash == hash_ and begin <= time <= end:
            found.append(physical_offset)
        if previous == entry or time < begin:
            break
        entry = previous
        steps += 1
    return found
