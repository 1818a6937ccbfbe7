"""Both kernels write the same bytes, or refuse with the same words."""

from itertools import combinations, product
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_strategies import (
    RecordFields,
    any_texts,
    bodies,
    damaged_logs,
    garbage,
    hosts,
    i32,
    i64,
    logs,
    messages,
    names,
    plain_texts,
    property_bytes,
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

ENVELOPE = {
    "queue_id": 0,
    "sys_flag": 0,
    "born_timestamp": 0,
    "born_host": bytes(8),
    "store_host": bytes(8),
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "version": 1,
    "trailing": True,
    "reserve_crc": True,
}
APPEND_FAULTS = {name: first_fault(name) for name in FAULTS if name in {*ENVELOPE, "topic"}}
APPEND_FAULTS |= WRONG_MESSAGES
APPEND_FAULTS |= {"at": -1, "queue_offset": 1 << 63, "physical_offset": 1 << 63, "time": 1 << 63}


def append_with(faults, name="append", room=600):
    """Return the call that appends a plain message, but for these faults."""
    values = {key: APPEND_FAULTS[key] for key in faults}
    wrong = [values[key] for key in faults if key in WRONG_MESSAGES]
    message = wrong[0] if wrong else Message(topic="T", body=b"body", tags="a")
    messages_ = message if name == "append" else [Message(topic="T", body=b"first"), message]
    envelope = tuple(values.get(key, value) for key, value in ENVELOPE.items())
    places = [values.get(key, 0) for key in ("queue_offset", "physical_offset", "time")]
    topic = values.get("topic", b"T")
    return (name, bytearray(room), values.get("at", 0), messages_, topic, envelope, *places)


@pytest.mark.parametrize("name", ["append", "append_batch"])
@pytest.mark.parametrize("room", [0, 150, 1000])
def test_append_with_up_to_two_faults_is_answered_the_same(name, room):
    calls = {(fault,): append_with([fault], name, room) for fault in APPEND_FAULTS}
    assert all(answer(pure, *call)[0][:2] == ("raised", "ValueError") for call in calls.values())
    calls |= {pair: append_with(pair, name, room) for pair in combinations(APPEND_FAULTS, 2)}
    assert differences(calls) == {}


def test_append_into_every_room_around_its_size_is_answered_the_same():
    """What does not fit is not written either."""
    size = pure.append(*append_with([])[1:])
    calls = {}
    for extra, name in product(range(-12, 20), ("append", "append_batch")):
        calls[name, extra] = append_with([], name, size + extra)
        calls[name, extra, "second"] = append_with([], name, 2 * size + extra)
    assert differences(calls) == {}


# --- seal ------------------------------------------------------------------------------------


@given(logs(min_size=1), i64, i64, i64, st.booleans(), st.data())
def test_record_of_a_log_is_sealed_the_same(log, queue_offset, offset, time, crc, data):
    position = data.draw(st.sampled_from(log.positions))
    numbers = (queue_offset, offset, time, crc)
    outcome = assert_same("seal", bytearray(log.data), position, *numbers)
    assert outcome[0] == "int" or "no room for its checksum" in outcome[2]


@given(damaged_logs(), st.integers(-2, 400), i64, st.booleans())
def test_record_of_a_damaged_log_is_sealed_the_same(log, position, number, crc):
    assert_same("seal", bytearray(log.data), position, number, number, number, crc)
    for at in log.positions:
        assert_same("seal", bytearray(log.data), at, number, number, number, crc)


@given(garbage, i64, i64, st.booleans())
def test_garbage_is_sealed_the_same(data, position, number, crc):
    assert_same("seal", bytearray(data), 0, number, number, number, crc)
    assert_same("seal", bytearray(data), position, number, number, number, crc)


# --- properties ------------------------------------------------------------------------------

tables = st.dictionaries(names, st.one_of(plain_texts, st.none()), max_size=6)
tables_with_separators = st.dictionaries(
    st.text("ab\x01\x02é", max_size=3), st.one_of(st.none(), st.text("ab\x01\x02é", max_size=3))
)


@given(tables, st.booleans())
def test_properties_are_encoded_the_same(table, trailing):
    assert assert_same("encode_properties", table, trailing)[0] == "bytes"
    assert assert_same("encode_properties", MappingProxyType(table), trailing)[0] == "bytes"


@given(tables_with_separators, st.booleans())
def test_properties_with_separators_are_refused_the_same(table, trailing):
    assert_same("encode_properties", table, trailing)


@given(st.dictionaries(any_texts, any_texts, min_size=1, max_size=3), st.booleans())
def test_properties_that_are_no_text_are_refused_the_same(table, trailing):
    assert_same("encode_properties", table, trailing)


@given(st.integers(0, 600), st.integers(1, 600), st.integers(1, 5), st.booleans())
def test_long_properties_are_encoded_the_same(value_size, name_size, count, trailing):
    table = {f"{i}" + "n" * name_size: "é" * value_size for i in range(count)}
    assert assert_same("encode_properties", table, trailing)[0] == "bytes"


@given(messages, st.booleans())
def test_properties_of_a_message_are_encoded_the_same(message, trailing):
    assert assert_same("message_properties", message, trailing)[0] == "bytes"


@given(tables_with_separators, st.text("k\x01\x02", max_size=2), st.booleans())
def test_properties_of_a_wrong_message_are_refused_the_same(table, text, trailing):
    message = Message(topic="T", body=b"", properties=table, keys=[text], tags=text)
    assert_same("message_properties", message, trailing)


@given(property_bytes)
def test_property_string_is_decoded_the_same(data):
    assert assert_same("decode_properties", data)[0] == "dict"
    assert_same("decode_properties", bytearray(data))
    assert_same("decode_properties", memoryview(data))


pieces = st.sampled_from([b"\x01", b"\x02", b"A", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf0"])


@given(st.lists(pieces, max_size=30).map(b"".join))
def test_property_string_that_is_no_utf8_is_decoded_the_same(data):
    assert assert_same("decode_properties", data)[0] == "dict"


@given(property_bytes)
def test_decoded_properties_come_in_the_same_order(data):
    assert list(native.decode_properties(data)) == list(pure.decode_properties(data))
