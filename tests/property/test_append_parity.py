"""Both kernels append the same bytes, or refuse with the same words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import hosts, i32, i64, messages
from twins import assert_same, needs_native

from rocketlake.format._kernel import pure
from rocketlake.format.record import Check, scan
from rocketlake.model.message import Message

pytestmark = needs_native

envelopes = st.tuples(
    *(i32, i32, i64, hosts, hosts, i32, i64),
    *(st.sampled_from([1, 2]), st.booleans(), st.booleans()),
)
PLAIN = (1, 0, 2, bytes(8), bytes(8), 0, 0, 1, True, False)
MESSAGE = Message(topic="T", body=b"body", tags="a", keys=["k"], properties={"p": "v"})


@given(messages, envelopes, st.integers(-2, 700), i64, i64, i64)
def test_one_message_is_appended_the_same(message, envelope, at, queue_offset, offset, time):
    room = bytearray(b"\xee" * 600)
    assert_same("append", room, at, message, b"T", envelope, queue_offset, offset, time)


@given(st.lists(messages, max_size=4), envelopes, st.integers(0, 900))
def test_batch_that_fits_is_appended_the_same(batch, envelope, size):
    room = bytearray(4 * 1200 + size)
    assert_same("append_batch", room, 0, batch, b"T", envelope, 5, 77, 99)


@given(st.lists(messages, min_size=1, max_size=4), envelopes, st.integers(0, 900))
def test_batch_that_does_not_fit_is_answered_the_same(batch, envelope, size):
    room = bytearray(size)
    assert_same("append_batch", room, 0, batch, b"T", envelope, 5, 77, 99)


@pytest.mark.parametrize("place", range(10))
@pytest.mark.parametrize("wrong", [1 << 31, -(1 << 70)])
def test_number_beyond_its_field_is_refused_the_same(place, wrong):
    envelope = tuple(wrong if i == place and place in (0, 1, 5) else v for i, v in enumerate(PLAIN))
    assert_same("append", bytearray(500), 0, MESSAGE, b"T", envelope, 0, 0, wrong)


@pytest.mark.parametrize("with_crc", [False, True])
def test_appended_records_are_what_a_scan_reads(with_crc):
    room = bytearray(1000)
    envelope = (*PLAIN[:-1], with_crc)
    sizes = pure.append_batch(room, 0, [MESSAGE, MESSAGE], b"T", envelope, 7, 0, 1234)
    found = scan(bytes(room), checks=Check.BODY_CRC | Check.OFFSET | Check.RECORD_CRC)
    assert found.columns["size"].tolist() == sizes
    assert found.columns["queue_offset"].tolist() == [7, 8]
    assert found.columns["store_timestamp"].tolist() == [1234, 1234]
    assert ("__CRC32#" in found.columns.message(1).properties) is with_crc


def test_eight_bytes_stay_free_for_the_blank_record():
    (size,) = pure.append_batch(bytearray(500), 0, [MESSAGE], b"T", PLAIN, 0, 0, 0)
    assert pure.append(bytearray(size + 8), 0, MESSAGE, b"T", PLAIN, 0, 0, 0) == size
    assert pure.append(bytearray(size + 7), 0, MESSAGE, b"T", PLAIN, 0, 0, 0) == -size
