"""Timer log, wheel and timer checkpoint (docs/formats/timer.md)."""

import struct

import pytest

from rocketlake.format import layout
from rocketlake.format.timer import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    TimerCheckpoint,
    TimerUnit,
    WheelSlot,
    slot_position,
)

UNIT = TimerUnit(
    previous_position=-1,
    magic=MAGIC_DEFAULT,
    write_time=1700000000000,
    delay=5000,
    physical_offset=4096,
    record_size=145,
    topic_hash=-626,
)
BYTES = struct.pack(">iqiqiqiiq", 52, -1, 1, 1700000000000, 5000, 4096, 145, -626, 0)


def test_unit_has_52_bytes_in_the_order_of_the_format():
    assert UNIT.encode() == BYTES
    assert len(BYTES) == 52


def test_unit_is_read_at_its_position():
    assert TimerUnit.decode(BYTES) == UNIT
    assert TimerUnit.decode(b"xyz" + BYTES + b"more", 3) == UNIT


def test_unit_is_due_its_delay_after_it_was_written():
    assert UNIT.due == 1700000005000


@pytest.mark.parametrize("magic", [1, 1 | MAGIC_ROLL, 1 | MAGIC_DELETE, 7])
def test_magic_with_its_first_bit_is_a_unit(magic):
    data = BYTES[:12] + struct.pack(">i", magic) + BYTES[16:]
    assert TimerUnit.decode(data).magic == magic


@pytest.mark.parametrize("magic", [0, MAGIC_ROLL, MAGIC_DELETE, layout.MAGIC_BLANK])
def test_magic_without_its_first_bit_is_no_unit(magic):
    data = BYTES[:12] + struct.pack(">i", magic) + BYTES[16:]
    assert TimerUnit.decode(data) is None


@pytest.mark.parametrize("size", [0, -52, 51, 53, 52 << 8])
def test_size_other_than_52_is_no_unit(size):
    assert TimerUnit.decode(struct.pack(">i", size) + BYTES[4:]) is None


def test_cut_unit_and_positions_outside_are_no_unit():
    assert all(TimerUnit.decode(BYTES[:size]) is None for size in range(52))
    assert TimerUnit.decode(BYTES, 1) is None
    assert TimerUnit.decode(BYTES, 52) is None
    assert TimerUnit.decode(BYTES * 2, -52) is None


@pytest.mark.parametrize("rest", [16, 52, 53, 100])
def test_filler_of_a_file_is_no_unit(rest):
    """Even where just 52 bytes are left: the filler's magic lies where a unit's does."""
    filler = struct.pack(">iqi", rest, 0, layout.MAGIC_BLANK).ljust(rest, b"\0")
    assert TimerUnit.decode(filler) is None
    assert struct.calcsize(">iqi") == layout.TIMER_BLANK_SIZE


def test_zeros_are_no_unit():
    assert TimerUnit.decode(bytes(104)) is None


def test_slot_has_32_bytes_in_the_order_of_the_format():
    slot = WheelSlot(1700000000, 52, 104, 3, 0)
    assert slot.encode() == struct.pack(">qqqii", 1700000000, 52, 104, 3, 0)
    assert WheelSlot.decode(b"xx" + slot.encode(), 2) == slot


def test_wheel_of_two_weeks_has_the_size_of_the_spec():
    assert layout.WHEEL_SLOTS * layout.WHEEL_SLOT_SIZE == 38_707_200


@pytest.mark.parametrize(
    ("time", "position"),
    [(0, 0), (1, 32), (1_209_599, 38_707_168), (1_209_600, 0), (1_700_000_000, 512_000 * 32)],
)
def test_slot_of_a_time_wraps_around_the_wheel(time, position):
    assert slot_position(time) == position


def test_slot_in_a_smaller_wheel_wraps_around_it():
    assert slot_position(25, slots=10) == 5 * 32


def test_timer_checkpoint_has_4096_bytes_with_seven_numbers_first():
    made = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7)
    assert made.encode() == struct.pack(">7q", 1, 2, 3, 4, 5, 6, 7).ljust(4096, b"\0")
    assert TimerCheckpoint.decode(made.encode()) == made


@pytest.mark.parametrize("fields", range(8))
def test_fields_beyond_the_end_of_a_timer_checkpoint_are_zero(fields):
    data = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7).encode()[: 8 * fields]
    assert TimerCheckpoint.decode(data) == TimerCheckpoint(*range(1, fields + 1))
