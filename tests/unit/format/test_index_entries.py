"""Index file: header, entries, put and lookup (docs/formats/index.md)."""

import struct

import pytest

from rocketlake.format import layout
from rocketlake.format.index import (
    IndexEntry,
    IndexHeader,
    entries_for,
    entry_position,
    file_size,
    key_hash,
    lookup,
    put,
    slot_position,
)

SLOTS, ENTRIES = 10, 30
ALL_TIME = (-(1 << 63), (1 << 63) - 1)
BEGIN = 1_700_000_000_000


def empty(slots=SLOTS, entries=ENTRIES):
    return bytearray(file_size(slots, entries))


def header(data):
    return IndexHeader.decode(data)


def entry(data, number, slots=SLOTS):
    return IndexEntry.decode(data, entry_position(slots, number))


def slot(data, number):
    return struct.unpack_from(">i", data, 40 + 4 * number)[0]


def add(data, hash_, offset, time=BEGIN, every=False):
    return put(data, SLOTS, ENTRIES, hash_, offset, time, every)


# --- layout ----------------------------------------------------------------------------------


def test_header_has_40_bytes_in_the_order_of_the_format():
    made = IndexHeader(1, 2, 3, 4, 5, 6)
    assert made.encode() == struct.pack(">qqqqii", 1, 2, 3, 4, 5, 6)
    assert IndexHeader.decode(made.encode() + b"more") == made


@pytest.mark.parametrize(("count", "used"), [(-5, 0), (0, 0), (1, 0), (2, 1), (400, 399)])
def test_entries_used_is_one_less_than_the_count(count, used):
    assert IndexHeader(0, 0, 0, 0, 0, count).entries_used == used


def test_entry_has_20_bytes_in_the_order_of_the_format():
    made = IndexEntry(-1, 2, 3, 4)
    assert made.encode() == struct.pack(">iqii", -1, 2, 3, 4)
    assert IndexEntry.decode(b"xyz" + made.encode(), 3) == made


def test_positions_of_the_spec_vector():
    assert key_hash("TopicTest", "key1") == 1655984460
    assert slot_position(5_000_000, 1655984460) == 3937880
    assert entry_position(5_000_000, 1) == 20000060
    assert file_size(5_000_000, 20_000_000) == 420000040


@pytest.mark.parametrize(
    ("size", "slots", "entries"),
    [
        (40 + 4 * 10 + 20 * 30, 10, 30),
        (40 + 4 * 10, 10, 0),
        (40 + 4 * 10 + 20 * 30, 15, 29),
        (40 + 4 * 10 + 20 * 30, 160, 0),
        (40 + 4 * 10 + 20 * 30, 165, None),
        (40 + 4 * 10 + 20 * 30, 11, None),
        (40 + 4 * 10 + 20 * 30, 0, None),
        (40 + 4 * 10 + 20 * 30, -10, None),
        (0, 1, None),
    ],
)
def test_entries_for_divides_what_the_slots_leave(size, slots, entries):
    assert entries_for(size, slots) == entries


# --- put -------------------------------------------------------------------------------------


def test_put_of_the_spec_vector_lies_where_the_spec_says():
    data = empty(5_000_000, 3)
    assert put(data, 5_000_000, 3, key_hash("TopicTest", "key1"), 4096, BEGIN, False)
    assert struct.unpack_from(">i", data, 3937880) == (1,)
    assert IndexEntry.decode(data, 20000060) == IndexEntry(1655984460, 4096, 0, 0)
    assert header(data) == IndexHeader(BEGIN, BEGIN, 4096, 4096, 1, 2)


def test_first_put_sets_begin_and_end():
    data = empty()
    assert add(data, 23, 700, BEGIN)
    assert header(data) == IndexHeader(BEGIN, BEGIN, 700, 700, 1, 2)
    assert slot(data, 3) == 1
    assert entry(data, 1) == IndexEntry(23, 700, 0, 0)
    assert entry(data, 0) == IndexEntry(0, 0, 0, 0)


def test_put_chains_entries_of_one_slot():
    data = empty()
    for number, hash_ in enumerate((3, 13, 4, 23), 1):
        assert add(data, hash_, 100 * number, BEGIN + 1000 * number)
    assert [entry(data, n).previous for n in range(1, 5)] == [0, 1, 0, 2]
    assert (slot(data, 3), slot(data, 4)) == (4, 3)
    assert [entry(data, n).time_diff_s for n in range(1, 5)] == [0, 1, 2, 3]
    # Two slots are in use; the count is the number of the next entry.
    assert header(data) == IndexHeader(BEGIN + 1000, BEGIN + 4000, 100, 400, 2, 5)


def test_put_of_releases_to_4_6_counts_every_entry_as_a_slot():
    data = empty()
    for hash_ in (3, 13, 4, 3):
        add(data, hash_, 100, every=True)
    assert header(data).slot_count == 4
    assert header(data).entry_count == 5


def test_put_into_a_full_file_changes_nothing():
    data = empty()
    assert [add(data, n, n) for n in range(1, ENTRIES)] == [True] * (ENTRIES - 1)
    assert header(data).entry_count == ENTRIES
    before = bytes(data)
    assert add(data, 5, 5) is False
    assert data == before


def test_file_of_one_entry_is_full_from_the_start():
    data = bytearray(file_size(SLOTS, 1))
    assert put(data, SLOTS, 1, 5, 5, BEGIN, False) is False
    assert data == bytes(len(data))


@pytest.mark.parametrize("count", [0, -1, -(1 << 31), 1])
def test_count_of_a_new_file_is_taken_for_one(count):
    data = empty()
    data[:40] = IndexHeader(0, 0, 0, 0, 0, count).encode()
    add(data, 3, 77)
    assert entry(data, 1).physical_offset == 77
    assert header(data).entry_count == 2


@pytest.mark.parametrize("old", [-1, -(1 << 31), 0, 4, (1 << 31) - 1])
def test_slot_that_points_to_no_entry_counts_as_empty(old):
    data = empty()
    data[:40] = IndexHeader(BEGIN, BEGIN, 0, 0, 2, 3).encode()
    struct.pack_into(">i", data, 40 + 4 * 3, old)
    add(data, 13, 77)
    assert entry(data, 3).previous == 0
    assert header(data).slot_count == 3
    assert slot(data, 3) == 3


def test_slot_that_points_to_the_next_entry_is_kept_as_the_reference_does():
    """A lookup gives 0 only if beyond the count, and the count is the number of the next entry."""
    data = empty()
    data[:40] = IndexHeader(BEGIN, BEGIN, 0, 0, 2, 3).encode()
    struct.pack_into(">i", data, 40 + 4 * 3, 3)
    add(data, 13, 77)
    assert entry(data, 3).previous == 3


@pytest.mark.parametrize(
    ("begin", "time", "diff"),
    [
        (BEGIN, BEGIN + 999, 0),
        (BEGIN, BEGIN + 1000, 1),
        (BEGIN, BEGIN + 1999, 1),
        (BEGIN, BEGIN - 1, 0),
        (BEGIN, 0, 0),
        (0, BEGIN, 0),
        (-5, BEGIN, 0),
        (1, 1 + 2147483647 * 1000, 2147483647),
        (1, 1 + 2147483648 * 1000, 2147483647),
        (1, (1 << 63) - 1, 2147483647),
        (BEGIN, -(1 << 63), 2147483647),  # Java's long wraps: the difference is large again.
    ],
)
def test_time_of_an_entry_is_whole_seconds_since_the_begin(begin, time, diff):
    data = empty()
    data[:40] = IndexHeader(begin, begin, 0, 0, 1, 2).encode()
    add(data, 3, 77, time)
    assert entry(data, 2).time_diff_s == diff
    assert header(data).begin_timestamp == begin
    assert header(data).end_timestamp == time


def test_first_entry_of_a_follow_up_file_counts_from_the_end_of_the_file_before():
    """Its time is taken from the preset begin, which is then overwritten."""
    data = empty()
    data[:40] = IndexHeader(BEGIN, BEGIN, 900, 900, 0, 1).encode()
    add(data, 3, 1000, BEGIN + 7000)
    assert entry(data, 1).time_diff_s == 7
    assert header(data) == IndexHeader(BEGIN + 7000, BEGIN + 7000, 1000, 1000, 1, 2)


@pytest.mark.parametrize(
    ("slots", "entries"), [(0, 30), (-1, 30), (10, -1), (10, 31), (15, 30), (170, 0)]
)
def test_put_into_a_buffer_of_another_shape_is_refused(slots, entries):
    data = empty()
    with pytest.raises(ValueError, match=f"do not hold {slots} slots and {entries} entries"):
        put(data, slots, entries, 5, 5, BEGIN, False)
    assert data == empty()


def test_put_into_a_larger_buffer_leaves_the_rest_alone():
    data = empty() + b"\xaa" * 50
    for n in range(1, ENTRIES):
        assert add(data, n, n)
    assert data[file_size(SLOTS, ENTRIES) :] == b"\xaa" * 50


# --- lookup ----------------------------------------------------------------------------------


def filled(*hashes):
    """Return a file with these hashes, at offsets 100, 200, ..., one second apart."""
    data = empty()
    for number, hash_ in enumerate(hashes, 1):
        assert add(data, hash_, 100 * number, BEGIN + 1000 * (number - 1))
    return bytes(data)


def test_lookup_finds_entries_of_the_hash_newest_first():
    data = filled(3, 13, 3, 4, 3)
    assert lookup(data, SLOTS, 3, *ALL_TIME, 64) == [500, 300, 100]
    assert lookup(data, SLOTS, 13, *ALL_TIME, 64) == [200]
    assert lookup(data, SLOTS, 4, *ALL_TIME, 64) == [400]


@pytest.mark.parametrize("hash_", [23, 5, 0, (1 << 31) - 1])
def test_lookup_of_an_unknown_hash_finds_nothing(hash_):
    assert lookup(filled(3, 13), SLOTS, hash_, *ALL_TIME, 64) == []


@pytest.mark.parametrize(("limit", "found"), [(0, []), (1, [500]), (2, [500, 300]), (-1, [])])
def test_lookup_stops_at_its_limit(limit, found):
    assert lookup(filled(3, 13, 3, 4, 3), SLOTS, 3, *ALL_TIME, limit) == found


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (BEGIN, BEGIN + 4000, [500, 300, 100]),
        (BEGIN + 1, BEGIN + 4000, [500, 300]),
        (BEGIN, BEGIN + 3999, [300, 100]),
        (BEGIN + 2000, BEGIN + 2000, [300]),
        (BEGIN + 2001, BEGIN + 3999, []),
        (BEGIN + 4000, BEGIN, []),
    ],
)
def test_lookup_keeps_to_the_range_of_time(begin, end, found):
    assert lookup(filled(3, 13, 3, 4, 3), SLOTS, 3, begin, end, 64) == found


def test_lookup_stops_at_an_entry_before_the_range_even_if_a_later_time_lies_behind_it():
    """Times in a chain go back only if the clock did."""
    data = empty()
    for offset, seconds in ((100, 0), (200, 9), (300, 1)):
        add(data, 3, offset, BEGIN + 1000 * seconds)
    assert lookup(data, SLOTS, 3, BEGIN + 5000, BEGIN + 9000, 64) == []
    assert lookup(data, SLOTS, 3, BEGIN + 1000, BEGIN + 9000, 64) == [300, 200]


def test_lookup_of_the_key_whose_hash_has_no_positive_twin_finds_it_under_zero():
    hash_ = key_hash("t", "!+%?!1#")
    assert hash_ == 0
    data = filled(hash_, 10)
    assert lookup(data, SLOTS, hash_, *ALL_TIME, 64) == [100]


def test_lookup_in_an_empty_file_finds_nothing():
    assert lookup(bytes(empty()), SLOTS, 3, *ALL_TIME, 64) == []


@pytest.mark.parametrize("size", [0, 39, 40, 79])
def test_lookup_in_less_than_the_slots_finds_nothing(size):
    assert lookup(filled(3)[:size], SLOTS, 3, *ALL_TIME, 64) == []
    assert lookup(filled(3), 0, 3, *ALL_TIME, 64) == []
    assert lookup(filled(3), -10, 3, *ALL_TIME, 64) == []


def test_lookup_in_a_cut_file_finds_what_lies_before_the_cut():
    data = filled(3, 3, 3)
    cut = bytearray(data[: entry_position(SLOTS, 3)])
    assert lookup(cut, SLOTS, 3, *ALL_TIME, 64) == []
    struct.pack_into(">i", cut, 40 + 12, 2)
    assert lookup(cut, SLOTS, 3, *ALL_TIME, 64) == [200, 100]


def test_lookup_stops_at_an_entry_with_a_negative_time():
    data = bytearray(filled(3, 3, 3))
    struct.pack_into(">i", data, entry_position(SLOTS, 2) + 12, -1)
    assert lookup(data, SLOTS, 3, *ALL_TIME, 64) == [300]


@pytest.mark.parametrize("previous", [0, -1, 3, 5, (1 << 31) - 1])
def test_lookup_stops_where_the_chain_leads_nowhere(previous):
    data = bytearray(filled(3, 3, 3))
    struct.pack_into(">i", data, entry_position(SLOTS, 3) + 16, previous)
    assert lookup(data, SLOTS, 3, *ALL_TIME, 64) == [300]


def test_lookup_in_a_chain_that_bites_its_tail_ends():
    data = bytearray(filled(3, 3, 3))
    struct.pack_into(">i", data, entry_position(SLOTS, 1) + 16, 3)
    found = lookup(data, SLOTS, 3, *ALL_TIME, 64)
    assert found[:3] == [300, 200, 100]
    assert len(found) <= 64


def test_sizes_of_the_parts_are_those_of_the_layout():
    sizes = (layout.INDEX_HEADER_SIZE, layout.INDEX_SLOT_SIZE, layout.INDEX_ENTRY_SIZE)
    assert sizes == (40, 4, 20)
