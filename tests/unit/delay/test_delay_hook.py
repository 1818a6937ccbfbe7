from datetime import UTC, datetime, timedelta, timezone

import pytest
from delay_fakes import BORN_HOST, MemoryStore

from rocketlake.delay.hook import DelayHook
from rocketlake.delay.levels import DelayLevels
from rocketlake.delay.redelivery import hash_map_order, parse_number, real_queue
from rocketlake.delay.store_access import DueRequest
from rocketlake.model.flags import TransactionType
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import AppendRequest, PutReceipt, PutStatus

LEVELS = DelayLevels((1_000, 5_000, 10_000))
NOW = 1_800_000_000_500
DUE = 1_800_000_003_000


class Gate:
    precision_ms = 1000
    max_delay_ms = 259_200_000
    rejects = False

    def is_rejected(self, due_ms):
        self.asked = due_ms
        return self.rejects


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def hook(clock, usage, gate):
    return DelayHook(LEVELS, clock, usage, timer=gate)


def request(**fields):
    sys_flag = fields.pop("sys_flag", 0)
    message = Message(topic=fields.pop("topic", "T"), body=b"b", **fields)
    return AppendRequest(
        message=message, queue_id=7, born_timestamp=1, born_host=BORN_HOST, sys_flag=sys_flag
    )


def where(answer):
    return answer.message.topic, answer.queue_id, list(answer.message.properties.items())


def test_message_without_delay_passes(hook, usage):
    assert hook.before_put(request()) is None
    assert hook.before_put(request(properties={"a": "b"}, tags="t", keys=["k"])) is None
    assert not usage.has_levels
    assert not usage.has_timers


def test_level_field_becomes_a_property_and_goes_to_its_queue(hook, usage):
    answer = hook.before_put(request(delay_level=2, tags="t", properties={"a": "b"}))
    assert where(answer) == (
        "SCHEDULE_TOPIC_XXXX",
        1,
        [("a", "b"), ("DELAY", "2"), ("REAL_TOPIC", "T"), ("REAL_QID", "7")],
    )
    assert answer.message.tags == "t"
    assert answer.message.delay_level == 0
    assert usage.has_levels
    assert not usage.has_timers


def test_level_beyond_the_table_is_the_highest(hook):
    answer = hook.before_put(request(delay_level=99))
    assert answer.queue_id == 2
    assert answer.message.properties["DELAY"] == "3"


def test_properties_that_are_there_keep_their_places(hook):
    given = {"REAL_QID": "1", "x": "y", "DELAY": "1", "REAL_TOPIC": "old", "z": "z"}
    answer = hook.before_put(request(properties=given, delay_level=3))
    assert where(answer) == (
        "SCHEDULE_TOPIC_XXXX",
        0,
        [("REAL_QID", "7"), ("x", "y"), ("DELAY", "1"), ("REAL_TOPIC", "T"), ("z", "z")],
    )


@pytest.mark.parametrize("text", ["0", "-3", "+0"])
def test_level_that_is_none_lets_pass(hook, text):
    answer = hook.before_put(request(properties={"DELAY": text}))
    assert where(answer) == ("T", 7, [("DELAY", text)])


def test_level_that_is_no_number_is_refused(hook):
    answer = hook.before_put(request(properties={"DELAY": "soon"}))
    assert answer.status is PutStatus.MESSAGE_ILLEGAL
    assert "soon" in answer.reason


@pytest.mark.parametrize("kind", [TransactionType.PREPARED, TransactionType.ROLLBACK])
def test_messages_that_enter_no_queue_do_not_wait(hook, kind):
    given = request(delay_level=2, deliver_at=DUE, sys_flag=int(kind))
    answer = hook.before_put(given)
    assert where(answer) == ("T", 7, [("DELAY", "2"), ("TIMER_DELIVER_MS", str(DUE))])


def test_committed_messages_wait(hook):
    assert hook.before_put(request(delay_level=1, sys_flag=8)).queue_id == 0


def test_level_takes_the_time_away(hook):
    given = {"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1", "DELAY": "1"}
    answer = hook.before_put(request(properties=given, deliver_at=DUE))
    assert list(answer.message.properties) == ["DELAY", "REAL_TOPIC", "REAL_QID"]


@pytest.mark.parametrize(
    ("given", "out"),
    [
        ({"TIMER_DELAY_SEC": "2"}, 1_800_000_002_000),
        ({"TIMER_DELAY_MS": "2500"}, 1_800_000_002_000),
        ({"TIMER_DELAY_MS": "2501"}, 1_800_000_003_000),
        ({"TIMER_DELIVER_MS": str(DUE)}, DUE - 1000),
        ({"TIMER_DELIVER_MS": str(DUE + 1)}, DUE),
        ({"TIMER_DELIVER_MS": str(DUE - 1)}, DUE - 1000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "9000", "TIMER_DELIVER_MS": "x"}, DUE - 1000),
        ({"TIMER_DELAY_MS": "1"}, 1_800_000_000_000),
        ({"TIMER_DELAY_SEC": "+259200"}, 1_800_259_200_000),
    ],
)
def test_time_goes_to_its_slot(hook, usage, gate, given, out):
    answer = hook.before_put(request(properties=given))
    assert where(answer) == (
        "rmq_sys_wheel_timer",
        0,
        [*given.items(), ("TIMER_OUT_MS", str(out)), ("REAL_TOPIC", "T"), ("REAL_QID", "7")],
    )
    assert gate.asked == out
    assert usage.has_timers
    assert not usage.has_levels


@pytest.mark.parametrize(
    "moment",
    [
        DUE,
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=DUE),
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=DUE)).astimezone(
            timezone(timedelta(hours=5))
        ),
    ],
)
def test_deliver_at_becomes_a_property(hook, moment):
    answer = hook.before_put(request(deliver_at=moment))
    assert answer.message.properties["TIMER_DELIVER_MS"] == str(DUE)
    assert answer.message.properties["TIMER_OUT_MS"] == str(DUE - 1000)
    assert answer.message.deliver_at is None


def test_deliver_at_gives_way_to_a_property(hook):
    answer = hook.before_put(request(deliver_at=DUE, properties={"TIMER_DELAY_SEC": "60"}))
    assert "TIMER_DELIVER_MS" not in answer.message.properties


def test_moment_without_a_zone_is_an_error(hook):
    with pytest.raises(ValueError, match="time zone"):
        hook.before_put(request(deliver_at=datetime(2030, 1, 1)))  # noqa: DTZ001


@pytest.mark.parametrize("due", [NOW, NOW - 5000, -1])
def test_time_that_has_passed_is_stored_at_once(hook, usage, due):
    answer = hook.before_put(request(properties={"TIMER_DELIVER_MS": str(due)}))
    assert where(answer) == ("T", 7, [("TIMER_DELIVER_MS", str(due))])
    assert not usage.has_timers


@pytest.mark.parametrize(
    "given",
    [
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_MS": ""},
        {"TIMER_DELIVER_MS": "1e9"},
        {"TIMER_DELIVER_MS": "9" * 20},
        {"TIMER_DELAY_SEC": "9" * 5000},
        {"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "T+k"},
    ],
)
def test_time_that_cannot_be_is_refused(hook, given):
    answer = hook.before_put(request(properties=given))
    assert answer.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert answer.reason


def test_full_slot_is_refused(hook, gate):
    gate.rejects = True
    answer = hook.before_put(request(properties={"TIMER_DELAY_SEC": "5"}))
    assert answer.status is PutStatus.WHEEL_TIMER_FLOW_CONTROL


def test_times_are_refused_without_a_timer(clock, usage):
    hook = DelayHook(LEVELS, clock, usage, timer=None)
    answer = hook.before_put(request(properties={"TIMER_DELAY_SEC": "5"}))
    assert answer.status is PutStatus.WHEEL_TIMER_NOT_ENABLE
    assert isinstance(hook.before_put(request(deliver_at=DUE)), PutReceipt)


def test_4x_knows_no_properties_of_a_timer(clock, usage):
    hook = DelayHook(LEVELS, clock, usage, timer=None, is_4x=True)
    given = {"TIMER_DELAY_SEC": "5", "a": "b"}
    assert where(hook.before_put(request(properties=given))) == ("T", 7, list(given.items()))
    answer = hook.before_put(request(properties=given | {"DELAY": "1"}))
    assert answer.message.properties["TIMER_DELAY_SEC"] == "5"
    answer = hook.before_put(request(deliver_at=DUE))
    assert answer.status is PutStatus.WHEEL_TIMER_NOT_ENABLE


def test_message_that_had_its_time_is_not_timed_again(hook):
    given = {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "17"}
    assert where(hook.before_put(request(properties=given)))[:2] == ("T", 7)


def test_due_message_passes_whatever_it_says(hook):
    given = {"DELAY": "2", "TIMER_DELAY_SEC": "5"}
    message = Message(topic="T", body=b"", properties=given)
    due = DueRequest(message=message, queue_id=0, born_timestamp=0, born_host=BORN_HOST)
    assert hook.before_put(due) is None


def test_messages_put_straight_into_the_topics_count_as_use(hook, usage):
    assert hook.before_put(request(topic="SCHEDULE_TOPIC_XXXX")) is None
    assert usage.has_levels
    hook.before_put(request(topic="rmq_sys_wheel_timer", properties={"TIMER_DELAY_SEC": "5"}))
    assert usage.has_timers


def test_store_without_levels_delays_nothing(clock, usage):
    hook = DelayHook(DelayLevels(()), clock, usage, timer=None)
    assert where(hook.before_put(request(delay_level=3)))[:2] == ("T", 7)


def test_order_is_that_of_a_java_map():
    names = ["REAL_TOPIC", "KEYS", "UNIQ_KEY", "user", "DELAY", "TAGS", "REAL_QID"]
    # As RocketMQ 5.3.3 and 4.9.7 wrote them (v5-delay-after, v4-delay-after).
    assert hash_map_order(names, 128) == [
        *("UNIQ_KEY", "DELAY", "TAGS", "KEYS", "REAL_TOPIC", "user", "REAL_QID"),
    ]
    assert hash_map_order(names, 16) == names
    # Two of them share a bucket: the first one put comes first.
    assert hash_map_order(["DELAY", "user"], 16) == ["DELAY", "user"]
    assert hash_map_order(["TAGS", "user", "DELAY"], 16) == ["user", "DELAY", "TAGS"]
    many = list("efghijklmnopq")
    assert hash_map_order(many, 16) == hash_map_order(many, 32)
    assert hash_map_order(many[:12], 16) != hash_map_order(many[:12], 32)


@pytest.mark.parametrize(
    ("properties", "queue"),
    [
        ({"REAL_TOPIC": "T", "REAL_QID": "3"}, QueueKey("T", 3)),
        ({"REAL_TOPIC": "T"}, None),
        ({"REAL_QID": "3"}, None),
        ({"REAL_TOPIC": "T", "REAL_QID": "-1"}, None),
        ({"REAL_TOPIC": "T", "REAL_QID": "x"}, None),
        ({"REAL_TOPIC": "", "REAL_QID": "1"}, None),
    ],
)
def test_real_queue_is_read_from_properties(properties, queue):
    assert real_queue(properties) == queue


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-12", -12),
        ("+012", 12),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("9223372036854775808", None),
        ("0" * 5000 + "7", 7),
        ("", None),
        ("-", None),
        (" 1", None),
        ("1_0", None),
        ("\u0661", None),
        (None, None),
    ],
)
def test_numbers_are_read_as_java_reads_them(text, number):
    assert parse_number(text) == number


def test_hook_in_a_store(clock, hook):
    store = MemoryStore(clock)
    store.hook = hook
    assert store.send(delay_level=1).is_ok
    assert not store.send(properties={"DELAY": "x"}).is_ok
    (message,) = store.messages("SCHEDULE_TOPIC_XXXX")
    assert message.properties == {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
