"""Both kernels filter, index, look up and hash in the same way, on files of any content."""

import struct
import zlib
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import any_texts, i32, i64, u31
from twins import assert_same, native, needs_native

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.format.index import IndexHeader, file_size

pytestmark = needs_native

# --- queue units -----------------------------------------------------------------------------

codes = st.one_of(
    st.integers(-4, 4),
    i64,
    st.integers(-4, 4).map(lambda n: (1 << 32) + n),
    st.integers(-3, 3).map(lambda n: layout.EXT_ADDRESS_MAX + n),
)


@given(
    st.lists(st.tuples(i64, i32, codes), max_size=20),
    st.lists(st.one_of(st.integers(-4, 4), i32), max_size=6),
    st.integers(0, 25),
    st.binary(max_size=19),
)
def test_units_are_filtered_the_same(units, hashes, room, rest):
    data = b"".join(struct.pack(">qiq", *unit) for unit in units) + rest
    wanted = struct.pack(f"={len(hashes)}i", *hashes)
    assert_same("filter_units", data, wanted, bytearray(b"\xee" * room))


@given(st.binary(max_size=200), st.lists(i32, max_size=3))
def test_garbage_is_filtered_the_same(data, hashes):
    wanted = struct.pack(f"={len(hashes)}i", *hashes)
    assert_same("filter_units", data, wanted, bytearray(b"\xee" * (len(data) // 20)))


# --- index -----------------------------------------------------------------------------------

small = st.integers(-2, 9)
headers = st.builds(IndexHeader, i64, i64, i64, i64, i32, st.one_of(small, st.integers(10, 200)))
entries_of_a_file = st.tuples(
    st.one_of(small, i32), i64, st.one_of(st.integers(-2, 100), i32), st.one_of(small, i32)
)


@st.composite
def index_files(draw):
    """An index file of any content: shape, and bytes that may be more or fewer than its own.

    The count is small, for what is at stake here is the answer; a chain that runs in a circle is
    followed as often as the count allows.
    """
    slots, entries = draw(st.integers(1, 6)), draw(st.integers(0, 9))
    data = draw(headers).encode()
    data += b"".join(struct.pack(">i", draw(st.one_of(small, i32))) for _ in range(slots))
    data += b"".join(struct.pack(">iqii", *draw(entries_of_a_file)) for _ in range(entries))
    assert len(data) == file_size(slots, entries)
    change = draw(st.sampled_from([0, 0, 0, -1, 1, 30, -30]))
    return slots, entries, (data + bytes(max(change, 0)))[: len(data) + change]


puts = st.tuples(st.one_of(st.integers(0, 9), u31, i32), i64, i64, st.booleans())


def put_all(kernel, slots, entries, data, sequence):
    """Put one after the other; return the answers and the file."""
    file = bytearray(data)
    answers = []
    for arguments in sequence:
        try:
            answers.append(kernel.index_put(file, slots, entries, *arguments))
        except ValueError as error:
            answers.append(str(error))
    return answers, bytes(file)


@given(index_files(), st.lists(puts, min_size=1, max_size=12))
def test_keys_are_put_the_same_into_a_file_of_any_content(index, sequence):
    slots, entries, data = index
    expected = put_all(pure, slots, entries, data, sequence)
    assert put_all(native, slots, entries, data, sequence) == expected


@given(st.integers(1, 6), st.integers(1, 9), st.lists(puts, min_size=1, max_size=12))
def test_keys_are_put_the_same_into_an_empty_file(slots, entries, sequence):
    data = bytes(file_size(slots, entries))
    expected = put_all(pure, slots, entries, data, sequence)
    assert put_all(native, slots, entries, data, sequence) == expected
    assert expected[0] == [i < entries - 1 for i in range(len(sequence))]


@given(st.binary(max_size=120), st.integers(-2, 10), st.integers(-2, 5), puts)
def test_keys_are_put_the_same_into_garbage_of_any_shape(data, slots, entries, arguments):
    assert_same("index_put", bytearray(data), slots, entries, *arguments)


@given(index_files(), i32, i64, i64, st.integers(-1, 70))
def test_keys_are_looked_up_the_same_in_a_file_of_any_content(index, hash_, begin, end, limit):
    slots, _, data = index
    assert_same("index_lookup", data, slots, hash_, begin, end, limit)
    for wanted in range(3):
        assert_same("index_lookup", data, slots, wanted, begin, end, limit)
        assert_same("index_lookup", data, slots, wanted, -(1 << 63), (1 << 63) - 1, limit)


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 6), i64, st.integers(0, 90_000))))
def test_keys_that_were_put_are_looked_up_the_same(slots, keys):
    file = bytearray(file_size(slots, len(keys) + 1))
    for hash_, offset, time in keys:
        pure.index_put(file, slots, len(keys) + 1, hash_, offset, 1_700_000_000_000 + time, False)
    for hash_ in range(7):
        kind, found = assert_same("index_lookup", file, slots, hash_, 0, (1 << 63) - 1, 1000)
        assert kind == "list"
        assert found == [offset for each, offset, _ in reversed(keys) if each == hash_]


@given(st.binary(max_size=120), st.integers(-2, 10), i32, i64, i64, st.integers(-1, 9))
def test_keys_are_looked_up_the_same_in_garbage(data, slots, hash_, begin, end, limit):
    # The count of a header of garbage is cut down, or a circle would be followed for long.
    if len(data) > 40:
        data = data[:36] + b"\0\0" + data[38:]
    assert_same("index_lookup", data, slots, hash_, begin, end, limit)


def test_every_count_and_slot_value_of_a_small_file_is_put_the_same():
    for count, newest, every in product(range(-1, 9), range(-1, 10), (False, True)):
        file = bytearray(file_size(1, 8))
        file[:40] = IndexHeader(1000, 0, 0, 0, 3, count).encode()
        struct.pack_into(">i", file, 40, newest)
        assert_same("index_put", file, 1, 8, 77, 4096, 5000, every)


@pytest.mark.parametrize("room", [3, 4, 9])
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_circle_of_wanted_entries_is_followed_as_far_by_both(length, room, limit):
    file = bytearray(file_size(1, room))
    file[:40] = IndexHeader(1, 1, 0, 0, 1, (1 << 31) - 1).encode()
    struct.pack_into(">i", file, 40, 1)
    for number in range(1, min(length + 1, room)):
        at = file_size(1, number)
        struct.pack_into(">iqii", file, at, 7, number, 0, number % length + 1)
    kind, found = assert_same("index_lookup", bytes(file), 1, 7, 0, 1 << 60, limit)
    assert kind == "list"
    assert 1 <= len(found) <= min(limit, room)


# --- hashes ----------------------------------------------------------------------------------


@given(any_texts)
def test_text_is_hashed_the_same(text):
    assert assert_same("java_hash", text)[0] == "int"


@given(any_texts, any_texts)
def test_key_is_hashed_the_same(topic, key):
    assert assert_same("key_hash", topic, key)[0] == "int"


@pytest.mark.parametrize(
    "text", ["", "a", "é", "标", "😀", "\ud83d", "\ude00\ud83d", "\U0010ffff", "\x00"]
)
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_text_of_each_width_is_hashed_the_same(text, count):
    assert_same("java_hash", text * count)
    assert_same("key_hash", text * count, text)
    assert_same("key_hash", text, text * count)


def test_key_of_the_smallest_hash_is_hashed_the_same():
    assert pure.java_hash("t#!+%?!1#") == -(1 << 31)
    assert assert_same("key_hash", "t", "!+%?!1#") == ("int", 0)


# --- checksum --------------------------------------------------------------------------------

PATTERN = bytes((i * i * 31 + i * 7) & 0xFF for i in range(1 << 16))


@pytest.mark.parametrize("alignment", range(16))
def test_checksum_of_every_small_size_at_every_alignment_is_the_same(alignment):
    view = memoryview(PATTERN)[alignment:]
    for size in range(301):
        assert native.crc31(view[:size]) == zlib.crc32(view[:size]) & 0x7FFFFFFF, size


@pytest.mark.parametrize("size", [4095, 4096, 4097, 65_535, 1_000_003, 4 << 20])
@pytest.mark.parametrize("alignment", [0, 1, 7, 8, 15])
def test_checksum_of_large_buffers_is_the_same(size, alignment):
    data = memoryview(PATTERN * (size // len(PATTERN) + 2))[alignment : alignment + size]
    assert assert_same("crc31", data) == ("int", zlib.crc32(data) & 0x7FFFFFFF)


@given(st.binary(max_size=400), st.integers(0, 70))
def test_checksum_of_any_bytes_is_the_same(data, skip):
    assert_same("crc31", data)
    assert_same("crc31", memoryview(data)[min(skip, len(data)) :])


@pytest.mark.parametrize("byte", [b"\x00", b"\xff", b"\x80"])
def test_checksum_of_equal_bytes_is_the_same(byte):
    for size in range(0, 400, 3):
        assert_same("crc31", byte * size)
