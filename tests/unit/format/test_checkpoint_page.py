"""The checkpoint page (docs/formats/checkpoint.md)."""

import struct

import pytest

from rocketlake.format.checkpoint import Checkpoint


def test_page_has_4096_bytes_with_five_numbers_first():
    data = Checkpoint(1, 2, 3, 4, 5).encode()
    assert data == struct.pack(">qqqqq", 1, 2, 3, 4, 5) + bytes(4056)


def test_page_read_gives_its_values():
    made = Checkpoint(1700000000123, 1700000000124, 0, -1, (1 << 63) - 1)
    assert Checkpoint.decode(made.encode()) == made


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, Checkpoint()),
        (8, Checkpoint(1)),
        (24, Checkpoint(1, 2, 3)),
        (32, Checkpoint(1, 2, 3, 4)),
        (40, Checkpoint(1, 2, 3, 4, 5)),
    ],
)
def test_fields_beyond_the_end_of_the_page_are_zero(size, expected):
    assert Checkpoint.decode(Checkpoint(1, 2, 3, 4, 5).encode()[:size]) == expected


def test_page_of_4_x_has_no_offsets():
    page = struct.pack(">qqq", 7, 8, 9).ljust(4096, b"\0")
    assert Checkpoint.decode(page) == Checkpoint(7, 8, 9, 0, 0)


@pytest.mark.parametrize(
    ("physical", "queue", "expected"),
    [
        (10_000, 20_000, 7_000),
        (20_000, 10_000, 7_000),
        (3_000, 9_000, 0),
        (2_999, 9_000, 0),
        (3_001, 9_000, 1),
        (0, 1700000000000, 0),
        (-5, -5, 0),
    ],
)
def test_min_timestamp_is_the_earlier_less_three_seconds(physical, queue, expected):
    assert Checkpoint(physical, queue, 1 << 60).min_timestamp == expected
    assert Checkpoint(physical, queue, 1 << 60).min_timestamp_index == expected


def test_min_timestamp_of_the_index_is_not_after_the_indexs_own():
    assert Checkpoint(10_000, 10_000, 6_999).min_timestamp_index == 6_999
    assert Checkpoint(10_000, 10_000, 7_001).min_timestamp_index == 7_000
    assert Checkpoint(10_000, 10_000, 0).min_timestamp_index == 0
