"""Both kernels read every log, whole, damaged or made up, in the same way."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import damaged_logs, garbage, i32, i64, logs, magic_garbage
from twins import (
    assert_same,
    assert_same_scan,
    assert_same_scan_at,
    needs_native,
    scan_with,
)

from rocketlake.format import layout
from rocketlake.format._kernel import pure
from rocketlake.format._kernel.codes import Check, StopReason

pytestmark = needs_native

V4 = bytes([10, 0, 0, 2]) + struct.pack(">i", 10911)
V6 = bytes.fromhex("20010db8000000000000000000000007") + struct.pack(">i", 7)


def record(body, at, version=1, born=V4, store=V4, crc=False, properties=b"KEYS\x01k1\x02"):
    """Return one sealed record, small enough to be broken at every bit."""
    made = pure.encode(b"Topic", body, properties, 3, 1, 0, 1700, born, store, 2, 9, version, crc)
    pure.seal(made, 0, 5, at, 1800, crc)
    return bytes(made)


def small_log(**shape):
    """Return two records and a blank one."""
    log = record(b"first", 0, **shape)
    log += record(b"", len(log), **shape)
    return log + struct.pack(">ii", 12, layout.MAGIC_BLANK) + bytes(4)


SHAPES = {
    "v1": {},
    "v2": {"version": 2},
    "v1 crc": {"crc": True},
    "v2 crc v6": {"version": 2, "crc": True, "born": V6, "store": V6},
    "born v6": {"born": V6},
    "store v6 bare": {"store": V6, "properties": b""},
}

# --- whole logs ------------------------------------------------------------------------------


@given(logs())
def test_whole_log_is_read_the_same(log):
    answers = assert_same_scan(log.data, base_offset=log.base_offset)
    # Whatever is not required to carry a whole-record checksum is found.
    for checks in (Check.SHAPE, Check.BODY_CRC, Check.BODY_CRC | Check.OFFSET):
        assert answers[checks][0] == len(log.positions)


@given(logs(), st.integers(0, 6))
def test_scan_with_room_for_few_rows_stops_the_same(log, rows):
    assert_same_scan(log.data, base_offset=log.base_offset, rows=rows)


@given(logs(min_size=1), st.data())
def test_any_slice_of_a_log_is_read_the_same(log, data):
    bound = st.integers(0, len(log.data) + 10)
    start, end = data.draw(st.one_of(bound, st.sampled_from(log.positions))), data.draw(bound)
    assert_same_scan(log.data, start, end, log.base_offset)
    assert_same_scan(log.data[start:end], 0, end - start, log.base_offset + start)


far = st.integers(-(1 << 62), 1 << 62)  # the ends of 64 bits are in test_kernel_limits.py


@given(logs(), far, far, i64)
def test_bounds_far_outside_are_read_the_same(log, start, end, base_offset):
    arguments = (start, end, base_offset, Check.BODY_CRC, bytearray(4 * layout.ROW_SIZE))
    outcome = assert_same("scan", log.data, *arguments)
    assert (outcome[0] == "raised") == (start < 0)


@pytest.mark.parametrize("offset", [(1 << 63) - 1, -(1 << 63)], ids=["stays", "wraps"])
def test_offset_at_the_end_of_64_bits_is_compared_the_same(offset):
    """The base offset lies 7 bytes before the last number; the record 7 or 8 bytes behind it."""
    at = 7 if offset > 0 else 8
    log = bytes(at) + record(b"body", offset)
    assert_same_scan(log, at, base_offset=(1 << 63) - 8)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_buffers_of_every_kind_are_read_the_same(buffer):
    assert_same_scan(buffer(small_log()))


# --- damaged logs ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_log_cut_at_every_byte_is_read_the_same(shape):
    log = small_log(**shape)
    for size in range(len(log) + 1):
        cut = assert_same_scan(log[:size])
        assert assert_same_scan(log, 0, size) == cut


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_log_with_any_one_bit_flipped_is_read_the_same(shape):
    log = bytearray(small_log(**shape))
    checks = (0, Check.BODY_CRC, Check.OFFSET | Check.RECORD_CRC, Check.RECORD_CRC_REQUIRED)
    reasons = set()
    for bit in range(8 * len(log)):
        log[bit // 8] ^= 1 << bit % 8
        reasons |= {answer[1] for answer in assert_same_scan(log, checks=checks)}
        log[bit // 8] ^= 1 << bit % 8
    assert reasons >= {StopReason.TORN, StopReason.BAD_MAGIC, StopReason.BAD_SIZE}
    assert reasons >= {StopReason.BAD_CRC, StopReason.BAD_OFFSET, StopReason.END_OF_FILE}


@given(damaged_logs())
def test_damaged_log_is_read_the_same(log):
    assert_same_scan(log.data, base_offset=log.base_offset)


@given(st.binary(max_size=400))
def test_garbage_is_read_the_same(data):
    assert_same_scan(data)


@given(magic_garbage())
def test_garbage_that_begins_as_a_record_is_read_the_same(data):
    assert_same_scan(data)


@given(logs(min_size=1, max_size=2), st.data())
def test_every_value_of_a_length_is_read_the_same(log, data):
    """The three lengths and the flag that moves them, at their real places."""
    start = log.positions[-1]
    _, _, _, rows = scan_with(pure, log.data, start, len(log.data), 0, 0, 1)
    row = struct.unpack(layout.ROW_FORMAT, rows)
    width = 1 if log.data[start + 7] == layout.MAGIC_V1 & 0xFF else 2
    places = [
        (row[6] - 4, ">i"),
        (row[7] - width, ">b" if width == 1 else ">h"),
        (row[8] - 2, ">h"),
        (start + 36, ">i"),
        (start, ">i"),
    ]
    at, letter = data.draw(st.sampled_from(places))
    size = struct.calcsize(letter)
    low, high = -(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1
    value = data.draw(st.one_of(st.integers(-3, 300).filter(lambda n: n <= high), i32))
    changed = bytearray(log.data)
    struct.pack_into(letter, changed, at, min(max(value, low), high))
    assert_same_scan(changed, start, base_offset=log.base_offset)


@pytest.mark.parametrize("version", [1, 2])
def test_topic_of_every_length_is_read_the_same(version):
    """Also where the signed length of version 1 has no room for it: 128 is -128."""
    head = record(b"", 0, version, properties=b"")[:88]
    lengths = range(300) if version == 1 else (0, 127, 128, 255, 256, 32767, 32768, 65535)
    for size in lengths:
        length = (size & (1 << 8 * version) - 1).to_bytes(version, "big")
        made = bytearray(head + length + b"t" * size + bytes(2))
        struct.pack_into(">i", made, 0, len(made))
        count = assert_same_scan(made, checks=(0,))[0][0]
        assert count == (size <= (127 if version == 1 else 32767))


# --- places ----------------------------------------------------------------------------------


def packed(places):
    return b"".join(struct.pack("=qqq", *place) for place in places)


@given(logs(min_size=1), st.data())
def test_places_around_the_right_ones_are_read_the_same(log, data):
    ends = [*log.positions[1:], len(log.data)]
    right = [(p, e - p, log.base_offset + p) for p, e in zip(log.positions, ends, strict=True)]
    near = st.integers(-2, 2)
    moved = st.builds(
        lambda place, *by: tuple(a + b for a, b in zip(place, by, strict=True)),
        st.sampled_from(right),
        *(near, near, near),
    )
    places = data.draw(st.lists(st.one_of(st.sampled_from(right), moved), max_size=6))
    assert_same_scan_at(log.data, packed(places))


@given(garbage, st.lists(st.tuples(i64, i64, i64), max_size=4))
def test_places_anywhere_are_read_the_same(data, places):
    assert_same_scan_at(data, packed(places))


@given(garbage, st.lists(st.tuples(st.integers(0, 300), st.integers(80, 320), i64), max_size=4))
def test_places_in_garbage_are_read_the_same(data, places):
    assert_same_scan_at(data, packed(places))


@given(logs(min_size=1, max_size=2), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_shortest_of_places_rows_and_reasons_decides_the_same(log, places, rows, reasons):
    claims = packed([(0, len(log.data), 0)] * places)
    buffers = bytearray(rows * layout.ROW_SIZE), bytearray(b"\xee" * reasons)
    assert_same("scan_at", log.data, claims, 0, *buffers)


# --- topics ----------------------------------------------------------------------------------


@given(logs(), st.integers(-1, 6), st.integers(0, 6))
def test_topics_of_a_log_are_numbered_the_same(log, count, codes):
    _, _, _, rows = scan_with(pure, log.data, 0, len(log.data), 0, 0)
    assert_same("intern_topics", log.data, rows, count, bytearray(4 * codes))


topic_places = st.tuples(
    st.one_of(st.integers(-2, 45), i64), st.one_of(st.integers(-2, 12), st.integers(-999, 999))
)


@given(st.binary(max_size=40), st.lists(topic_places, max_size=8))
def test_topics_of_made_up_rows_are_numbered_the_same(data, places):
    rows = b"".join(
        struct.pack(layout.ROW_FORMAT, *[0] * 7, at, *[0] * 8, size, 0) for at, size in places
    )
    assert_same("intern_topics", data, rows, len(places), bytearray(4 * len(places)))


@given(st.binary(max_size=40), st.binary(max_size=400))
def test_topics_of_garbage_rows_are_numbered_the_same(data, rows):
    assert_same("intern_topics", data, rows, 9, bytearray(4 * 9))
