"""Expected hashes were computed by Java's own `String#hashCode`, or stand in the specification."""

import pytest

from rocketlake.model.hashes import java_hash, key_hash, tags_code, wrap_int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("A", 65),
        ("TagA", 2598919),
        ("标签", 857175),
        ("😀", 1772899),
        ("TopicTest#key1", -1655984460),
        ("polygenelubricants", -(1 << 31)),
        ("\ud800", 0xD800),
    ],
)
def test_java_hash_of_text_is_javas(text, expected):
    assert java_hash(text) == expected


def test_key_hash_of_spec_vector_is_positive():
    assert key_hash("TopicTest", "key1") == 1655984460


def test_key_hash_of_smallest_int_is_zero():
    # The joined text hashes to -2^31, which has no positive twin.
    topic, key = "t", "!+%?!1#"
    assert java_hash(f"{topic}#{key}") == -(1 << 31)
    assert key_hash(topic, key) == 0


def test_tags_code_of_tag_is_its_signed_hash():
    assert tags_code("TagA") == 2598919
    assert tags_code("polygenelubricants") == -(1 << 31)


def test_tags_code_without_tag_is_zero():
    assert tags_code(None) == 0
    assert tags_code("") == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (0x7FFFFFFF, 0x7FFFFFFF), (0x80000000, -(1 << 31)), (-1, -1), (1 << 32, 0)],
)
def test_wrap_int_keeps_low_bits_signed(value, expected):
    assert wrap_int(value) == expected
