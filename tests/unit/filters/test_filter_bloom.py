"""Sizes and positions come from the reference's BloomFilter (5.3.3), hashes from its Guava."""

import pytest

from rocketlake.filters import BloomFilter
from rocketlake.filters.bloom import murmur3_x64


@pytest.mark.parametrize(
    ("error_rate_percent", "expected_count", "hash_count", "bit_count"),
    [
        (20, 32, 3, 112),
        (1, 1000, 7, 9592),
        (10, 128, 4, 616),
        (25, 32, 2, 96),
        (50, 1, 1, 8),
        (99, 1, 1, 8),
        (99, 1000, 1, 24),
        (1, 1, 7, 16),
        (13, 33, 3, 144),
    ],
)
def test_sized_gives_the_references_parameters(
    error_rate_percent, expected_count, hash_count, bit_count
):
    bloom = BloomFilter.sized(error_rate_percent=error_rate_percent, expected_count=expected_count)
    assert bloom == BloomFilter(hash_count, bit_count)
    assert bloom.byte_count == bit_count // 8


@pytest.mark.parametrize(
    ("error_rate_percent", "expected_count"), [(0, 32), (100, 32), (-1, 32), (20, 0)]
)
def test_sized_out_of_range_is_refused(error_rate_percent, expected_count):
    with pytest.raises(ValueError, match="must be"):
        BloomFilter.sized(error_rate_percent=error_rate_percent, expected_count=expected_count)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("foo", -2129773440516405919),
        ("CG1#TopicTest", 6647427326898232275),
        ("0123456789abcde", -6472281833689111727),
        ("0123456789abcdef", 5467490433528156583),
        ("0123456789abcdef0", -1502884478548852619),
        ("please_rename_unique_group_name_4#TopicTest", 7552937012235828397),
        ("组#主题", -3220610555414713741),
    ],
)
def test_murmur3_of_any_length_is_guavas(text, expected):
    assert murmur3_x64(text.encode()) == expected % (1 << 64)


@pytest.mark.parametrize(
    ("group", "topic", "expected"),
    [
        ("CG1", "TopicTest", (45, 14, 16)),
        ("GID_test", "TopicTest", (32, 78, 12)),
        ("组", "主题", (38, 9, 19)),
        ("😀", "t", (55, 24, 105)),
        ("\ud800", "x", (1, 14, 30)),
    ],
)
def test_bit_positions_of_default_filter_are_the_references(group, topic, expected):
    assert BloomFilter.sized().bit_positions(group, topic) == expected


def test_bit_positions_of_larger_filter_are_the_references():
    bloom = BloomFilter.sized(error_rate_percent=1, expected_count=1000)
    expected = (4277, 6246, 1376, 6008, 7977, 9237, 7739)
    assert bloom.bit_positions("CG1", "TopicTest") == expected


def test_set_bits_puts_bit_p_under_its_mask():
    bitmap = bytearray(14)
    BloomFilter.sized().set_bits((45, 14, 16), bitmap)
    assert bitmap == bytes([0, 0b0100_0000, 0b1, 0, 0, 0b0010_0000, *[0] * 8])


def test_set_bits_in_bitmap_of_other_size_is_refused():
    with pytest.raises(ValueError, match="14 bytes"):
        BloomFilter.sized().set_bits((1,), bytearray(8))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_is_hit_needs_every_bit(kind):
    bloom = BloomFilter.sized()
    bitmap = bytearray(bloom.byte_count)
    assert not bloom.is_hit((45, 14, 16), kind(bitmap))
    bloom.set_bits((45, 14), bitmap)
    assert not bloom.is_hit((45, 14, 16), kind(bitmap))
    bloom.set_bits((16,), bitmap)
    assert bloom.is_hit((45, 14, 16), kind(bitmap))
    assert not bloom.is_hit((45, 14, 17), kind(bitmap))


@pytest.mark.parametrize("size", [0, 8, 15])
def test_is_hit_with_bitmap_of_other_size_rules_nobody_out(size):
    assert BloomFilter.sized().is_hit((45, 14, 16), bytes(size))
