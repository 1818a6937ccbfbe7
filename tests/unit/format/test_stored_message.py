"""What a stored message tells from its properties and its stored body, and that it stays so."""

import copy
import pickle

import pytest

from rocketlake.format._kernel.pure.message import FIELDS
from rocketlake.format.record import StoredMessage
from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.model.endpoint import Endpoint


def stored(**changes):
    values = {
        "topic": "TopicTest",
        "queue_id": 1,
        "queue_offset": 5,
        "physical_offset": 4096,
        "store_size": 145,
        "store_timestamp": 1700000000123,
        "born_timestamp": 1700000000000,
        "born_host": Endpoint(bytes([192, 168, 0, 1]), 1234),
        "store_host": Endpoint(bytes([10, 0, 0, 2]), 10911),
        "flag": 0,
        "sys_flag": 0,
        "body_crc": 907060870,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "properties": {"KEYS": "k1 k2", "TAGS": "TagA", "UNIQ_KEY": "AC1200010001"},
        "raw_properties": b"",
        "stored_body": b"hello",
    }
    return StoredMessage(**(values | changes))


def test_msg_id_is_store_host_and_physical_offset():
    assert stored().msg_id == "0A00000200002A9F0000000000001000"


def test_tags_keys_and_unique_key_come_from_the_properties():
    message = stored()
    assert message.tags == "TagA"
    assert message.keys == ["k1", "k2"]
    assert message.unique_key == "AC1200010001"


def test_message_without_properties_has_no_tags_keys_and_unique_key():
    message = stored(properties={})
    assert (message.tags, message.keys, message.unique_key) == (None, [], None)


def test_body_of_an_uncompressed_message_is_the_stored_one():
    assert stored().body == b"hello"


@pytest.mark.parametrize("kind", Compression)
def test_body_of_a_compressed_message_is_the_plain_one(kind):
    body = deflate(b"hello" * 100, kind)
    message = stored(stored_body=body, sys_flag=flagged(0, kind))
    assert message.body == b"hello" * 100
    assert message.stored_body == body
    assert message.body is message.body


def test_body_that_is_not_what_its_flags_say_is_refused_each_time():
    message = stored(stored_body=b"hello", sys_flag=flagged(0, Compression.LZ4))
    for _ in range(2):
        with pytest.raises(ValueError, match="LZ4"):
            _ = message.body


def test_messages_with_equal_fields_are_equal_even_if_one_was_inflated():
    one, other = stored(), stored()
    assert one.body == b"hello"
    assert one == other


def test_messages_with_any_other_field_are_not_equal():
    other = {
        "topic": "Other",
        "born_host": Endpoint(bytes(4), 1),
        "store_host": Endpoint(bytes(16), 1),
        "properties": {},
        "raw_properties": b"x",
        "stored_body": b"other",
        "version": 2,
    }
    for name in FIELDS:
        assert stored(**{name: other.get(name, 77)}) != stored(), name


def test_equal_messages_have_one_place_in_a_set():
    assert len({stored(), stored(), stored(physical_offset=9)}) == 2


def test_message_names_its_fields():
    assert repr(stored()) == (
        "StoredMessage(topic='TopicTest', queue_id=1, queue_offset=5, physical_offset=4096, "
        "store_size=145, store_timestamp=1700000000123, born_timestamp=1700000000000, "
        "born_host=Endpoint(address=b'\\xc0\\xa8\\x00\\x01', port=1234), "
        "store_host=Endpoint(address=b'\\n\\x00\\x00\\x02', port=10911), flag=0, sys_flag=0, "
        "body_crc=907060870, reconsume_times=0, prepared_transaction_offset=0, "
        "properties={'KEYS': 'k1 k2', 'TAGS': 'TagA', 'UNIQ_KEY': 'AC1200010001'}, "
        "raw_properties=b'', stored_body=b'hello', version=1)"
    )


@pytest.mark.parametrize("name", [*FIELDS, "body", "keys", "tags", "msg_id", "unique_key", "new"])
def test_nothing_of_a_message_can_be_set_or_deleted(name):
    message = stored()
    before = repr(message)
    with pytest.raises(AttributeError):
        setattr(message, name, getattr(message, name, None))
    with pytest.raises(AttributeError):
        delattr(message, name)
    assert repr(message) == before


def test_message_takes_keywords_only_and_names_what_is_missing():
    with pytest.raises(TypeError):
        StoredMessage("TopicTest")
    with pytest.raises(TypeError, match="topic"):
        StoredMessage(queue_id=1)


@pytest.mark.parametrize("change", [{}, {"properties": None, "raw_properties": b"KEYS\x01a b"}])
def test_message_survives_pickling_and_copying(change):
    message = stored(**change)
    for again in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message)):
        assert again == message
        assert type(again) is StoredMessage
        assert again.keys == message.keys


def test_properties_are_those_of_the_string_unless_given():
    raw = b"KEYS\x01a  b\x02TAGS\x01one\x02TAGS\x01two\x02UNIQ_KEY\x01u"
    message = stored(properties=None, raw_properties=raw)
    assert (message.tags, message.keys, message.unique_key) == ("two", ["a", "b"], "u")
    assert message.properties == {"KEYS": "a  b", "TAGS": "two", "UNIQ_KEY": "u"}
    assert message.properties is message.properties


def test_keys_can_be_changed_without_changing_the_message():
    message = stored(properties=None, raw_properties=b"KEYS\x01a")
    message.keys.append("b")
    assert message.keys == ["a"]
