"""Words for what is wrong with a message: the field, its value, the way out."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rocketlake.embedded import checks
from rocketlake.model.message import Message
from rocketlake.model.unix_time import to_unix_ms


def message(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


@pytest.mark.parametrize(
    "good",
    [
        message(),
        message(body=bytearray(b"x")),
        message(body=memoryview(b"x")),
        message(keys=["a", "b"], tags="t", properties={"p": "v", "none": None}),
        message(topic="%RETRY%group|a-b_C9"),
        message(deliver_at=1_700_000_000_000),
        message(deliver_at=datetime(2026, 1, 1, tzinfo=UTC)),
        message(properties={"name": "Müller 🚀"}),
    ],
)
def test_good_message_passes(good):
    checks.check_message(good)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"topic": ""}, ValueError, "topic = '' is empty"),
        ({"topic": None}, TypeError, "topic = None is NoneType; wanted str"),
        ({"topic": "my topic"}, ValueError, "topic = 'my topic' has characters that are not allow"),
        ({"topic": "tøpic"}, ValueError, "allowed are letters, digits and"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ValueError, "give the real topic and delay_level"),
        ({"body": "text"}, TypeError, "body = 'text' is str; wanted bytes: body.encode()"),
        ({"body": 5}, TypeError, "body = 5 is int; wanted bytes"),
        ({"body": None}, TypeError, "body = None is NoneType"),
        ({"body": "x" * 500}, TypeError, "xxx... is str"),
        ({"tags": 5}, TypeError, "tags = 5 is int; wanted one tag as str"),
        ({"tags": ["a"]}, TypeError, "tags = ['a'] is list"),
        ({"tags": "a\x01"}, ValueError, "tags = 'a\\x01' holds \\x01 or \\x02"),
        (
            {"keys": "o-1"},
            TypeError,
            "keys = 'o-1' is one str; wanted a list of keys: keys=['o-1']",
        ),
        ({"keys": 5}, TypeError, "keys = 5 is int"),
        ({"keys": [5]}, TypeError, "keys has 5, int; wanted str"),
        ({"keys": ["John Smith"]}, ValueError, "keys has 'John Smith': a key is not empty and has"),
        ({"keys": [""]}, ValueError, "keys has '': a key is not empty"),
        ({"properties": None}, TypeError, "properties = None is NoneType; wanted a dict"),
        ({"properties": {5: "v"}}, TypeError, "properties has the name 5, int"),
        ({"properties": {"": "v"}}, ValueError, "properties has an empty name"),
        ({"properties": {"n": 5}}, TypeError, "properties['n'] = 5 is int; wanted str: str(5)"),
        ({"properties": {"n": "a\x02b"}}, ValueError, "properties['n'] = 'a\\x02b' holds"),
        ({"properties": {"n\x01": "a"}}, ValueError, "properties = 'n\\x01' holds"),
        ({"properties": {"n": "\ud800"}}, ValueError, "cannot be written as UTF-8"),
        ({"flag": "1"}, TypeError, "flag = '1' is str; wanted int"),
        ({"flag": 1 << 31}, ValueError, "flag = 2147483648 does not fit into 32 bits"),
        ({"delay_level": "3"}, TypeError, "delay_level = '3' is str"),
        ({"deliver_at": datetime(2026, 1, 1)}, ValueError, "has no time zone; give it one"),  # noqa: DTZ001
        ({"deliver_at": 1.5}, TypeError, "deliver_at = 1.5 is float"),
        ({"ordering_key": 7}, TypeError, "ordering_key = 7 is int; wanted str: str(key)"),
    ],
)
def test_bad_message_is_named(fields, error, words):
    with pytest.raises(error) as raised:
        checks.check_message(message(**fields))
    assert words in str(raised.value)


def test_what_is_no_message_is_named():
    with pytest.raises(TypeError, match=r"is dict; wanted a Message: Message\(topic="):
        checks.check_message({"topic": "orders"})


def test_explain_says_what_it_was_given_when_it_knows_nothing_better():
    with pytest.raises(KeyError, match="odd"):
        checks.explain(message(), KeyError("odd"))


@pytest.mark.parametrize("group", ["", "a b", "x" * 121, "a@b", None])
def test_bad_group_is_refused(group):
    with pytest.raises((TypeError, ValueError), match="group = "):
        checks.check_group(group)


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "TBW102", "rmq_sys_x", 5])
def test_bad_name_of_a_new_topic_is_refused(name):
    with pytest.raises((TypeError, ValueError), match="name = "):
        checks.check_new_topic(name)


def test_moment_in_milliseconds_stays():
    assert to_unix_ms(1_700_000_000_123, "start") == 1_700_000_000_123


def test_moment_of_any_zone_is_the_same_instant():
    utc = datetime(2026, 1, 31, 8, 0, 0, 123_999, tzinfo=UTC)
    there = utc.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert to_unix_ms(utc, "x") == to_unix_ms(there, "x") == 1_769_846_400_123


def test_moment_before_1970_is_negative():
    assert to_unix_ms(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "x") == -1000


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (1.7e9, r"start = 1700000000.0 is float; .* \(of seconds: int\(start \* 1000\)\)"),
        ("2026-01-01", "start = '2026-01-01' is str; wanted an aware datetime or Unix milli"),
        (True, "start = True is bool"),
    ],
)
def test_moment_of_another_type_is_refused(moment, words):
    with pytest.raises(TypeError, match=words):
        to_unix_ms(moment, "start")
