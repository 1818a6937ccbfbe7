"""Queue units and rows -> messages.

1. Units are read from one file of a queue, records from one file of the log: the caller
   changes the file when a unit lies outside.
2. A message has the number of its unit for a queue offset, whatever its record says.
"""

import struct
from typing import Any, Final, NamedTuple

from rocketlake.format import layout
from rocketlake.format._kernel.codes import Check, ReadStop, StopReason
from rocketlake.format._kernel.pure.lines import is_inside
from rocketlake.format._kernel.pure.message import StoredMessage, make_message
from rocketlake.format._kernel.pure.numbers import i64, numbers, wrap_i64
from rocketlake.format._kernel.pure.scanning import parse_claimed, parse_head
from rocketlake.model.hashes import wrap_int

Buffer = bytes | bytearray | memoryview

LIMIT_MAX: Final = 1 << 62
_FULL_CHECKS: Final = Check.HEAD_ONLY - 1

_ROW = struct.Struct(layout.ROW_FORMAT)
_UNIT = struct.Struct(">qiq")
_BASE_AND_BATCH = struct.Struct(">qh")
_Row = tuple[int, ...]


def make_messages(buffer: Buffer, rows: Any) -> list[StoredMessage]:
    """Return a message for each row.

    Raises:
        ValueError: a row lies outside the buffer.
    """
    view = memoryview(buffer)
    table = memoryview(rows).cast("B")
    found = []
    for i in range(len(table) // layout.ROW_SIZE):
        row = _ROW.unpack_from(table, i * layout.ROW_SIZE)
        if not is_inside(row, len(view)):
            raise ValueError(f"row {i} lies outside the buffer")
        found.append(make_message(view, row, row[2], _topic(view, row)))
    return found


def read_units(
    messages: list[StoredMessage],
    units: Buffer,
    start: int,
    unit_size: int,
    queue_offset: int,
    stop_offset: int,
    log: Buffer,
    log_size: int,
    log_base: int,
    log_end: int,
    checks: int,
    hashes: Any,
    limits: tuple[int, int, int, int, int],
    may_wait: bool,
) -> tuple[int, int, int, int, int, int]:
    """Append the messages of units to a list, until something ends it.

    `units` holds plain units or, with their size, batch units; the one at index `start` has the
    number `queue_offset` if it is plain. Units from the number `stop_offset` on are not looked at.
    `log` begins at the physical offset `log_base`, and its first `log_size` bytes count; a unit
    that points before it, or not before `log_end`, is outside. With `hashes` (native i32) a unit
    whose tags code has none of them is passed over. `limits` are: messages and bytes there are
    already, the most messages, how many messages end it whatever the next unit stands for, the
    most bytes; the first message always passes. `may_wait` says that records may have to
    come from the disk; other threads then run meanwhile.

    Returns how many units were looked at, a ReadStop, the StopReason of a damaged record, the
    queue offset behind the last unit looked at, and the messages and bytes there are then.
    """
    _ = may_wait
    begin = _begin(unit_size, start, queue_offset, limits)
    walk = _walk(units, unit_size, stop_offset, log, log_size, log_base, log_end)
    wanted = None if hashes is None else frozenset(numbers(hashes, "i", 4))
    rows, stop, damage, end = _read(walk, begin, checks & _FULL_CHECKS, wanted, limits)
    for row, number in rows:
        messages.append(make_message(walk.log, row, number, _topic(walk.log, row)))
    return (
        end.unit_index - start,
        int(stop),
        damage,
        end.next_offset,
        end.message_count,
        end.size,
    )


def read_ranges(
    units: Buffer,
    start: int,
    unit_size: int,
    queue_offset: int,
    stop_offset: int,
    log: Buffer,
    log_size: int,
    log_base: int,
    log_end: int,
    checks: int,
    hashes: Any,
    limits: tuple[int, int, int, int, int],
    may_wait: bool,
) -> tuple[list[tuple[int, int]], int, int, int, int, int, int]:
    """Find where the records of units lie, until something ends it; neighbours are one range.

    As `read_units`; with the check HEAD_ONLY of each record only size, magic and place are looked
    at. Returns begins and ends as positions in `log`, and then what `read_units`
    returns.
    """
    _ = may_wait
    begin = _begin(unit_size, start, queue_offset, limits)
    walk = _walk(units, unit_size, stop_offset, log, log_size, log_base, log_end)
    wanted = None if hashes is None else frozenset(numbers(hashes, "i", 4))
    rows, stop, damage, end = _read(walk, begin, checks, wanted, limits)
    ranges: list[tuple[int, int]] = []
    for row, _ in rows:
        position, after = row[0], row[0] + row[9]
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], after)
        else:
            ranges.append((position, after))
    return (
        ranges,
        end.unit_index - start,
        int(stop),
        damage,
        end.next_offset,
        end.message_count,
        end.size,
    )


def read_columns(
    units: Buffer,
    start: int,
    unit_size: int,
    queue_offset: int,
    stop_offset: int,
    log: Buffer,
    log_size: int,
    log_base: int,
    log_end: int,
    checks: int,
    limits: tuple[int, int],
    may_wait: bool,
) -> tuple[bytes, bytearray, int, int, int, int]:
    """Copy the records of units behind each other, and parse them, until something ends it.

    As `read_units`; `limits` are the most messages and the most bytes. Returns the bytes, the
    rows with positions in them, how many units were looked at, a ReadStop, the StopReason of a
    damaged record, and the queue offset behind the last unit.
    """
    _ = may_wait
    count_max, size_max = limits
    bounds = (0, 0, count_max, LIMIT_MAX, size_max)
    begin = _begin(unit_size, start, queue_offset, bounds)
    walk = _walk(units, unit_size, stop_offset, log, log_size, log_base, log_end)
    found, stop, damage, end = _read(walk, begin, checks & _FULL_CHECKS, None, bounds)
    data, rows = bytearray(), bytearray()
    for row, number in found:
        moved = len(data) - row[0]
        data += walk.log[row[0] : row[0] + row[9]]
        rows += _ROW.pack(
            row[0] + moved,
            row[1],
            number,
            *row[3:6],
            *(position + moved for position in row[6:9]),
            *row[9:],
        )
    return bytes(data), rows, end.unit_index - start, int(stop), damage, end.next_offset


class _Walk(NamedTuple):
    """What does not change while units are read."""

    units: memoryview
    unit_size: int
    stop_offset: int
    log: memoryview
    log_base: int
    log_end: int


def _walk(
    units: Buffer,
    unit_size: int,
    stop_offset: int,
    log: Buffer,
    log_size: int,
    log_base: int,
    log_end: int,
) -> _Walk:
    log = memoryview(log)[: max(i64(log_size), 0)]
    return _Walk(memoryview(units), unit_size, i64(stop_offset), log, i64(log_base), i64(log_end))


class _Place(NamedTuple):
    """How far reading has come."""

    unit_index: int
    next_offset: int
    message_count: int
    size: int


def _begin(unit_size: int, start: int, queue_offset: int, limits: tuple[int, ...]) -> _Place:
    if unit_size not in (layout.UNIT_SIZE, layout.BATCH_UNIT_SIZE):
        raise ValueError(f"a unit has 20 or 46 bytes, not {unit_size}")
    if i64(start) < 0:
        raise ValueError(f"units are counted from 0, not from {start}")
    count, size, *_ = limits
    for limit in limits:
        if not 0 <= limit <= LIMIT_MAX:
            raise ValueError(f"a limit lies between 0 and 2**62, unlike {limit}")
    return _Place(start, i64(queue_offset), count, size)


def _read(
    walk: _Walk,
    place: _Place,
    checks: int,
    hashes: frozenset[int] | None,
    limits: tuple[int, int, int, int, int],
) -> tuple[list[tuple[_Row, int]], ReadStop, int, _Place]:
    """Return rows with their numbers, why it ended, and how far it came."""
    rows: list[tuple[_Row, int]] = []
    units, is_batch = walk.units, walk.unit_size == layout.BATCH_UNIT_SIZE
    while (place.unit_index + 1) * walk.unit_size <= len(units):
        at = place.unit_index * walk.unit_size
        physical_offset, size, tags_code = _UNIT.unpack_from(units, at)
        number, messages = place.next_offset, 1
        if is_batch:
            number, messages = _BASE_AND_BATCH.unpack_from(units, at + 28)
            messages = max(messages, 1)
        if number >= walk.stop_offset:
            break
        if not walk.log_base <= physical_offset < walk.log_end:
            return rows, ReadStop.OUTSIDE, 0, place
        if _is_full(place, messages, size, limits):
            return rows, ReadStop.FULL, 0, place
        count, total = place.message_count, place.size
        if _may_want(tags_code, hashes):
            position = physical_offset - walk.log_base
            look = parse_head if checks & Check.HEAD_ONLY else parse_claimed
            reason, row = look(walk.log, position, size, physical_offset, checks)
            if reason != StopReason.OK:
                return rows, ReadStop.DAMAGED, int(reason), place
            rows.append((row, number))
            count, total = count + messages, total + size
        place = _Place(place.unit_index + 1, wrap_i64(number + messages), count, total)
    return rows, ReadStop.END, 0, place


def _is_full(
    place: _Place, messages: int, size: int, limits: tuple[int, int, int, int, int]
) -> bool:
    _, _, count_max, count_stop, size_max = limits
    if place.message_count == 0:
        return False
    is_count_reached = (
        place.message_count + messages > count_max or place.message_count >= count_stop
    )
    return is_count_reached or place.size + size > size_max


def _may_want(tags_code: int, hashes: frozenset[int] | None) -> bool:
    if hashes is None or tags_code <= layout.EXT_ADDRESS_MAX:
        return True
    return wrap_int(tags_code) in hashes


def _topic(view: memoryview, row: _Row) -> str:
    return str(view[row[7] : row[7] + row[16]], "utf-8", "replace")
