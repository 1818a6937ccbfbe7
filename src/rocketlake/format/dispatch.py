"""What dispatch takes from scanned records: tags codes, traits, index entries.

One call of the kernel for many records, without the interpreter lock.
"""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.format._kernel.chooser import KERNEL as _KERNEL
from rocketlake.format._kernel.codes import Trait
from rocketlake.format.record import RecordColumns

__all__ = [
    "DispatchColumns",
    "KeyEntries",
    "Trait",
    "dispatch_columns",
    "key_and_tag_entries",
    "key_entries",
    "put_entries",
]

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class DispatchColumns(Struct, frozen=True):
    """Beside the columns of a scan: what their properties mean for dispatch, row by row."""

    tags_codes: Int64s
    """The Java hash of the tag, 0 without one; due times of the schedule topic are not here."""
    traits: npt.NDArray[np.uint8]
    """Bits of `Trait`."""


def dispatch_columns(columns: RecordColumns) -> DispatchColumns:
    """Read what dispatch needs from the properties of records."""
    codes = np.empty(len(columns), np.int64)
    traits = np.empty(len(columns), np.uint8)
    if len(columns):
        _KERNEL.dispatch_columns(columns.buffer, _raw(columns), codes, traits)
    return DispatchColumns(codes, traits)


def key_entries(columns: RecordColumns, *, with_tags: bool = False) -> tuple[Int32s, Int32s]:
    """Return the index hash and the row of every key that records have, and of tags if asked for.

    They come in the order of the log; of each record first the unique key, then the others as
    they stand, then the tag. Records that were rolled back have none.
    """
    if with_tags:
        return key_and_tag_entries(columns)[:2]
    hashes, rows = _KERNEL.key_entries(columns.buffer, _raw(columns) if len(columns) else b"")
    return np.frombuffer(hashes, np.int32), np.frombuffer(rows, np.int32)


def key_and_tag_entries(
    columns: RecordColumns,
) -> tuple[Int32s, Int32s, npt.NDArray[np.bool_]]:
    """Return the index hash, the row and whether it is a tag, of every key and tag of records.

    The tag of a record comes behind its keys, as RocketMQ 5.5 indexes it.
    """
    raw = _raw(columns) if len(columns) else b""
    found = _KERNEL.key_entries(columns.buffer, raw, with_tags=True)
    hashes, rows = (np.frombuffer(part, np.int32) for part in found)
    is_tag = rows < 0
    return hashes, np.where(is_tag, ~rows, rows), is_tag


class KeyEntries(Struct, frozen=True):
    """Entries for an index, in the order they are put: three arrays of one length."""

    hashes: Int32s
    physical_offsets: Int64s
    store_timestamps: Int64s

    def __len__(self) -> int:
        return len(self.hashes)

    def part(self, start: int, stop: int | None = None) -> "KeyEntries":
        """Return some of the entries, without copying them."""
        cut = slice(start, stop)
        return KeyEntries(self.hashes[cut], self.physical_offsets[cut], self.store_timestamps[cut])


def put_entries(
    buffer: memoryview | bytearray,
    shape: tuple[int, int],
    entries: KeyEntries,
    *,
    count_every_put: bool = False,
) -> int:
    """Add entries to an index file of so many slots and entries until it is full.

    Returns how many were added. The bytes are those of `index.put`, called for one after the
    other; a look-up meanwhile finds what was there before, and maybe more.

    Raises:
        ValueError: the buffer is smaller than its slots and entries.
    """
    if not len(entries):
        return 0
    return _KERNEL.put_entries(
        buffer,
        *shape,
        np.ascontiguousarray(entries.hashes, np.int32),
        np.ascontiguousarray(entries.physical_offsets, np.int64),
        np.ascontiguousarray(entries.store_timestamps, np.int64),
        count_every_put,
    )


def _raw(columns: RecordColumns) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(columns.rows).view(np.uint8)
