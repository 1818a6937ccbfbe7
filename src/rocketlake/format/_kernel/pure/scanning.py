"""Log bytes -> rows: parse, check, say why it stopped."""

import struct
import zlib
from typing import Any, Final

from rocketlake.format import layout
from rocketlake.format._kernel.codes import Check, StopReason
from rocketlake.format._kernel.pure.numbers import i64, numbers, wrap_i64

Buffer = bytes | bytearray | memoryview

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
_SIZE_AND_PLACE = struct.Struct(">i24xq")
_RECONSUME_PREPARED = struct.Struct(">iq")
_ROW = struct.Struct(layout.ROW_FORMAT)

_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20


def scan(
    buffer: Buffer, start: int, end: int, base_offset: int, checks: int, rows: Any
) -> tuple[int, int, int]:
    """Parse records from `start` until something ends it; return count, reason and position.

    `base_offset` is the physical offset of the buffer's first byte. `rows` is a writable buffer;
    the scan also ends, with reason OK, when it has no room for another row. The position is that
    of the first byte not parsed.
    """
    start, end, base_offset = i64(start), i64(end), i64(base_offset)
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
            return count, int(reason), position
        _ROW.pack_into(out, count * layout.ROW_SIZE, *row)
        position += row[9]
    return capacity, int(StopReason.OK), position


def scan_at(buffer: Buffer, places: Any, checks: int, rows: Any, reasons: Any) -> int:
    """Parse the records at given places; return how many of them are good.

    `places` holds three native i64 for each: position in the buffer, size that the queue unit
    claims, physical offset. Row i and reason i belong to place i; the row of a bad one is zero.
    A record whose size is not the claimed one is BAD_SIZE.
    """
    view = memoryview(buffer)
    wanted = numbers(places, "q", 8)
    out = memoryview(rows).cast("B")
    why = memoryview(reasons).cast("B")
    good = 0
    for i in range(min(len(wanted) // 3, len(out) // layout.ROW_SIZE, len(why))):
        position, size, offset = wanted[3 * i : 3 * i + 3]
        reason, row = parse_claimed(view, position, size, offset, checks)
        why[i] = reason
        good += reason == StopReason.OK
        _ROW.pack_into(out, i * layout.ROW_SIZE, *row)
    return good


_NO_ROW: Final = (0,) * 18
_Row = tuple[int, ...]


def parse_claimed(
    view: memoryview, position: int, size: int, offset: int, checks: int
) -> tuple[int, _Row]:
    """Parse the record that a queue unit claims lies at a position."""
    if size < layout.RECORD_MIN_SIZE:
        return StopReason.BAD_SIZE, _NO_ROW
    if position < 0 or position > len(view) - size:
        return StopReason.TORN, _NO_ROW
    reason, row = _parse(view, position, position + size, offset - position, checks)
    if reason == StopReason.OK and row[9] != size:
        return StopReason.BAD_SIZE, _NO_ROW
    return reason, row


def parse_head(
    view: memoryview, position: int, size: int, offset: int, checks: int
) -> tuple[int, _Row]:
    """Look at size, magic and place of the record that a queue unit claims lies at a position.

    The row has its position and size, and nothing else.
    """
    _ = checks
    if size < layout.RECORD_MIN_SIZE:
        return StopReason.BAD_SIZE, _NO_ROW
    if position < 0 or position > len(view) - size:
        return StopReason.TORN, _NO_ROW
    reason = probe(view, position, position + size)
    if reason != StopReason.OK:
        return reason, _NO_ROW
    found, place = _SIZE_AND_PLACE.unpack_from(view, position)
    if place != offset:
        return StopReason.BAD_OFFSET, _NO_ROW
    if found != size:
        return StopReason.BAD_SIZE, _NO_ROW
    return StopReason.OK, (position, offset, *_NO_ROW[2:9], size, *_NO_ROW[10:])


def _parse(
    view: memoryview, position: int, end: int, base_offset: int, checks: int
) -> tuple[int, _Row]:
    """Return OK and a row, or what is wrong and an empty one."""
    reason = probe(view, position, end)
    if reason != StopReason.OK:
        return reason, _NO_ROW
    row = fields(view, position)
    if row is None:
        return StopReason.BAD_SIZE, _NO_ROW
    if checks & Check.OFFSET and row[1] != wrap_i64(base_offset + position):
        return StopReason.BAD_OFFSET, _NO_ROW
    if not _checksums_hold(view, row, checks):
        return StopReason.BAD_CRC, _NO_ROW
    return StopReason.OK, row


def probe(view: memoryview, position: int, end: int) -> int:
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


def fields(view: memoryview, position: int) -> _Row | None:
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
        position,
        physical_offset,
        queue_offset,
        born,
        stored,
        prepared,
        body,
        topic,
        at + 2,
        size,
        body_crc,
        queue_id,
        flag,
        sys_flag,
        reconsume_times,
        body_size,
        topic_size,
        properties_size,
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
    return trailer[9:19] == crc_digits(crc31(view[row[0] : at]))


def crc_digits(crc: int) -> bytes:
    """Spell a checksum in ten digits, the lowest first."""
    return (b"%010d" % crc)[::-1]


def crc31(buffer: Buffer) -> int:
    """Return CRC-32 without its top bit."""
    return zlib.crc32(buffer) & layout.CRC_MASK


def intern_topics(buffer: Buffer, rows: Any, count: int, codes: Any) -> list[bytes]:
    """Number the distinct topics of scanned rows; write each row's number as a native i32."""
    view = memoryview(buffer)
    table = memoryview(rows).cast("B")
    out = numbers(codes, "i", 4)
    found: dict[bytes, int] = {}
    for i in range(min(count, len(out), len(table) // layout.ROW_SIZE)):
        row = _ROW.unpack_from(table, i * layout.ROW_SIZE)
        topic = bytes(view[row[7] : row[7] + row[16]]) if _within(row[7], row[16], view) else b""
        out[i] = found.setdefault(topic, len(found))
    return list(found)


def _within(position: int, size: int, view: memoryview) -> bool:
    return position >= 0 and size >= 0 and position <= len(view) - size
