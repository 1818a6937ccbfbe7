"""`send_back`: what a group could not consume comes again, later each time, and ends as dead."""

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.model.compression import Compression, deflate, flagged
from rocketlake.store.options.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from support.manual_clock import ManualClock
from support.store_builder import StoreBuilder

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(tmp_path, clock):
    with rocketlake.open_store(tmp_path / "store", clock=clock) as store:
        yield store


def delivered(store, count):
    """Wait for the retry topic to hold so many."""
    store._parts.services[0].levels.wakeup()  # it sleeps by the machine's clock, not by the test's
    for message in store.consumer("watch", "%RETRY%g", timeout=20, start="first"):
        if message.queue_offset == count - 1:
            return message
    raise AssertionError(f"message {count - 1} did not come")


def test_a_message_is_given_back_as_the_broker_does(store):
    sent = Message(topic="orders", body=b"x", tags="A", keys=["k"], flag=7, properties={"p": "q"})
    first = store.put(sent)
    assert store.send_back("g", first.physical_offset).is_ok
    (waiting,) = store.get(SCHEDULE, 2, 0).messages
    (origin,) = store.get("orders", first_queue(store), 0).messages
    assert waiting.properties == {
        "p": "q",
        "TAGS": "A",
        "KEYS": "k",
        "RETRY_TOPIC": "orders",
        "WAIT": "false",
        "DELAY": "3",
        "ORIGIN_MESSAGE_ID": origin.msg_id,
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
    }
    assert (waiting.reconsume_times, waiting.body, waiting.flag) == (1, b"x", 7)
    assert waiting.born_timestamp == origin.born_timestamp
    topic = store.topic("%RETRY%g")
    assert (topic.read_queue_count, topic.perm) == (1, 6)


@pytest.mark.parametrize(
    ("release", "given", "wanted"),
    [
        (
            "5.3",
            "a WAIT UNIQ_KEY CLUSTER MSG_REGION TRACE_ON",
            "ORIGIN_MESSAGE_ID RETRY_TOPIC MSG_REGION UNIQ_KEY CLUSTER DELAY TAGS KEYS WAIT a "
            "TRACE_ON REAL_TOPIC REAL_QID",
        ),
        (
            "4.9",
            "a WAIT UNIQ_KEY CLUSTER",
            "a REAL_TOPIC ORIGIN_MESSAGE_ID RETRY_TOPIC KEYS UNIQ_KEY CLUSTER WAIT DELAY TAGS "
            "REAL_QID",
        ),
    ],
)
def test_properties_have_the_order_that_a_broker_gave_them(tmp_path, clock, release, given, wanted):
    """As seen in the files of brokers 5.3.3 and 4.9.7."""
    properties = dict.fromkeys(given.split(), "true")
    sent = Message(topic="orders", body=b"x", tags="A", keys=["k"], properties=properties)
    options = {"compat_version": release, "clock": clock}
    with rocketlake.open_store(tmp_path / "other", **options) as store:
        store.send_back("g", store.put(sent).physical_offset)
        (waiting,) = store.get(SCHEDULE, 2, 0).messages
    assert list(waiting.properties) == wanted.split()


def first_queue(store):
    return next(q for q in range(8) if store.max_offset("orders", q))


def test_each_time_it_waits_longer_and_the_seventeenth_time_it_is_dead(store, clock):
    place = store.put(Message(topic="orders", body=b"x")).physical_offset
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    for times in range(16):
        assert store.send_back("g", place).is_ok
        assert store.max_offset(SCHEDULE, times + 2) == 1  # level 3, 4, ... 18
        clock.advance_ms(levels[times + 2] - 1)
        assert store.max_offset("%RETRY%g", 0) == times
        clock.advance_ms(1)
        again = delivered(store, times + 1)
        assert (again.reconsume_times, again.properties["RETRY_TOPIC"]) == (times + 1, "orders")
        place = again.physical_offset
    assert store.send_back("g", place).is_ok
    (dead,) = store.get("%DLQ%g", 0, 0).messages
    assert (dead.reconsume_times, dead.properties["DELAY"], dead.body) == (17, "0", b"x")
    assert dead.properties["RETRY_TOPIC"] == "orders"
    assert store.max_offset("%RETRY%g", 0) == 16


def test_level_and_limit_may_be_named(store):
    place = store.put(Message(topic="orders", body=b"x")).physical_offset
    assert store.send_back("g", place, delay_level=1).is_ok
    assert store.max_offset(SCHEDULE, 0) == 1
    assert store.send_back("g", place, delay_level=-1).is_ok
    assert store.send_back("g", place, max_times=0).is_ok
    assert store.max_offset("%DLQ%g", 0) == 2
    with pytest.raises(ValueError, match=r"no message of .* begins at 77777"):
        store.send_back("g", 77_777)


def test_a_compressed_body_stays_compressed(tmp_path, clock):
    body = deflate(b"text " * 50, Compression.ZLIB)
    builder = StoreBuilder(tmp_path / "s", log_file_size=4000)
    root = builder.record("T", 0, body, sys_flag=flagged(0, Compression.ZLIB)).write()
    with rocketlake.open_store(root, clock=clock) as store:
        assert store.send_back("g", builder.placed[0].physical_offset, delay_level=-1).is_ok
        (dead,) = store.get("%DLQ%g", 0, 0).messages
        assert (dead.stored_body, dead.body) == (body, b"text " * 50)
