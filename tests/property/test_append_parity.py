"""Both kernels append the same bytes, or refuse with the same words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import hosts, i32, i64, messages
from msgspec.structs import replace
from twins import answer, needs_native

from rocketlake.format._kernel import pure
from rocketlake.format.record import Check, scan
from rocketlake.model.message import Message

pytestmark = needs_native

MAX = 1 << 31
frames = st.tuples(
    *(st.just(b"T"), i32, i32, hosts, hosts, i32, i64),
    *(st.sampled_from([1, 2]), st.booleans(), st.booleans()),
    *(st.sampled_from([3, 50, MAX]), st.sampled_from([150, MAX])),
    *(st.sampled_from([300, MAX]), st.booleans()),
)
PLAIN = (b"T", 1, 0, bytes(8), bytes(8), 0, 0, 1, True, False, MAX, MAX, MAX, False)
MESSAGE = Message(topic="T", body=b"body", tags="a", keys=["k"], properties={"p": "v"})
SPECIAL = [
    replace(MESSAGE, delay_level=1),
    replace(MESSAGE, deliver_at=1),
    replace(MESSAGE, wait=False),
    *(replace(MESSAGE, properties={"a": "b", name: "1"}) for name in ("DELAY", "WAIT", "__CRC32#")),
    *(replace(MESSAGE, properties={name: "1"}) for name in ("TIMER_DELIVER_MS", "INNER_NUM")),
]


def append_with(kernel, name, buffer, at, what, frame, *places):
    """Make the frame in the kernel's own class, then append."""
    try:
        own = kernel.RecordFrame(*frame)
    except ValueError as error:
        return str(error)
    return answer(kernel, name, buffer, at, what, own, *places)


def assert_same_append(name, *arguments):
    from rocketlake.format._kernel import native  # noqa: PLC0415 - may not have been built

    expected = append_with(pure, name, *arguments)
    assert append_with(native, name, *arguments) == expected
    return expected


@given(messages, frames, st.integers(-2, 700), i64, i64, i64)
def test_one_message_is_appended_the_same(message, frame, at, queue_offset, offset, time):
    room = bytearray(600)
    assert_same_append("append", room, at, message, frame, 17, queue_offset, offset, time)


@given(st.lists(messages, max_size=4), frames, st.integers(0, 900))
def test_batch_that_fits_is_appended_the_same(batch, frame, size):
    room = bytearray(4 * 1200 + size)
    assert_same_append("append_batch", room, 0, batch, frame, 3, 5, 77, 99)


@given(st.lists(messages, min_size=1, max_size=4), frames, st.integers(0, 900))
def test_batch_that_does_not_fit_is_answered_the_same(batch, frame, size):
    room = bytearray(size)
    assert_same_append("append_batch", room, 0, batch, frame, 3, 5, 77, 99)


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("message", SPECIAL)
def test_guarded_frame_lets_only_plain_messages_pass(message, is_guarded):
    frame = (*PLAIN[:-1], is_guarded)
    (outcome, (left,)) = assert_same_append(
        "append_batch", bytearray(900), 0, [MESSAGE, message], frame, 1, 0, 0, 0
    )
    assert (outcome == ("int", 0)) is is_guarded
    assert any(left) is not is_guarded


@pytest.mark.parametrize(("place", "limit"), [(10, 3), (11, 100)])
def test_guarded_frame_refuses_what_is_too_large(place, limit):
    frame = [*PLAIN[:-1], True]
    frame[place] = limit
    outcome, _ = assert_same_append("append", bytearray(900), 0, MESSAGE, frame, 1, 0, 0, 0)
    assert outcome == ("int", 0)


@pytest.mark.parametrize("place", [11, 12])
def test_guarded_frame_refuses_a_batch_that_is_too_large(place):
    frame = [*PLAIN[:-1], True]
    frame[place] = 250
    outcome, (left,) = assert_same_append(
        "append_batch", bytearray(900), 0, [MESSAGE] * 3, frame, 1, 0, 0, 0
    )
    assert (outcome == ("int", 0)) is (place == 12)
    assert any(left) is (place == 11)


def test_guarded_frame_refuses_a_batch_with_another_topic():
    frame = (*PLAIN[:-1], True)
    batch = [MESSAGE, replace(MESSAGE, topic="U")]
    outcome, (left,) = assert_same_append(
        "append_batch", bytearray(900), 0, batch, frame, 1, 0, 0, 0
    )
    assert outcome == ("int", 0)
    assert not any(left)


@pytest.mark.parametrize("with_crc", [False, True])
@pytest.mark.parametrize("size", [32_755, 32_775])
def test_guarded_frame_refuses_properties_beyond_their_field(size, with_crc):
    frame = (*PLAIN[:9], with_crc, MAX, MAX, MAX, True)
    message = Message(topic="T", body=b"", properties={"p": "v" * (size - 10)})
    assert_same_append("append", bytearray(40_000), 0, message, frame, 1, 0, 0, 0)


def test_batch_with_a_bad_message_leaves_nothing_behind():
    wrong = replace(MESSAGE, properties={"a\x01": "b"})
    room = bytearray(900)
    outcome, (left,) = assert_same_append(
        "append_batch", room, 0, [MESSAGE, MESSAGE, wrong], PLAIN, 1, 0, 0, 0
    )
    assert outcome[0] == "raised"
    assert not any(left)


@pytest.mark.parametrize("place", [1, 2, 5, 6])
@pytest.mark.parametrize("wrong", [1 << 31, -(1 << 70)])
def test_number_beyond_its_field_is_refused_the_same(place, wrong):
    frame = tuple(wrong if i == place else v for i, v in enumerate(PLAIN))
    assert_same_append("append", bytearray(500), 0, MESSAGE, frame, 0, 0, 0, wrong)


@pytest.mark.parametrize("with_crc", [False, True])
def test_appended_records_are_what_a_scan_reads(with_crc):
    room = bytearray(1000)
    frame = pure.RecordFrame(*PLAIN[:9], with_crc, MAX, MAX, MAX, False)
    sizes = pure.append_batch(room, 0, [MESSAGE, MESSAGE], frame, 2, 7, 0, 1234)
    found = scan(bytes(room), checks=Check.BODY_CRC | Check.OFFSET | Check.RECORD_CRC)
    assert found.columns["size"].tolist() == sizes
    assert found.columns["queue_offset"].tolist() == [7, 8]
    assert found.columns["store_timestamp"].tolist() == [1234, 1234]
    assert found.columns["born_timestamp"].tolist() == [2, 2]
    assert ("__CRC32#" in found.columns.message(1).properties) is with_crc


def test_eight_bytes_stay_free_for_the_blank_record():
    frame = pure.RecordFrame(*PLAIN)
    (size,) = pure.append_batch(bytearray(500), 0, [MESSAGE], frame, 0, 0, 0, 0)
    assert pure.append(bytearray(size + 8), 0, MESSAGE, frame, 0, 0, 0, 0) == size
    assert pure.append(bytearray(size + 7), 0, MESSAGE, frame, 0, 0, 0, 0) == -size
