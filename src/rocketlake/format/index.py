"""Index header, slot, entry and key hash (docs/formats/index.md).

Header, 40 bytes:

| offset | width | field                 |
| ------ | ----- | --------------------- |
| 0      | 8     | begin_timestamp       |
| 8      | 8     | end_timestamp         |
| 16     | 8     | begin_physical_offset |
| 24     | 8     | end_physical_offset   |
| 32     | 4     | slot_count            |
| 36     | 4     | entry_count           |

Then one i32 per slot: the newest entry of its chain. Then entries of 20 bytes: key_hash 4,
physical_offset 8, time_diff_s 4, previous 4. Entry 0 is never used; `entry_count` is the number
of the next one.
"""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import astuple

from rocketlake.format import layout
from rocketlake.format._kernel.chooser import KERNEL as _KERNEL

Buffer = bytes | bytearray | memoryview

ENTRY_DTYPE = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff_s", ">i4"), ("previous", ">i4")]
)
assert ENTRY_DTYPE.itemsize == layout.INDEX_ENTRY_SIZE

_CANDIDATES_MAX = 16
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")

key_hash = _KERNEL.key_hash
put = _KERNEL.index_put
lookup = _KERNEL.index_lookup
walk = _KERNEL.index_walk


class IndexHeader(Struct, frozen=True):
    """What an index file covers."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    slot_count: int
    entry_count: int

    @property
    def entries_used(self) -> int:
        """How many entries the file holds."""
        return max(self.entry_count - 1, 0)

    def encode(self) -> bytes:
        """Return the 40 bytes."""
        return _HEADER.pack(*astuple(self))

    @classmethod
    def decode(cls, data: Buffer) -> "IndexHeader":
        """Read a header."""
        return cls(*_HEADER.unpack_from(data, 0))


class IndexEntry(Struct, frozen=True, gc=False):
    """One key of one message; `previous` chains the entries of a slot, 0 ends the chain."""

    key_hash: int
    physical_offset: int
    time_diff_s: int
    previous: int

    def encode(self) -> bytes:
        """Return the 20 bytes."""
        return _ENTRY.pack(self.key_hash, self.physical_offset, self.time_diff_s, self.previous)

    @classmethod
    def decode(cls, data: Buffer, position: int = 0) -> "IndexEntry":
        """Read the entry at a position."""
        return cls(*_ENTRY.unpack_from(data, position))


def file_size(slots: int, entries: int) -> int:
    """Return the size of an index file of this shape."""
    return (
        layout.INDEX_HEADER_SIZE
        + slots * layout.INDEX_SLOT_SIZE
        + entries * layout.INDEX_ENTRY_SIZE
    )


def slot_position(slots: int, hash_: int) -> int:
    """Return the position of a key hash's slot."""
    return layout.INDEX_HEADER_SIZE + hash_ % slots * layout.INDEX_SLOT_SIZE


def entry_position(slots: int, number: int) -> int:
    """Return the position of an entry."""
    return file_size(slots, number)


def entries_for(size: int, slots: int) -> int | None:
    """Return how many entries a file of this size has room for; None if slots do not fit it."""
    rest = size - layout.INDEX_HEADER_SIZE - slots * layout.INDEX_SLOT_SIZE
    if slots <= 0 or rest < 0 or rest % layout.INDEX_ENTRY_SIZE:
        return None
    return rest // layout.INDEX_ENTRY_SIZE


def prove_slots(data: Buffer, slots: int) -> bool:
    """Tell whether replaying the chains of a whole file with this slot count gives its slots."""
    entries = entries_for(len(data), slots)
    if entries is None:
        return False
    header = IndexHeader.decode(data)
    if not 1 < header.entry_count <= entries:
        return False
    used = np.frombuffer(data, ENTRY_DTYPE, header.entries_used, entry_position(slots, 1))
    if (used["key_hash"] < 0).any():
        return False
    previous, newest = _replay(used["key_hash"].astype(np.int64) % slots)
    if (previous != used["previous"]).any():
        return False
    table = np.frombuffer(data, ">i4", slots, layout.INDEX_HEADER_SIZE)
    expected = np.zeros(slots, np.int32)
    for slot, number in newest.items():
        expected[slot] = number
    return bool((table == expected).all())


def _replay(slot_of: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], dict[int, int]]:
    """Return the previous entry of each, and the newest of each slot."""
    newest: dict[int, int] = {}
    previous = np.empty(len(slot_of), np.int32)
    for i, slot in enumerate(slot_of.tolist()):
        previous[i] = newest.get(slot, 0)
        newest[slot] = i + 1
    return previous, newest


def find_slots(data: Buffer) -> int | None:
    """Derive the slot count of a whole index file from its chains; None if nothing is proven.

    Entry 1 is the first of its chain and carries the header's begin offset, so of all slot counts
    that the size allows few are left; each of these is replayed. Two that both hold prove nothing.
    """
    if len(data) < layout.INDEX_HEADER_SIZE + layout.INDEX_SLOT_SIZE:
        return None
    header = IndexHeader.decode(data)
    candidates = _candidates(data, header)
    # Why: each costs a look at the whole file. A file that was written by puts has a few at most.
    if len(candidates) > _CANDIDATES_MAX:
        return None
    proven = [slots for slots in candidates if prove_slots(data, slots)]
    return proven[0] if len(proven) == 1 else None


def _candidates(data: Buffer, header: IndexHeader) -> list[int]:
    """Return the slot counts under which entry 1 and the last entry look as they must."""
    if header.entry_count <= 1:
        return []
    # Why: slots * 4 + entries * 20 is fixed, so possible counts step by 5 and entry 1 by 20 bytes.
    first = (len(data) - layout.INDEX_HEADER_SIZE) // layout.INDEX_SLOT_SIZE % 5 or 5
    start = entry_position(first, 1)
    room = (len(data) - start) // layout.INDEX_ENTRY_SIZE
    if room <= 0 or (len(data) - layout.INDEX_HEADER_SIZE) % layout.INDEX_SLOT_SIZE:
        return []
    tries: npt.NDArray[Any] = np.frombuffer(data, ENTRY_DTYPE, room, start)
    fits = (tries["previous"] == 0) & (tries["key_hash"] >= 0)
    fits &= tries["physical_offset"] == header.begin_physical_offset
    last = header.entries_used - 1
    at_end = np.zeros(room, np.bool_)
    ends = tries["physical_offset"][last:] == header.end_physical_offset
    at_end[: len(ends)] = ends
    left = np.flatnonzero(fits & at_end)
    slots = first + 5 * left
    # Why: in a file with few entries nearly all is zero, and so may be the first record's offset.
    # The slot of the last entry names it, which zeros do not.
    table = np.frombuffer(
        data, ">i4", (len(data) - layout.INDEX_HEADER_SIZE) // 4, layout.INDEX_HEADER_SIZE
    )
    newest = table[tries["key_hash"][left + last].astype(np.int64) % slots]
    return [int(count) for count in slots[newest == header.entries_used]]
