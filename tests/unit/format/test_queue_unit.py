"""Consume-queue units: plain, batch, extended, prefilled, and the tag filter over them."""

import struct

import numpy as np
import pytest

from rocketlake.format import layout
from rocketlake.format.queue_unit import (
    PREFILL,
    BatchUnit,
    ExtUnit,
    QueueUnit,
    decode_batch_units,
    decode_units,
    ext_address,
    ext_offset,
    filter_units,
    is_ext_address,
    valid_prefix,
)
from rocketlake.model.hashes import java_hash

# --- plain -----------------------------------------------------------------------------------


def test_unit_of_the_spec_vector():
    unit = QueueUnit(4096, 145, java_hash("TagA"))
    assert unit.encode().hex() == "000000000000100000000091000000000027a807"
    assert decode_units(unit.encode()).tolist() == [(4096, 145, 2598919)]


def test_tags_code_is_kept_with_its_sign():
    data = QueueUnit(0, 1, -(1 << 31)).encode()
    assert data[12:].hex() == "ffffffff80000000"
    assert decode_units(data)["tags_code"].tolist() == [-(1 << 31)]


@pytest.mark.parametrize("extra", [0, 1, 19])
def test_units_that_are_cut_off_are_left_out(extra):
    data = b"".join(QueueUnit(i, i + 1, -i).encode() for i in range(3)) + b"\xff" * extra
    assert decode_units(data).tolist() == [(0, 1, 0), (1, 2, -1), (2, 3, -2)]
    assert decode_units(memoryview(data)).tolist() == decode_units(data).tolist()


def test_no_bytes_are_no_units():
    assert len(decode_units(b"")) == len(decode_batch_units(b"")) == 0
    assert valid_prefix(decode_units(b"")) == 0


def test_prefill_is_offset_zero_of_the_largest_size():
    assert PREFILL.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"


def test_prefilled_units_count_as_valid():
    units = decode_units(PREFILL * 3 + QueueUnit(0, 91, 0).encode() + bytes(40))
    assert valid_prefix(units) == 4


@pytest.mark.parametrize(
    "wrong", [(0, 0, 0), (-1, 91, 0), (5, -1, 0), (5, 0, 7), (-(1 << 63), 1, 1)]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_valid_units_end_before_the_first_wrong_one(wrong, place):
    units = [QueueUnit(i * 91, 91, 0) for i in range(3)]
    units[place] = QueueUnit(*wrong)
    assert valid_prefix(decode_units(b"".join(u.encode() for u in units))) == place


# --- batch -----------------------------------------------------------------------------------


def test_batch_unit_has_46_bytes_in_the_order_of_the_format():
    unit = BatchUnit(
        physical_offset=0x0102030405060708,
        size=0x11121314,
        tags_code=-2,
        store_timestamp=1700000000123,
        base_queue_offset=77,
        batch_size=10,
    )
    data = unit.encode()
    expected = struct.pack(
        ">qiqqqhii", 0x0102030405060708, 0x11121314, -2, 1700000000123, 77, 10, -1, 0
    )
    assert data == expected
    assert len(data) == 46
    row = decode_batch_units(data)[0]
    assert row["physical_offset"] == 0x0102030405060708
    assert (row["size"], row["tags_code"], row["store_timestamp"]) == (
        0x11121314,
        -2,
        1700000000123,
    )
    assert (row["base_queue_offset"], row["batch_size"]) == (77, 10)
    assert (row["compacted_offset"], row["reserved"]) == (-1, 0)


def test_batch_units_that_are_cut_off_are_left_out():
    unit = BatchUnit(
        physical_offset=1,
        size=2,
        tags_code=3,
        store_timestamp=4,
        base_queue_offset=5,
        batch_size=6,
    )
    assert len(decode_batch_units(unit.encode() * 2 + bytes(45))) == 2
    assert valid_prefix(decode_batch_units(unit.encode() * 2 + bytes(46))) == 2


# --- extended --------------------------------------------------------------------------------


def test_ext_unit_is_size_code_time_and_bits():
    unit = ExtUnit(-5, 1700000000123, b"\x01\x02\x03")
    data = unit.encode()
    assert data == struct.pack(">hqqh", 23, -5, 1700000000123, 3) + b"\x01\x02\x03"
    assert unit.size == 23
    assert ExtUnit.decode(b"xx" + data + b"yy", 2) == unit


def test_ext_unit_without_bits_has_20_bytes():
    unit = ExtUnit(1, 2)
    assert len(unit.encode()) == unit.size == 20
    assert ExtUnit.decode(unit.encode()) == unit


def test_ext_unit_beyond_32767_bytes_is_refused():
    longest = ExtUnit(1, 2, bytes(32767 - 20))
    assert ExtUnit.decode(longest.encode()) == longest
    with pytest.raises(ValueError, match="bitmap of 32748 bytes"):
        ExtUnit(1, 2, bytes(32748)).encode()


def test_ext_unit_cut_anywhere_is_none():
    data = ExtUnit(7, 8, b"bits").encode()
    assert all(ExtUnit.decode(data[:size]) is None for size in range(len(data)))
    assert ExtUnit.decode(data, len(data)) is None
    assert ExtUnit.decode(data, -1) is None


@pytest.mark.parametrize(
    ("size", "bitmap_size"),
    [(-1, 0), (0, 0), (19, 0), (21, 0), (20, 1), (24, -4), (24, 5), (-20, -40), (16, -4)],
)
def test_ext_unit_whose_sizes_disagree_is_none(size, bitmap_size):
    data = struct.pack(">hqqh", size, 7, 8, bitmap_size) + bytes(64)
    assert ExtUnit.decode(data) is None


def test_end_mark_of_an_ext_file_is_no_unit():
    assert ExtUnit.decode(struct.pack(">h", -1) + bytes(100)) is None


@pytest.mark.parametrize(
    ("tags_code", "is_address"),
    [
        (-(1 << 63), True),
        (-2147483649, True),
        (-2147483648, False),
        (-1, False),
        (0, False),
        ((1 << 63) - 1, False),
    ],
)
def test_tags_code_below_every_hash_is_an_address(tags_code, is_address):
    assert is_ext_address(tags_code) is is_address


@pytest.mark.parametrize("offset", [0, 20, 48 << 20, 9223372034707292159])
def test_address_and_offset_stand_for_each_other(offset):
    address = ext_address(offset)
    assert address == offset - (1 << 63)
    assert is_ext_address(address)
    assert ext_offset(address) == offset


def test_largest_offset_with_an_address_is_that_of_the_spec():
    assert not is_ext_address(ext_address(9223372034707292160))


# --- filter ----------------------------------------------------------------------------------


def units_with(*codes):
    return b"".join(QueueUnit(i, 100, code).encode() for i, code in enumerate(codes))


def test_filter_keeps_units_of_wanted_hashes():
    data = units_with(5, -7, 6, 5, 0)
    assert filter_units(data, frozenset({5, -7})).tolist() == [True, True, False, True, False]
    assert filter_units(data, frozenset({0})).tolist() == [False, False, False, False, True]


def test_filter_keeps_units_whose_code_is_elsewhere():
    data = units_with(ext_address(0), -2147483649, -2147483648)
    assert filter_units(data, frozenset()).tolist() == [True, True, False]
    assert filter_units(data, frozenset({-2147483648})).tolist() == [True, True, True]


def test_filter_compares_the_low_32_bits():
    """Compat: as (int) tagsCode in DefaultMessageFilter; a due time is compared the same way."""
    data = units_with((1 << 32) + 5, 1 << 31)
    assert filter_units(data, frozenset({5})).tolist() == [True, False]
    assert filter_units(data, frozenset({-(1 << 31)})).tolist() == [False, True]


@pytest.mark.parametrize("extra", [0, 1, 19])
def test_filter_looks_at_whole_units_alone(extra):
    mask = filter_units(units_with(1, 2) + bytes(extra), frozenset({0, 2}))
    assert mask.dtype == np.bool_
    assert mask.tolist() == [False, True]


def test_filter_over_many_hashes_and_units_is_membership():
    codes = [(i * 7919) % 1009 - 500 for i in range(2000)]
    wanted = frozenset(range(-500, 500, 3))
    expected = [code in wanted for code in codes]
    assert filter_units(units_with(*codes), wanted).tolist() == expected


def test_sizes_of_units_are_those_of_the_layout():
    assert (layout.UNIT_SIZE, layout.BATCH_UNIT_SIZE, layout.EXT_UNIT_FIXED_SIZE) == (20, 46, 20)


# --- single units ------------------------------------------------------------------------------


def test_single_units_are_decoded_where_they_lie():
    plain = QueueUnit(2**40, 123, -7)
    batch = BatchUnit(
        physical_offset=1,
        size=2,
        tags_code=-3,
        store_timestamp=4,
        base_queue_offset=5,
        batch_size=6,
        compacted_offset=7,
    )
    assert QueueUnit.decode(b"xx" + plain.encode(), 2) == plain
    assert BatchUnit.decode(b"xx" + batch.encode(), 2) == batch
    assert QueueUnit.decode(batch.encode()) == QueueUnit(1, 2, -3)
