"""The slot count of an index file, derived from its chains and proven by replaying them."""

import random
import struct

import pytest

from rocketlake.format.index import (
    IndexEntry,
    IndexHeader,
    entry_position,
    file_size,
    find_slots,
    prove_slots,
    put,
)

BEGIN = 1_700_000_000_000


def made(slots, entries, count, seed=1, every=False):
    """Return an index file with `count` keys at rising offsets."""
    rng = random.Random(seed)
    data = bytearray(file_size(slots, entries))
    offset = rng.randrange(1 << 30)
    for i in range(count):
        offset += rng.randrange(91, 5000)
        hash_ = rng.randrange(1 << 31)
        assert put(data, slots, entries, hash_, offset, BEGIN + 10 * i, every)
    return data


SHAPES = [(100, 400), (7, 50), (1, 40), (50, 12), (500, 2000), (5, 11), (10, 11), (123, 321)]


@pytest.mark.parametrize(("slots", "entries"), SHAPES)
@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_slots_of_a_filled_file_are_found(slots, entries, share):
    count = max(2, int(share * (entries - 1)))
    data = made(slots, entries, count)
    assert prove_slots(data, slots)
    assert find_slots(data) == slots
    assert find_slots(bytes(data)) == slots


def test_slots_of_a_file_of_4_6_are_found():
    assert find_slots(made(100, 400, 250, every=True)) == 100


def test_slots_of_a_file_with_one_key_are_found():
    assert find_slots(made(100, 400, 1)) == 100


def test_slots_of_a_file_with_equal_offsets_are_found():
    """Several keys of one message have one offset, so entry 1 alone does not tell its place."""
    data = bytearray(file_size(20, 60))
    for hash_ in (3, 1017, 25, 7, 3, 88):
        put(data, 20, 60, hash_, 4096, BEGIN, False)
    assert find_slots(data) == 20


def test_no_other_slot_count_is_proven():
    data = made(100, 400, 300)
    proven = [slots for slots in range(1, 2100) if prove_slots(data, slots)]
    assert proven == [100]


@pytest.mark.parametrize("slots", [0, -5, 99, 101, 1 << 40])
def test_slot_count_that_the_size_does_not_allow_is_not_proven(slots):
    assert not prove_slots(made(100, 400, 300), slots)


@pytest.mark.parametrize("count", [0, 1, -7])
def test_empty_file_proves_nothing(count):
    data = bytearray(file_size(100, 400))
    data[:40] = IndexHeader(0, 0, 0, 0, 0, count).encode()
    assert find_slots(data) is None
    assert not prove_slots(data, 100)


@pytest.mark.parametrize("size", [0, 1, 39, 40, 43, 44, 64])
def test_bytes_too_few_for_an_index_prove_nothing(size):
    assert find_slots(bytes(size)) is None
    assert find_slots(b"\x01" * size) is None


@pytest.mark.parametrize("size", [0, 1, 39])
def test_slot_count_of_less_than_a_header_is_not_proven(size):
    assert not prove_slots(bytes(size), 1)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 20])
def test_cut_file_proves_nothing_wrong(cut):
    """A cut of whole entries that nobody wrote leaves the chains; any other leaves nothing."""
    data = made(100, 400, 300)
    assert find_slots(data[:-cut]) in ((100, None) if cut == 20 else (None,))


@pytest.mark.parametrize("count", [401, 1 << 20, (1 << 31) - 1])
def test_count_beyond_the_entries_proves_nothing(count):
    data = made(100, 400, 300)
    struct.pack_into(">i", data, 36, count)
    assert find_slots(data) is None
    assert not prove_slots(data, 100)


def test_each_broken_link_is_noticed():
    data = made(10, 40, 30)
    for number in range(1, 31):
        broken = bytearray(data)
        at = entry_position(10, number)
        entry = IndexEntry.decode(broken, at)
        broken[at : at + 20] = IndexEntry(
            entry.key_hash, entry.physical_offset, entry.time_diff_s, entry.previous + 1
        ).encode()
        assert not prove_slots(broken, 10), number


def test_each_broken_slot_is_noticed():
    data = made(10, 40, 30)
    for slot in range(10):
        broken = bytearray(data)
        broken[40 + 4 * slot + 3] ^= 1
        assert not prove_slots(broken, 10), slot


def test_negative_hash_proves_nothing():
    data = made(10, 40, 30)
    struct.pack_into(">i", data, entry_position(10, 5), -1)
    assert not prove_slots(data, 10)
    assert find_slots(data) is None


def test_two_counts_that_both_hold_prove_nothing():
    """Old bytes behind the last entry can make a second count look as good as the first."""
    data = bytearray(file_size(10, 8))
    put(data, 10, 8, 3, 4096, BEGIN, False)
    assert find_slots(data) == 10
    # Under 15 slots entry 0 lies where entry 1 lay, and entry 1 where entry 2 would.
    data[entry_position(10, 2) : entry_position(10, 3)] = IndexEntry(3, 4096, 0, 0).encode()
    assert prove_slots(data, 10)
    assert prove_slots(data, 15)
    assert find_slots(data) is None


def test_random_bytes_prove_nothing():
    rng = random.Random(5)
    for size in (100, 500, 1000, 3000):
        assert find_slots(rng.randbytes(size)) is None
