"""Names of files (docs/formats/README.md)."""

from datetime import datetime

import pytest

from rocketlake.format.names import (
    index_name,
    index_name_behind,
    is_index_name,
    offset_name,
    parse_offset_name,
)


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "00000000000000000000"),
        (1 << 30, "00000000001073741824"),
        ((1 << 63) - 1, "09223372036854775807"),
    ],
)
def test_name_of_a_file_is_its_offset_in_20_digits(offset, name):
    assert offset_name(offset) == name
    assert parse_offset_name(name) == offset


def test_file_that_begins_before_zero_has_no_name():
    with pytest.raises(ValueError, match="cannot begin at -1"):
        offset_name(-1)


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "a", "00000000000000000000.bak", "-0000000000000000001", "+1", "1_0"),
        *(
            "0x10",
            "1.5",
            "\u0660\u0661",
            "²",
            "000000000000000000000",
            "00000000000000000000\n",
            "lock",
        ),
    ],
)
def test_other_names_are_no_offsets(name):
    assert parse_offset_name(name) is None


def test_name_beyond_64_bits_is_no_offset():
    """Compat: Long.parseLong refuses it; nothing lies there."""
    assert parse_offset_name("09223372036854775808") is None


def test_index_name_is_the_local_time_to_the_millisecond():
    # A name is of local time on purpose: the reference formats it so.
    moment = datetime(2026, 3, 4, 5, 6, 7, 89_999)  # noqa: DTZ001
    assert index_name(moment) == "20260304050607089"
    assert is_index_name(index_name(moment))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20260304050607089", True),
        ("2026030405060708", False),
        ("202603040506070899", False),
        ("20260304050607089.bak", False),
        ("2026030405060708a", False),
        ("20260304050607089\n", False),
        ("\u0662" * 17, False),
        ("", False),
    ],
)
def test_index_name_has_17_digits_and_nothing_else(name, expected):
    assert is_index_name(name) is expected


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("", "20260304050607089"),
        ("20260304050607088", "20260304050607089"),
        ("20260304050607089", "20260304050607090"),
        ("20260304060000000", "20260304060000001"),  # summer has ended
        ("20261231235959999", "20270101000000000"),
        ("20280228235959999", "20280229000000000"),
        ("99991231235959998", "99991231235959999"),
        ("20269999999999999", "20270000000000000"),  # digits that are no time
    ],
)
def test_index_name_sorts_behind_that_of_the_file_before(before, name):
    moment = datetime(2026, 3, 4, 5, 6, 7, 89_999)  # noqa: DTZ001 - names are of local time
    assert index_name_behind(before, moment) == name
    assert name > before
    assert is_index_name(name)
