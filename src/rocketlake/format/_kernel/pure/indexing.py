"""Index file: put entries, look a hash up, walk a chain."""

import struct
from typing import Any

from rocketlake.format import layout
from rocketlake.format._kernel.pure.numbers import i32, i64, numbers, wrap_i64
from rocketlake.model.hashes import wrap_int

Buffer = bytes | bytearray | memoryview

_I32 = struct.Struct(">i")
_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")


def index_put(
    buffer: Any,
    slots: int,
    entries: int,
    hash_: int,
    physical_offset: int,
    store_timestamp: int,
    count_every_put: bool,
) -> bool:
    """Add an entry to an index file and update its header; False if the file is full.

    `count_every_put` counts slots as releases up to 4.6 did.

    Raises:
        ValueError: the buffer is smaller than its slots and entries.
    """
    slots, entries, hash_ = i64(slots), i64(entries), i32(hash_)
    physical_offset, store_timestamp = i64(physical_offset), i64(store_timestamp)
    view = memoryview(buffer).cast("B")
    first_entry = _first_entry(view, slots, entries)
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
        used = wrap_int(used + 1)
    count += 1
    end_offset, end = physical_offset, store_timestamp
    _INDEX_HEADER.pack_into(view, 0, begin, end, begin_offset, end_offset, used, count)
    return True


def put_entries(
    buffer: Any,
    slots: int,
    entries: int,
    hashes: Any,
    physical_offsets: Any,
    store_timestamps: Any,
    count_every_put: bool,
) -> int:
    """Put one entry behind the other until the file is full; return how many were put.

    Hashes are native i32, offsets and times native i64. Who reads the file meanwhile finds every
    entry whose number a slot names.

    Raises:
        ValueError: the buffer is smaller than its slots and entries.
    """
    slots, entries = i64(slots), i64(entries)
    view = memoryview(buffer).cast("B")
    _first_entry(view, slots, entries)
    found = zip(
        numbers(hashes, "i", 4),
        numbers(physical_offsets, "q", 8),
        numbers(store_timestamps, "q", 8),
        strict=False,
    )
    done = 0
    for entry in found:
        if not index_put(view, slots, entries, *entry, count_every_put):
            break
        done += 1
    return done


def _first_entry(view: memoryview, slots: int, entries: int) -> int:
    """Return where entry 0 would lie."""
    first_entry = layout.INDEX_HEADER_SIZE + slots * layout.INDEX_SLOT_SIZE
    if slots <= 0 or entries < 0 or len(view) < first_entry + entries * layout.INDEX_ENTRY_SIZE:
        raise ValueError(f"{len(view)} bytes do not hold {slots} slots and {entries} entries")
    return first_entry


def _index_diff(store_timestamp: int, begin: int) -> int:
    """Return whole seconds since the file's begin; Java divides toward zero."""
    diff = wrap_i64(store_timestamp - begin)
    if begin <= 0 or diff < 0:
        return 0
    return min(diff // 1000, layout.MAX_I32)


def index_lookup(
    buffer: Buffer, slots: int, hash_: int, begin: int, end: int, limit: int
) -> list[int]:
    """Return the physical offsets of entries with this hash and a time in range, newest first."""
    slots, hash_, begin, end, limit = i64(slots), i32(hash_), i64(begin), i64(end), i64(limit)
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
    steps_max = (len(view) - first_entry) // layout.INDEX_ENTRY_SIZE  # a chain may be a circle
    while 0 < entry <= count and steps < steps_max and len(found) < limit:
        entry_at = first_entry + entry * layout.INDEX_ENTRY_SIZE
        if entry_at + layout.INDEX_ENTRY_SIZE > len(view):
            break
        entry_hash, physical_offset, diff, previous = _INDEX_ENTRY.unpack_from(view, entry_at)
        if diff < 0:
            break
        time = wrap_i64(file_begin + diff * 1000)
        if entry_hash == hash_ and begin <= time <= end:
            found.append(physical_offset)
        if previous == entry or time < begin:
            break
        entry = previous
        steps += 1
    return found


def index_walk(
    buffer: Buffer, slots: int, hash_: int, entry: int, begin: int, end: int, found: Any
) -> tuple[int, int]:
    """Follow a chain until `found` is full; return how many are in it, and where to go on.

    A walk begins with entry 0, which stands for the slot's, and has ended when it is to go on
    with 0. `found` gets the physical offsets, native i64, of entries with the hash and a time in
    range. A chain goes back: one that does not is damaged and ends. The first entry of a file
    has the file's begin as its time, whatever it was counted from.
    """
    slots, hash_, entry, begin, end = i64(slots), i32(hash_), i64(entry), i64(begin), i64(end)
    view = memoryview(buffer)
    out = numbers(found, "q", 8)
    first_entry = layout.INDEX_HEADER_SIZE + slots * layout.INDEX_SLOT_SIZE
    if slots <= 0 or len(view) < first_entry:
        return 0, 0
    if entry == 0:
        slot_at = layout.INDEX_HEADER_SIZE + hash_ % slots * layout.INDEX_SLOT_SIZE
        (entry,) = _I32.unpack_from(view, slot_at)
    # Order: the slot before the header, so that the count is not older than the slot.
    file_begin, _, _, _, _, count = _INDEX_HEADER.unpack_from(view, 0)
    last = min(max(count, 1), (len(view) - first_entry) // layout.INDEX_ENTRY_SIZE - 1)
    done = 0
    while 0 < entry <= last and done < len(out):
        entry_hash, physical_offset, diff, previous = _INDEX_ENTRY.unpack_from(
            view, first_entry + entry * layout.INDEX_ENTRY_SIZE
        )
        time = wrap_i64(file_begin + diff * 1000) if entry > 1 else file_begin
        if diff >= 0 and entry_hash == hash_ and begin <= time <= end:
            out[done] = physical_offset
            done += 1
        entry = previous if diff >= 0 and previous < entry and time >= begin else 0
    return done, entry if 0 < entry <= last else 0
