"""Expected values are Java's: Integer#valueOf, Long#valueOf, Double#valueOf and Double#compare."""

import math

import pytest

from rocketlake.filters.java_text import compare, parse_double, parse_int, parse_long, trim


def test_trim_cuts_up_to_the_space_and_no_other_blank():
    assert trim("\x00 \t\x1fa b\n ") == "a b"
    assert trim("\u00a0a\u2003") == "\u00a0a\u2003"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("٣", 3),
        ("\uff11\uff12", 12),
    ],
)
def test_parse_int_takes_digits_of_any_script(text, expected):
    assert parse_int(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "+-5",
        "5 ",
        " 5",
        "5L",
        "5.0",
        "1_0",
        "0x5",
        "\U0001d7d3",
        "x",
        "5\n",
        "2147483648",
        "-2147483649",
        "9" * 5000,
    ],
)
def test_parse_int_of_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"whole number|out of range|Exceeds"):
        parse_int(text)


def test_parse_long_reaches_64_bits():
    assert parse_long("9223372036854775807") == (1 << 63) - 1
    assert parse_long("-9223372036854775808") == -(1 << 63)
    with pytest.raises(ValueError, match="out of range"):
        parse_long("9223372036854775808")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("-5e1", -50.0),
        ("5E-1d", 0.5),
        ("5F", 5.0),
        (" \t5\n", 5.0),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("1e-400", 0.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("0x1.8p1", 3.0),
        ("0X.8P+1f", 1.0),
        ("0x1p-1075", 0.0),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
    ],
)
def test_parse_double_takes_what_java_takes(text, expected):
    assert parse_double(text) == expected


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN"])
def test_parse_double_of_nan_is_nan(text):
    assert math.isnan(parse_double(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "1e",
        "e1",
        "1_0",
        "nan",
        "inf",
        "Infinityd",
        "0x1",
        "0x1p",
        "0xp1",
        "\xa05",
        "٣",
        "5L",
        "+-5",
        "1e5.0",
        "5dd",
    ],
)
def test_parse_double_of_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="no number"):
        parse_double(text)


def test_parse_double_of_long_digits_takes_linear_time():
    # Quadratic matching would take minutes here.
    with pytest.raises(ValueError, match="no number"):
        parse_double("1" * 300_000 + "x")


def test_compare_is_javas_total_order():
    rising = [-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan]
    for left_index, left in enumerate(rising):
        for right_index, right in enumerate(rising):
            expected = (left_index > right_index) - (left_index < right_index)
            assert compare(left, right) == expected, (left, right)


def test_compare_of_whole_numbers_is_exact():
    assert compare(9007199254740993, 9007199254740992) == 1
    assert compare(0, 0) == 0
