"""What a message to be sent is made of."""

import pytest

from rocketlake.model.message import Message, split_keys


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
