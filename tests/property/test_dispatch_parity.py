"""Both kernels take the same from records for dispatch, and put and follow entries the same."""

import struct
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import damaged_logs, garbage, i32, i64, logs, u31
from twins import answer, assert_same, native, needs_native, scan_with

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.format.index import IndexHeader, file_size

pytestmark = needs_native

NAMES = [
    *("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH"),
    *("INNER_MULTI_QUEUE_OFFSET", "tags", "TAG", "KEYS ", "UNIQ_KEZ", "DELAX", "INNER_NUN"),
]
property_names = st.sampled_from([name.encode() for name in NAMES])
values = st.lists(
    st.sampled_from(
        [
            *(b"a", b" ", b"  ", b"key", b"\x01", b"longer-than-eight", b"0123456789abcdef"),
            *("é".encode(), "标签".encode(), "😀".encode(), b"\xff", b"\xe6\xa0", b"\xf0\x9f"),
            *(b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x00", b"\x7f"),
        ]
    ),
    max_size=5,
).map(b"".join)
items = st.one_of(
    st.builds(lambda name, value: name + b"\x01" + value, property_names, values),
    property_names,
    values,
)
property_strings = st.builds(
    lambda parts, end: b"\x02".join(parts) + end,
    st.lists(items, max_size=6),
    st.sampled_from([b"", b"\x02", b"\x02\x02", b"\x01"]),
)
sys_flags = st.one_of(i32, st.sampled_from([0x0, 0x4, 0x8, 0xC, 0x80, 0x8C]))


def rows_of(data):
    return scan_with(pure, data, 0, len(data), 0, 0)[3]


def table_of(parts):
    """Return a buffer and rows whose topic and properties are these; nothing else is in them."""
    data, rows = bytearray(), bytearray()
    for topic, properties, sys_flag in parts:
        at = len(data)
        data += topic + properties
        places = (0, 0, 0, 0, 0, 0, 0, at, at + len(topic))
        rows += struct.pack(
            *(layout.ROW_FORMAT, *places, 0, 0, 0, 0, sys_flag, 0, 0),
            *(len(topic), len(properties)),
        )
    return bytes(data), bytes(rows)


def assert_same_columns(data, rows, room=None):
    """Ask both kernels; return the codes and the traits of the rows."""
    room = len(rows) // layout.ROW_SIZE if room is None else room
    codes, traits = bytearray(b"\xee" * 8 * room), bytearray(b"\xee" * room)
    expected = answer(pure, "dispatch_columns", data, rows, codes, traits)
    assert answer(native, "dispatch_columns", data, rows, codes, traits) == expected
    (_, count), (codes, traits) = expected
    return struct.unpack(f"={room}q", codes)[:count], traits[:count]


def assert_same_keys(data, rows):
    """Ask both kernels; return hash and row of each key."""
    plain = _pairs(assert_same("key_entries", data, rows))
    with_tags = _pairs(assert_same("key_entries", data, rows, with_tags=True))
    assert [pair for pair in with_tags if pair[1] >= 0] == plain
    return plain


def _pairs(answered):
    kind, (hashes, rows_of_keys) = answered
    assert kind == "tuple"
    count = len(hashes) // 4
    return list(
        zip(
            struct.unpack(f"={count}i", hashes),
            struct.unpack(f"={count}i", rows_of_keys),
            strict=True,
        )
    )


# --- columns ---------------------------------------------------------------------------------


@given(st.one_of(logs(), damaged_logs()))
def test_records_of_a_log_are_read_the_same(log):
    rows = rows_of(log.data)
    assert_same_columns(log.data, rows)
    assert_same_keys(log.data, rows)


@given(st.lists(st.tuples(values, property_strings, sys_flags), max_size=6))
def test_properties_of_any_kind_are_read_the_same(parts):
    data, rows = table_of(parts)
    codes, traits = assert_same_columns(data, rows)
    keys = assert_same_keys(data, rows)
    for number, (topic, properties, sys_flag) in enumerate(parts):
        table = pure.decode_properties(properties)
        tag = table.get("TAGS")
        assert codes[number] == (pure.java_hash(tag) if tag else 0)
        assert bool(traits[number] & 1) == (sys_flag & 0xC in (0x0, 0x8))
        found = [*filter(None, [table.get("UNIQ_KEY"), *table.get("KEYS", "").split(" ")])]
        text = topic.decode("utf-8", "replace")
        wanted = [pure.key_hash(text, key) for key in found] if traits[number] & 2 else []
        assert [hash_ for hash_, row in keys if row == number] == wanted


@given(garbage, st.lists(st.integers(-2, 120), min_size=18, max_size=18))
def test_rows_made_up_are_read_the_same(data, numbers):
    row = struct.pack(layout.ROW_FORMAT, *numbers)
    assert_same_columns(data, row)
    assert_same_keys(data, row)


@given(garbage, st.binary(max_size=320), st.integers(0, 4))
def test_garbage_rows_are_read_the_same(data, rows, room):
    assert_same_columns(data, rows, room)
    assert_same_keys(data, rows)


@pytest.mark.parametrize("position", [-1, 1 << 62, -(1 << 63), (1 << 63) - 1, 5, 6])
def test_parts_far_outside_count_as_empty(position):
    places = (0, 0, 0, 0, 0, 0, 0, position, position)
    row = struct.pack(layout.ROW_FORMAT, *places, 0, 0, 0, 0, 0, 0, 0, 32767, 32767)
    assert assert_same_columns(b"TAGS\x01a", row) == ((0,), b"\x03")
    assert assert_same_keys(b"KEYS\x01a", row) == []


def test_every_pair_of_bytes_is_decoded_the_same():
    parts = [
        (bytes((first, second)), b"TAGS\x01" + value + b"\x02KEYS\x01x" + value + b"y", 0)
        for first, second in product(range(256), range(256))
        for value in [bytes((first, second))]
    ]
    data, rows = table_of(parts)
    assert_same_columns(data, rows)
    assert len(assert_same_keys(data, rows)) >= 60_000


def test_every_begin_of_a_long_character_is_decoded_the_same():
    first = [0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5]
    then = [0x20, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xE1, 0xFF]
    parts = [
        (bytes(value), b"TAGS\x01" + bytes(value), 0) for value in product(first, then, then, then)
    ]
    data, rows = table_of(parts)
    assert_same_columns(data, rows)
    codes, _ = assert_same_columns(data, rows)
    assert codes[0] == pure.java_hash(parts[0][0].decode("utf-8", "replace"))


def test_text_of_every_length_is_hashed_the_same():
    """Eight characters are taken at once; what is left over, and what is no ASCII, one by one."""
    texts = ["0123456789abcdefghijklmnopqrstuv"[:n] + more for n in range(33) for more in ("", "é")]
    parts = [(text.encode(), f"KEYS\x01{text}\x02TAGS\x01{text}".encode(), 0) for text in texts[1:]]
    data, rows = table_of(parts)
    codes, _ = assert_same_columns(data, rows)
    assert list(codes) == [pure.java_hash(text) for text in texts[1:]]
    assert [hash_ for hash_, _ in assert_same_keys(data, rows)] == [
        pure.key_hash(text, text) for text in texts[1:]
    ]


def test_key_of_the_smallest_hash_becomes_zero_in_both():
    data, rows = table_of([(b"t", b"KEYS\x01!+%?!1#", 0)])
    assert assert_same_keys(data, rows) == [(0, 0)]


def test_more_keys_than_records_have_are_found_by_both():
    parts = [(b"T", b"KEYS\x01" + b" ".join(b"%d" % n for n in range(1000)), 0)] * 3
    keys = assert_same_keys(*table_of(parts))
    assert [row for _, row in keys] == [0] * 1000 + [1] * 1000 + [2] * 1000


# --- put_entries -----------------------------------------------------------------------------

small = st.integers(-2, 9)
headers = st.builds(
    *(IndexHeader, st.one_of(small, i64), i64, i64, i64, i32),
    st.one_of(small, st.integers(10, 200), i32),
)
puts = st.lists(
    st.tuples(st.one_of(st.integers(0, 9), u31, i32), i64, st.one_of(st.integers(0, 9000), i64)),
    max_size=40,
)


@st.composite
def index_files(draw):
    """An index file of any content: shape, and bytes that may be more or fewer than its own."""
    slots, entries = draw(st.integers(1, 6)), draw(st.integers(0, 30))
    data = draw(headers).encode()
    data += b"".join(struct.pack(">i", draw(st.one_of(small, i32))) for _ in range(slots))
    data += b"".join(
        struct.pack(">iqii", draw(st.one_of(small, i32)), draw(i64), draw(small), draw(small))
        for _ in range(entries)
    )
    change = draw(st.sampled_from([0, 0, 0, -1, 1, 30, -30]))
    return slots, entries, (data + bytes(max(change, 0)))[: len(data) + change]


def packed(entries):
    hashes = struct.pack(f"={len(entries)}i", *(entry[0] for entry in entries))
    offsets = struct.pack(f"={len(entries)}q", *(entry[1] for entry in entries))
    times = struct.pack(f"={len(entries)}q", *(entry[2] for entry in entries))
    return hashes, offsets, times


@given(index_files(), puts, st.booleans())
def test_entries_are_put_as_one_after_the_other(index, entries, every):
    slots, room, data = index
    file = bytearray(data)
    outcome, (written,) = answer(native, "put_entries", file, slots, room, *packed(entries), every)
    assert answer(pure, "put_entries", file, slots, room, *packed(entries), every) == (
        *(outcome, [written]),
    )
    if outcome[0] == "raised":
        assert written == data
        return
    taken = 0
    for entry in entries:
        if not pure.index_put(file, slots, room, *entry, every):
            break
        taken += 1
    assert (outcome[1], written) == (taken, bytes(file))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 9))
def test_entries_of_an_empty_file_are_put_up_to_its_end(count, room, slots):
    file = bytearray(file_size(slots, room))
    entries = [(n * 7 % 11, n, 1_700_000_000_000 + 400 * n) for n in range(count)]
    kind, done = assert_same("put_entries", file, slots, room, *packed(entries), False)
    assert (kind, done) == ("int", max(min(count, room - 1), 0))


@given(st.binary(max_size=120), st.integers(-2, 10), st.integers(-2, 5), puts)
def test_entries_are_put_the_same_into_garbage_of_any_shape(data, slots, entries, sequence):
    assert_same("put_entries", bytearray(data), slots, entries, *packed(sequence), False)


def test_columns_of_unequal_length_are_put_as_far_as_all_reach():
    hashes, offsets, times = packed([(n, n, n) for n in range(9)])
    file = bytearray(file_size(3, 20))
    for columns in ((hashes[:11], offsets, times), (hashes, offsets[:17], times)):
        assert assert_same("put_entries", file, 3, 20, *columns, False) == ("int", 2)
    assert assert_same("put_entries", file, 3, 20, hashes, offsets, b"", False) == ("int", 0)


# --- index_walk ------------------------------------------------------------------------------


def walk_all(kernel, data, slots, hash_, begin, end, room):
    """Follow a chain in steps; return what was found."""
    found, entry = [], 0
    for _ in range(1000):
        out = bytearray(8 * room)
        count, entry = kernel.index_walk(data, slots, hash_, entry, begin, end, out)
        found += struct.unpack(f"={room}q", out)[:count]
        if entry == 0:
            return found
    raise AssertionError("the walk does not end")


@given(index_files(), i32, st.one_of(small, i64), st.tuples(i64, i64), st.integers(0, 20))
def test_chain_is_followed_the_same_in_a_file_of_any_content(index, hash_, entry, times, room):
    (slots, _, data), (begin, end) = index, times
    for wanted in (hash_, 0, 1, 2):
        out = bytearray(b"\xee" * (room + 3))
        assert_same("index_walk", data, slots, wanted, entry, begin, end, out)
        assert_same("index_walk", data, slots, wanted, 0, -(1 << 63), (1 << 63) - 1, out)


@given(index_files(), st.integers(0, 5), i64, i64, st.integers(1, 4))
def test_walk_in_steps_ends_and_finds_what_one_step_finds(index, hash_, begin, end, room):
    slots, _, data = index
    whole = walk_all(pure, data, slots, hash_, begin, end, 1000)
    assert walk_all(pure, data, slots, hash_, begin, end, room) == whole
    assert walk_all(native, data, slots, hash_, begin, end, room) == whole


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 6), i64, st.integers(0, 90_000)), max_size=30),
    st.integers(1, 9),
)
def test_walk_finds_what_was_put_and_lookup_finds(slots, keys, room):
    file = bytearray(file_size(slots, len(keys) + 1))
    entries = [(hash_, offset, 1_700_000_000_000 + time) for hash_, offset, time in keys]
    assert native.put_entries(file, slots, len(keys) + 1, *packed(entries), False) == len(keys)
    for hash_ in range(7):
        found = walk_all(native, file, slots, hash_, 0, 1 << 62, room)
        assert found == pure.index_lookup(file, slots, hash_, 0, 1 << 62, 1000)
        assert found == [offset for each, offset, _ in reversed(keys) if each == hash_]


@pytest.mark.parametrize("previous", [1, 2, 3, 4, (1 << 31) - 1])
def test_chain_that_does_not_go_back_ends(previous):
    file = bytearray(file_size(1, 9))
    file[:40] = IndexHeader(1, 1, 0, 0, 1, 4).encode()
    struct.pack_into(">i", file, 40, 3)
    for number in (1, 2, 3):
        struct.pack_into(">iqii", file, file_size(1, number), 7, number, 0, number - 1)
    struct.pack_into(">i", file, file_size(1, 2) + 16, previous)
    wanted = [3, 2, 1] if previous == 1 else [3, 2]
    for kernel in (pure, native):
        assert walk_all(kernel, file, 1, 7, 0, 1 << 60, 1) == wanted
