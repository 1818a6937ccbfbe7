"""Consume-queue units: plain, batch, extended (docs/formats/consumequeue.md).

Plain unit, 20 bytes:

| offset | width | field           |
| ------ | ----- | --------------- |
| 0      | 8     | physical_offset |
| 8      | 4     | size            |
| 12     | 8     | tags_code       |

Batch unit, 46 bytes: physical_offset 8, size 4, tags_code 8, store_timestamp 8,
base_queue_offset 8, batch_size 2, compacted_offset 4, reserved 4.

Extension unit: size 2, tags_code 8, store_timestamp 8, bitmap_size 2, bitmap.
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

UNIT_DTYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
BATCH_UNIT_DTYPE = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("base_queue_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
assert UNIT_DTYPE.itemsize == layout.UNIT_SIZE
assert BATCH_UNIT_DTYPE.itemsize == layout.BATCH_UNIT_SIZE

_UNIT = struct.Struct(">qiq")
_BATCH_UNIT = struct.Struct(">qiqqqhii")
_EXT = struct.Struct(">hqqh")

PREFILL = _UNIT.pack(0, layout.PREFILL_SIZE, 0)
"""The unit that stands for a message its queue never held."""


class QueueUnit(Struct, frozen=True, gc=False):
    """One message of a queue: the place of its record, and the code of its tag."""

    physical_offset: int
    size: int
    tags_code: int

    def encode(self) -> bytes:
        """Return the 20 bytes."""
        return _UNIT.pack(self.physical_offset, self.size, self.tags_code)

    @classmethod
    def decode(cls, data: Buffer, position: int = 0) -> "QueueUnit":
        """Read the unit at a position; of a batch unit, the fields that both kinds have."""
        return cls(*_UNIT.unpack_from(data, position))


class BatchUnit(Struct, frozen=True, kw_only=True, gc=False):
    """One record of a batch queue, which stands for `batch_size` messages."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_queue_offset: int
    batch_size: int
    compacted_offset: int = -1

    def encode(self) -> bytes:
        """Return the 46 bytes."""
        return _BATCH_UNIT.pack(*astuple(self), 0)

    @classmethod
    def decode(cls, data: Buffer, position: int = 0) -> "BatchUnit":
        """Read the unit at a position."""
        *fields, _ = _BATCH_UNIT.unpack_from(data, position)
        return cls(**dict(zip(cls.__struct_fields__, fields, strict=True)))


class ExtUnit(Struct, frozen=True):
    """What a tags code cannot hold: the code itself, the store time and filter bits."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        """The encoded size."""
        return layout.EXT_UNIT_FIXED_SIZE + len(self.bitmap)

    def encode(self) -> bytes:
        """Return the unit's bytes.

        Raises:
            ValueError: more bits than a unit holds.
        """
        if self.size > layout.MAX_I16:
            raise ValueError(f"bitmap of {len(self.bitmap)} bytes does not fit into a unit")
        head = _EXT.pack(self.size, self.tags_code, self.store_timestamp, len(self.bitmap))
        return head + self.bitmap

    @classmethod
    def decode(cls, data: Buffer, position: int = 0) -> "ExtUnit | None":
        """Read the unit at a position; None if there is none."""
        if position < 0 or len(data) - position < layout.EXT_UNIT_FIXED_SIZE:
            return None
        size, tags_code, store_timestamp, bitmap_size = _EXT.unpack_from(data, position)
        bitmap = position + layout.EXT_UNIT_FIXED_SIZE
        if bitmap_size < 0 or size != layout.EXT_UNIT_FIXED_SIZE + bitmap_size:
            return None
        if bitmap + bitmap_size > len(data):
            return None
        return cls(tags_code, store_timestamp, bytes(data[bitmap : bitmap + bitmap_size]))


def is_ext_address(tags_code: int) -> bool:
    """Tell whether a tags code is the address of an extension unit."""
    return tags_code <= layout.EXT_ADDRESS_MAX


def ext_address(offset: int) -> int:
    """Return the address of the extension unit at this offset of its files."""
    return offset + layout.EXT_ADDRESS_BASE


def ext_offset(address: int) -> int:
    """Return the offset an extension address stands for."""
    return address - layout.EXT_ADDRESS_BASE


def decode_units(data: Buffer) -> npt.NDArray[np.void]:
    """See whole plain units as columns; a cut-off last one is left out."""
    return np.frombuffer(data, UNIT_DTYPE, len(data) // layout.UNIT_SIZE)


def decode_batch_units(data: Buffer) -> npt.NDArray[np.void]:
    """See whole batch units as columns; a cut-off last one is left out."""
    return np.frombuffer(data, BATCH_UNIT_DTYPE, len(data) // layout.BATCH_UNIT_SIZE)


def valid_prefix(units: npt.NDArray[np.void]) -> int:
    """Return how many units from the first on are valid: offset not negative, size positive."""
    good = (units["physical_offset"] >= 0) & (units["size"] > 0)
    return len(units) if good.all() else int(np.argmin(good))


def filter_units(data: Buffer, hashes: frozenset[int]) -> npt.NDArray[np.bool_]:
    """Return a mask of the plain units that a tag filter with these hashes may want."""
    keep = np.empty(len(data) // layout.UNIT_SIZE, np.uint8)
    wanted: npt.NDArray[Any] = np.fromiter(hashes, np.int32, len(hashes))
    _KERNEL.filter_units(data, wanted, keep)
    return keep.view(np.bool_)
