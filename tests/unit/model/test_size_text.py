"""Sizes that people type and read."""

import pytest

from rocketlake.model.size_text import parse_size, size_text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        ("67108864", 64 << 20),
        ("64m", 64 << 20),
        ("64 MiB", 64 << 20),
        ("1kb", 1024),
        (" 2G ", 2 << 30),
        ("3t", 3 << 40),
    ],
)
def test_sizes(text, wanted):
    assert parse_size(text) == wanted


@pytest.mark.parametrize("text", ["", "64q", "-1", "1.5g", "m", "²"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size; wanted bytes, like 67108864 or 64m"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1_047_552, "1,023 KiB"),
        (16 << 20, "16 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 40, "5 TiB"),
        (9 << 50, "9 PiB"),
        (9 << 60, "9,216 PiB"),
    ],
)
def test_text_has_three_digits(size, wanted):
    assert size_text(size) == wanted
