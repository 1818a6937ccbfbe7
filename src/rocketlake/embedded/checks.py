"""Checks of messages, topics and groups that name what is wrong.

1. Faults that the reference has a status for are not checked here: the engine returns the status.
2. A message is checked only after the engine or a conversion has refused it (`explain`), so that a
   valid message pays nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from rocketlake.model import properties, topics
from rocketlake.model.message import Message
from rocketlake.model.unix_time import to_unix_ms

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEGAL_WORDS: Final = "allowed are letters, digits and % | _ -"
_SEPARATORS: Final = ("\x01", "\x02")
_I32_MAX: Final = 2_147_483_647

OWN_TOPICS: Final = frozenset(
    {
        topics.SCHEDULE_TOPIC,
        topics.TIMER_TOPIC,
        topics.HALF_TOPIC,
        topics.OP_HALF_TOPIC,
        topics.ROCKSDB_HALF_TOPIC,
        topics.ROCKSDB_OP_HALF_TOPIC,
        topics.CHECKED_TOO_OFTEN_TOPIC,
        topics.SELF_TEST_TOPIC,
        topics.OFFSET_MOVED_TOPIC,
    }
)
"""Topics that programs may not put messages into.

Compat: TopicValidator#isNotAllowedSendTopic, and the topic of the timer.
"""


def check_topic(topic: object, *, field: str = "topic") -> None:
    """Refuse what cannot be the name of a topic; the store checks its length.

    Raises:
        TypeError, ValueError: names the field, the value and what is allowed.
    """
    if not isinstance(topic, str):
        raise TypeError(f"{field} = {topic!r} is {type(topic).__name__}; wanted str")
    if not topic.strip():
        raise ValueError(f"{field} = {topic!r} is empty; a message needs the name of a topic")
    # Compat: the client's rule, TopicValidator#validateTopic; the store has no status for it.
    if not _LEGAL.fullmatch(topic):
        raise ValueError(f"{field} = {topic!r} has characters that are not allowed; {_LEGAL_WORDS}")


def check_topic_for_put(topic: object) -> None:
    """Refuse a topic that messages may not be put into.

    Raises:
        TypeError, ValueError: names the topic and the way out.
    """
    check_topic(topic)
    if topic in OWN_TOPICS:
        raise ValueError(
            f"topic = {topic!r} is the store's own; for a delayed message give the real topic and"
            " delay_level or deliver_at"
        )


def check_new_topic(topic: object) -> None:
    """Refuse a name that a program may not give to a topic.

    Raises:
        TypeError, ValueError: names the topic and what is allowed.
    """
    check_topic(topic, field="name")
    assert isinstance(topic, str), "checked"
    if len(topic) > topics.topic_size_max(topic):
        raise ValueError(
            f"name = {topic!r} has {len(topic)} characters; a topic may have"
            f" {topics.topic_size_max(topic)}"
        )
    if topics.is_system_topic(topic):
        raise ValueError(f"name = {topic!r} is kept for the store's own topics")


def check_group(group: object) -> None:
    """Refuse what cannot be the name of a consumer group.

    Raises:
        TypeError, ValueError: names the group and what is allowed.
    """
    if not isinstance(group, str):
        raise TypeError(f"group = {group!r} is {type(group).__name__}; wanted str")
    # Compat: the rule of the client, in Validators#checkGroup.
    if not _LEGAL.fullmatch(group):
        raise ValueError(f"group = {group!r} is empty or has other characters; {_LEGAL_WORDS}")
    if len(group) > topics.GROUP_SIZE_MAX:
        raise ValueError(
            f"group = {group!r} has {len(group)} characters; it may have {topics.GROUP_SIZE_MAX}"
        )


def check_message(message: object) -> None:
    """Refuse a message that a record cannot express.

    Raises:
        TypeError, ValueError: names the field, its value and the way out.
    """
    if not isinstance(message, Message):
        raise TypeError(
            f"{message!r} is {type(message).__name__}; wanted a Message:"
            ' Message(topic="orders", body=b"...")'
        )
    check_topic_for_put(message.topic)
    _check_body(message.body)
    _check_tags(message.tags)
    _check_keys(message.keys)
    _check_properties(message.properties)
    _check_number("flag", message.flag)
    _check_number("delay_level", message.delay_level)
    if message.deliver_at is not None:
        to_unix_ms(message.deliver_at, "deliver_at")
    key: object = message.ordering_key
    if key is not None and not isinstance(key, str):
        raise TypeError(f"ordering_key = {key!r} is {type(key).__name__}; wanted str: str(key)")


def explain(message: object, error: Exception) -> NoReturn:
    """Raise the most specific error for a message that cannot be put; at least `error`."""
    check_message(message)
    raise error


def _check_body(body: object) -> None:
    if isinstance(body, str):
        raise TypeError(f"body = {_short(body)} is str; wanted bytes: body.encode()")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"body = {_short(body)} is {type(body).__name__}; wanted bytes")


def _check_tags(tags: object) -> None:
    if tags is None:
        return
    if not isinstance(tags, str):
        raise TypeError(f"tags = {tags!r} is {type(tags).__name__}; wanted one tag as str")
    _check_text("tags", tags)


def _check_keys(keys: object) -> None:
    if isinstance(keys, str):
        raise TypeError(f"keys = {keys!r} is one str; wanted a list of keys: keys=[{keys!r}]")
    if not isinstance(keys, Sequence):
        raise TypeError(f"keys = {keys!r} is {type(keys).__name__}; wanted a list of str")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"keys has {key!r}, {type(key).__name__}; wanted str: str(key)")
        if not key or properties.KEY_SEPARATOR in key:
            # Why: KEYS is one text split at blanks, so that this key could never be found.
            raise ValueError(
                f"keys has {key!r}: a key is not empty and has no blank, which separates keys"
            )
        _check_text("keys", key)


def _check_properties(values: object) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"properties = {values!r} is {type(values).__name__}; wanted a dict of str to str"
        )
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"properties has the name {name!r}, {type(name).__name__}; wanted str")
        if not name:
            raise ValueError(f"properties has an empty name, for {value!r}")
        if value is None:
            continue
        if not isinstance(value, str):
            raise TypeError(
                f"properties[{name!r}] = {value!r} is {type(value).__name__};"
                f" wanted str: str({value!r})"
            )
        _check_text("properties", name)
        _check_text(f"properties[{name!r}]", value)


def _check_text(field: str, text: str) -> None:
    if any(separator in text for separator in _SEPARATORS):
        raise ValueError(
            f"{field} = {text!r} holds \\x01 or \\x02, which separate properties in a record;"
            " replace them, or put the text into the body"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{field} = {text!r} cannot be written as UTF-8: {error}") from error


def _check_number(field: str, value: object) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{field} = {value!r} is {type(value).__name__}; wanted int")
    if not -_I32_MAX - 1 <= value <= _I32_MAX:
        raise ValueError(f"{field} = {value!r} does not fit into 32 bits")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
