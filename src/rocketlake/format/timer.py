"""Timer-log unit and wheel slot (docs/formats/timer.md).

Timer-log unit, 52 bytes: size 4, previous_position 8, magic 4, write_time 8, delay 4,
physical_offset 8, record_size 4, topic_hash 4, reserved 8.

Wheel slot, 32 bytes: time 8 (in steps of the precision), first_position 8, last_position 8,
count 4, magic 4.
"""

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import astuple

from rocketlake.format import layout

MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4

_UNIT = struct.Struct(">iqiqiqiiq")
_SLOT = struct.Struct(">qqqii")
_BLANK = struct.Struct(">iqi")  # rest of the file, 0, MAGIC_BLANK
_CHECKPOINT = struct.Struct(">qqqqqqq")
assert _UNIT.size == layout.TIMER_UNIT_SIZE
assert _SLOT.size == layout.WHEEL_SLOT_SIZE
assert _BLANK.size == layout.TIMER_BLANK_SIZE

UNIT_DTYPE = np.dtype(
    [
        ("size", ">i4"),
        ("previous_position", ">i8"),
        ("magic", ">i4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("physical_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
SLOT_DTYPE = np.dtype(
    [
        ("time", ">i8"),
        ("first_position", ">i8"),
        ("last_position", ">i8"),
        ("count", ">i4"),
        ("magic", ">i4"),
    ]
)
assert UNIT_DTYPE.itemsize == layout.TIMER_UNIT_SIZE
assert SLOT_DTYPE.itemsize == layout.WHEEL_SLOT_SIZE

_MAGIC_BITS: Final = 0xF


class TimerUnit(Struct, frozen=True, kw_only=True):
    """One waiting message; `previous_position` chains the units of a slot, -1 ends the chain."""

    previous_position: int
    magic: int
    write_time: int
    delay: int
    physical_offset: int
    record_size: int
    topic_hash: int

    @property
    def due(self) -> int:
        """When the message is to be delivered, or rolled on."""
        return self.write_time + self.delay

    def encode(self) -> bytes:
        """Return the 52 bytes."""
        return _UNIT.pack(layout.TIMER_UNIT_SIZE, *astuple(self), 0)

    @classmethod
    def decode(cls, data: bytes, position: int = 0) -> "TimerUnit | None":
        """Read the unit at a position; None for nothing or a file's filler."""
        if position < 0 or len(data) - position < layout.TIMER_UNIT_SIZE:
            return None
        size, *fields, _ = _UNIT.unpack_from(data, position)
        unit = cls(**dict(zip(cls.__struct_fields__, fields, strict=True)))
        return unit if size == layout.TIMER_UNIT_SIZE and unit.magic & MAGIC_DEFAULT else None


def encode_blank(rest: int) -> bytes:
    """Return the filler after the last unit of a file that has so many bytes left."""
    return _BLANK.pack(rest, 0, layout.MAGIC_BLANK)


def is_blank(data: bytes | memoryview) -> bool:
    """Tell whether the filler of a file begins here."""
    if len(data) < layout.TIMER_BLANK_SIZE:
        return False
    magic: int = _BLANK.unpack_from(data)[2]
    return magic == layout.MAGIC_BLANK


def valid_units(units: npt.NDArray[np.void]) -> int:
    """Return how many units from the first on are valid."""
    magic = units["magic"]
    good = (
        (units["size"] == layout.TIMER_UNIT_SIZE)
        & (magic & MAGIC_DEFAULT != 0)
        & (magic & ~_MAGIC_BITS == 0)
    )
    return len(units) if good.all() else int(np.argmin(good))


class WheelSlot(Struct, frozen=True):
    """One step of the wheel: the chain of units due at `time` steps."""

    time: int
    first_position: int
    last_position: int
    count: int
    magic: int

    def encode(self) -> bytes:
        """Return the 32 bytes."""
        return _SLOT.pack(*astuple(self))

    @classmethod
    def decode(cls, data: bytes, position: int = 0) -> "WheelSlot":
        """Read the slot at a position."""
        return cls(*_SLOT.unpack_from(data, position))


def slot_position(time_steps: int, slots: int = layout.WHEEL_SLOTS) -> int:
    """Return the position of a time's slot in the wheel file."""
    return time_steps % slots * layout.WHEEL_SLOT_SIZE


class TimerCheckpoint(Struct, frozen=True):
    """The `timercheck` page: how far the timer read its queue and wrote its log."""

    last_read_time: int = 0
    flushed_position: int = 0
    queue_offset: int = 0
    primary_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0

    def encode(self) -> bytes:
        """Return the 4096 bytes of the page."""
        return _CHECKPOINT.pack(*astuple(self)).ljust(layout.CHECKPOINT_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "TimerCheckpoint":
        """Read a page; fields beyond its end are 0."""
        return cls(*_CHECKPOINT.unpack(data[: _CHECKPOINT.size].ljust(_CHECKPOINT.size, b"\0")))
