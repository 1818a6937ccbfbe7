"""Both kernels write the same bytes, or refuse with the same words."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import (
    RecordFields,
    bodies,
    hosts,
    i32,
    i64,
    messages,
    record_fields,
)
from twins import answer, assert_same, differences, native, needs_native

from rocketlake.format._kernel import pure
from rocketlake.model.message import Message

pytestmark = needs_native

BEYOND_I32 = {str(n): n for n in (1 << 31, -(1 << 31) - 1, 1 << 40, 1 << 63, -(1 << 70))}
BEYOND_I64 = {str(n): n for n in (1 << 63, -(1 << 63) - 1, 1 << 70, -(1 << 70))}
WRONG_HOSTS = {f"{n} bytes": bytes(n) for n in (0, 7, 9, 16, 21)}

FAULTS = {
    "topic": {f"{n} bytes": b"t" * n for n in (128, 32768)},
    "properties": {f"{n} bytes": b"p" * n for n in (32768, 40000)},
    "queue_id": BEYOND_I32,
    "flag": BEYOND_I32,
    "sys_flag": BEYOND_I32,
    "born_timestamp": BEYOND_I64,
    "born_host": WRONG_HOSTS,
    "store_host": WRONG_HOSTS,
    "reconsume_times": BEYOND_I32,
    "prepared_transaction_offset": BEYOND_I64,
    "version": {str(n): n for n in (0, 3, -1)},
}
"""Values that an argument cannot have, by a name short enough to be printed."""

WRONG_MESSAGES = {
    "flag": Message(topic="T", body=b"", flag=1 << 31),
    "separator": Message(topic="T", body=b"", properties={"a": "\x01"}),
    "no name": Message(topic="T", body=b"", properties={"": "b"}),
    "long": Message(topic="T", body=b"", properties={"a": "b" * 32768}),
    "keys": Message(topic="T", body=b"", keys=["a\x02"]),
    "tags": Message(topic="T", body=b"", tags="a\x02"),
}

PLAIN = RecordFields(b"T", b"body", b"", 0, 0, 0, 0, bytes(8), bytes(8), 0, 0, 1, False)
EMPTY_BATCH = {
    "messages": [],
    "topic": b"T",
    "queue_id": 0,
    "sys_flag": 0,
    "born_timestamp": 0,
    "born_host": bytes(8),
    "store_host": bytes(8),
    "version": 1,
    "trailing": True,
    "reserve_crc": False,
}


def first_fault(name):
    return next(iter(FAULTS[name].values()))


# --- one record ------------------------------------------------------------------------------


@given(record_fields)
def test_record_is_encoded_the_same(fields):
    assert assert_same("encode", *fields)[0] == "bytearray"


@given(record_fields, st.sampled_from([bytearray, memoryview]))
def test_body_of_any_kind_of_buffer_is_encoded_the_same(fields, kind):
    assert assert_same("encode", *fields._replace(body=kind(fields.body)))[0] == "bytearray"


@pytest.mark.parametrize("name", FAULTS)
@given(data=st.data())
def test_record_with_one_fault_is_refused_the_same(name, data):
    fields = data.draw(record_fields)
    for value in FAULTS[name].values():
        outcome = assert_same("encode", *fields._replace(**{name: value}))
        # A topic of 128 bytes fits into version 2.
        assert outcome[:2] == ("raised", "ValueError") or name == "topic"


def test_record_with_any_two_faults_is_refused_the_same():
    calls = {
        pair: ("encode", *PLAIN._replace(**{name: first_fault(name) for name in pair}))
        for pair in combinations(FAULTS, 2)
    }
    assert differences(calls) == {}


@pytest.mark.parametrize("extra", range(-22, 3))
@pytest.mark.parametrize("last", [b"\x02", b"p"])
def test_properties_around_their_limit_are_encoded_the_same(extra, last):
    properties = b"p" * (32767 + extra - 1) + last
    for version in (1, 2):
        fields = (b"T", b"", properties, 0, 0, 0, 0, bytes(8), bytes(8), 0, 0, version)
        assert_same("encode", *fields, True)
        assert_same("encode", *fields, False)


# --- batch -----------------------------------------------------------------------------------


@st.composite
def batches(draw, inner=messages):
    """The arguments of `encode_batch`."""
    return {
        "messages": draw(st.lists(inner, max_size=4)),
        "topic": draw(st.binary(max_size=20)),
        "queue_id": draw(i32),
        "sys_flag": draw(i32),
        "born_timestamp": draw(i64),
        "born_host": draw(hosts),
        "store_host": draw(hosts),
        "version": draw(st.sampled_from([1, 2])),
        "trailing": draw(st.booleans()),
        "reserve_crc": draw(st.booleans()),
    }


@given(batches())
def test_batch_is_encoded_the_same(batch):
    assert assert_same("encode_batch", *batch.values())[0] == "tuple"


@given(batches(), st.sampled_from([bytearray, memoryview]), bodies)
def test_batch_with_bodies_of_any_kind_of_buffer_is_encoded_the_same(batch, kind, body):
    batch["messages"].append(Message(topic="T", body=kind(body)))
    assert assert_same("encode_batch", *batch.values())[0] == "tuple"


BATCH_FAULTS = [name for name in FAULTS if name in {"topic", "queue_id", "sys_flag", "version"}]
BATCH_FAULTS += ["born_timestamp", "born_host", "store_host"]


@given(batches(), st.sampled_from([*WRONG_MESSAGES]), st.integers(0, 4))
def test_batch_with_one_wrong_message_is_refused_the_same(batch, wrong, place):
    batch["messages"].insert(place, WRONG_MESSAGES[wrong])
    assert assert_same("encode_batch", *batch.values())[:2] == ("raised", "ValueError")


@pytest.mark.parametrize("name", BATCH_FAULTS)
@given(batch=batches(), message=messages)
def test_batch_with_one_fault_is_refused_the_same(name, batch, message):
    batch["messages"].append(message)
    for value in FAULTS[name].values():
        assert_same("encode_batch", *(batch | {name: value}).values())


def test_batch_of_no_messages_with_a_fault_is_answered_the_same():
    calls = {
        name: ("encode_batch", *(EMPTY_BATCH | {name: first_fault(name)}).values())
        for name in BATCH_FAULTS
    }
    assert differences(calls) == {}


def test_batch_with_a_fault_and_a_wrong_message_is_refused_the_same():
    calls = {}
    for name, wrong in product(BATCH_FAULTS, WRONG_MESSAGES):
        batch = EMPTY_BATCH | {"messages": [WRONG_MESSAGES[wrong]], name: first_fault(name)}
        calls[name, wrong] = ("encode_batch", *batch.values())
    assert differences(calls) == {}


# --- append ----------------------------------------------------------------------------------

FRAME = {
    "topic": b"T",
    "queue_id": 0,
    "sys_flag": 0,
    "born_host": bytes(8),
    "store_host": bytes(8),
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "version": 1,
    "trailing": True,
    "reserve_crc": True,
    "body_max": 1 << 31,
    "record_max": 1 << 31,
    "batch_max": 1 << 31,
    "is_guarded": False,
}
APPEND_FAULTS = {name: first_fault(name) for name in FAULTS if name in FRAME}
APPEND_FAULTS |= WRONG_MESSAGES
APPEND_FAULTS |= {"at": -1, "born": 1 << 63, "queue_offset": 1 << 63, "time": 1 << 63}


def append_answer(kernel, faults, name="append", room=600):
    """Append a plain message, but for these faults; return what the kernel says."""
    values = {key: APPEND_FAULTS[key] for key in faults}
    wrong = [values[key] for key in faults if key in WRONG_MESSAGES]
    message = wrong[0] if wrong else Message(topic="T", body=b"body", tags="a")
    what = message if name == "append" else [Message(topic="T", body=b"first"), message]
    places = [values.get(key, 0) for key in ("born", "queue_offset", "physical_offset", "time")]
    try:
        frame = kernel.RecordFrame(*(values.get(key, value) for key, value in FRAME.items()))
    except ValueError as error:
        return ("raised", "ValueError", str(error)), []
    return answer(kernel, name, bytearray(room), values.get("at", 0), what, frame, *places)


@pytest.mark.parametrize("name", ["append", "append_batch"])
@pytest.mark.parametrize("room", [0, 150, 1000])
def test_append_with_up_to_two_faults_is_answered_the_same(name, room):
    single = {(fault,): append_answer(pure, [fault], name, room) for fault in APPEND_FAULTS}
    assert all(found[0][:2] == ("raised", "ValueError") for found in single.values())
    for faults in [*single, *combinations(APPEND_FAULTS, 2)]:
        expected = append_answer(pure, faults, name, room)
        assert append_answer(native, faults, name, room) == expected, faults


def test_append_into_every_room_around_its_size_is_answered_the_same():
    (_, size), _ = append_answer(pure, [])
    for extra, name, count in product(range(-12, 20), ("append", "append_batch"), (1, 2)):
        room = count * size + extra
        expected = append_answer(pure, [], name, room)
        assert append_answer(native, [], name, room) == expected, (name, room)
