"""What a message tells from its properties and its stored body."""

import pytest

from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message, StoredMessage, split_keys


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


def test_message_has_no_keys_tags_and_properties_unless_told():
    message = Message(topic="T", body=b"")
    assert (message.tags, list(message.keys), dict(message.properties)) == (None, [], {})
    assert message.flag == 0


def test_properties_of_one_message_are_not_those_of_another():
    one = Message(topic="T", body=b"")
    try:
        one.properties["a"] = "b"
    except TypeError:  # a map that nobody can change is as good
        return
    assert dict(Message(topic="T", body=b"").properties) == {}


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


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (None, []),
        ("", []),
        (" ", []),
        ("k1", ["k1"]),
        (" k1  k2 ", ["k1", "k2"]),
        ("k1\tk2", ["k1\tk2"]),
        ("键 🔑", ["键", "🔑"]),
    ],
)
def test_keys_are_cut_at_single_blanks_and_empty_ones_left_out(text, keys):
    assert split_keys(text) == keys


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
