"""Both kernels make the same record of a client's fields, or leave the message to its caller."""

from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from log_strategies import hosts, i32, i64
from twins import answer, needs_native

from rocketlake.format._kernel import pure
from rocketlake.format.record import Check, scan
from rocketlake.store.api import SendFields

pytestmark = needs_native

MAX = 1 << 31
ADDED = {"MSG_REGION": "DefaultRegion", "CLUSTER": "c"}
DROPPED = ("POP_CK",)
names = st.sampled_from(
    *[["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "POP_CK", "DELAY", "INNER_NUM", "a", "", "é"]]
)
values = st.sampled_from(["true", "false", "1", "", "x\x01y", "é" * 9, "v" * 40])
items = st.builds("{}\x01{}".format, names, values) | st.text(max_size=3)
texts = st.lists(items, max_size=6).map("\x02".join) | st.just("a\x01" + "b" * 32_760)
properties = (
    texts
    | texts.map(lambda text: text + "\x02")
    | texts.map(lambda text: text.encode("utf-8", "replace"))
)
bodies = st.binary(max_size=40) | st.binary(max_size=9).map(bytearray)
flags = st.sampled_from([0, 1, 2, 0x33, 0x700, 4, 8, 0x40, 0x80, 0x100]) | i32
frames = st.tuples(
    *(st.just(b"T"), i32, st.just(0), st.just(bytes(8)), hosts, st.just(0), i64),
    *(st.sampled_from([1, 2]), st.booleans(), st.booleans()),
    *(st.sampled_from([3, 50, MAX]), st.sampled_from([150, MAX]), st.just(MAX), st.just(True)),
)
FRAME = (b"T", 1, 0, bytes(8), bytes(8), 0, 0, 1, True, False, MAX, MAX, MAX, True)
HOST = bytes([192, 168, 0, 1, 0, 0, 4, 210])


def fields_of(host, body, text, flag, sys_flag, born, reconsume_times):
    """Return the fields in two types; the compiled kernel knows the places of the first's."""
    values = {
        "born_host": host,
        "body": body,
        "properties": text,
        "flag": flag,
        "sys_flag": sys_flag,
        "born_timestamp": born,
        "reconsume_times": reconsume_times,
    }
    return SendFields(topic="T", queue_id=0, **values), SimpleNamespace(**values)


def append_with(kernel, buffer, at, frame, *values):
    own = kernel.RecordFrame(*frame)
    edits = kernel.PropertyEdits(ADDED, DROPPED)
    answers = [
        answer(kernel, "append_fields", buffer, at, fields, own, edits, *values[-3:])
        for fields in fields_of(*values[:-3])
    ]
    assert answers[0] == answers[1]
    return answers[0]


def assert_same_fields(*arguments):
    from rocketlake.format._kernel import native  # noqa: PLC0415 - may not have been built

    expected = append_with(pure, *arguments)
    assert append_with(native, *arguments) == expected
    return expected


@given(
    *(frames, st.integers(-2, 700), st.sampled_from([HOST, bytes(20), bytes(7)]), bodies),
    *(properties, st.tuples(i32, flags, i64, i32, i64, i64, i64)),
)
@example(FRAME, 0, HOST, b"body", "KEYS\x01k\x02", (0, 0, 0, 0, 0, 0, 0))
@example(FRAME, 0, HOST, b"body", "WAIT\x01true\x02CLUSTER\x01x", (0, 1, 0, 0, 5, 6, 7))
def test_fields_become_the_same_record(frame, at, host, body, text, numbers):
    assert_same_fields(bytearray(600), at, frame, host, body, text, *numbers)


@pytest.mark.parametrize("body", [memoryview(b"abcdef")[::2], memoryview(b"abc"), "text", None, 5])
def test_bodies_of_other_types_are_taken_the_same(body):
    assert_same_fields(bytearray(600), 0, FRAME, HOST, body, "a\x01b", 0, 0, 1, 0, 2, 3, 4)


def appended(text, frame=FRAME, *, sys_flag=0, host=HOST):
    (kind, size), (left,) = assert_same_fields(
        *(bytearray(900), 0, frame, host, b"body", text, 3, sys_flag, 17, 2, 5, 77, 99)
    )
    assert kind == "int"
    if not size:
        assert not any(left)
        return None
    return scan(left[:size], checks=Check.BODY_CRC | Check.RECORD_CRC).columns.message(0)


def test_properties_that_the_server_sets_replace_those_of_the_client():
    message = appended("KEYS\x01k\x02CLUSTER\x01other\x02WAIT\x01true\x02POP_CK\x01x\x02TAGS\x01t")
    assert message.properties == {"KEYS": "k", "WAIT": "true", "TAGS": "t", **ADDED}
    assert (message.flag, message.reconsume_times, message.queue_offset) == (3, 2, 5)
    assert (message.born_timestamp, message.store_timestamp) == (17, 99)
    assert message.body == b"body"


@pytest.mark.parametrize("trailing", [False, True])
def test_last_separator_is_that_of_the_release(trailing):
    from rocketlake.format._kernel import native  # noqa: PLC0415 - may not have been built

    frame = native.RecordFrame(*FRAME[:8], trailing, *FRAME[9:])
    buffer = bytearray(500)
    edits = native.PropertyEdits({}, ())
    fields, _ = fields_of(HOST, b"", "a\x01b", 0, 0, 0, 0)
    size = native.append_fields(buffer, 0, fields, frame, edits, 0, 0, 0)
    assert bytes(buffer[:size]).endswith(b"a\x01b\x02" if trailing else b"a\x01b")


@pytest.mark.parametrize(
    "text",
    [
        *("DELAY\x011\x02", "WAIT\x01false\x02", "INNER_NUM\x012", "TIMER_DELAY_MS\x015"),
        *(
            "__CRC32#\x010000000000",
            "name",
            "\x01value",
            "name\x01",
            "a\x01b\x01c",
            "a\x01b\x02\x02",
        ),
    ],
)
def test_message_that_asks_for_more_is_left_to_the_caller(text):
    assert appended(text) is None


@pytest.mark.parametrize("sys_flag", [4, 8, 12, 0x40, 0x80, 1 << 20])
def test_flags_that_the_store_acts_on_are_left_to_the_caller(sys_flag):
    assert appended("a\x01b", sys_flag=sys_flag) is None


def test_host_decides_the_bits_of_the_flag():
    assert appended("a\x01b", sys_flag=0x701, host=bytes(20)).sys_flag == 0x711
    assert appended("a\x01b", sys_flag=0x31, host=HOST).sys_flag == 0x1
