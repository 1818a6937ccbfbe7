"""Dispatcher: from the log to queues, index, listeners and others."""

import threading
import time
from types import SimpleNamespace

import pytest
from store_bench import open_engine, read, request

from rocketlake.errors import DiskFullError
from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.model.hashes import tags_code
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.api import GetRequest, PutStatus
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.dispatch import dispatcher as dispatch
from rocketlake.store.dispatch.filter_bits import FilterBits, SqlSubscription
from rocketlake.store.queue.consume_queue import ConsumeQueue


class Listener:
    def __init__(self):
        self.arrivals = []
        self.ends = {}

    def arrived(self, arrivals):
        assert len(arrivals) == len(list(arrivals))
        self.arrivals += arrivals[:]
        self.ends |= arrivals.ends


class Watcher:
    """A dispatcher that notes what it saw, and how far the queue was then."""

    def __init__(self, store):
        self.store = store
        self.seen = []

    def dispatch(self, records):
        queue = self.store.queues.find(QueueKey("T", 0))
        end = queue.max_offset if queue is not None else 0
        self.seen.append((records.columns["queue_offset"].tolist(), end))


@pytest.fixture
def store(tmp_path):
    opened = open_engine(tmp_path)
    yield opened
    opened.close()


def test_units_are_those_of_the_records(store):
    receipts = [store.put(request(queue_id=i % 2, tags=f"t{i}")) for i in range(6)]
    store.catch_up()
    units = store.queue_units(QueueKey("T", 1), 0, 10)
    assert units["physical_offset"].tolist() == [r.physical_offset for r in receipts[1::2]]
    assert units["size"].tolist() == [r.size for r in receipts[1::2]]
    assert units["tags_code"].tolist() == [tags_code(f"t{i}") for i in (1, 3, 5)]


def test_nothing_is_behind_afterwards(store):
    for _ in range(300):
        store.put(request(body=bytes(200)))
    store.catch_up()
    assert store.dispatcher.behind_bytes == 0
    assert store.gauges().dispatch_behind_bytes == 0
    assert store.queue_bounds(QueueKey("T", 0)) == (0, 300)


def test_due_time_stands_in_the_units_of_the_schedule_topic(store):
    receipt = store.put(request(SCHEDULE_TOPIC, queue_id=2, properties={"DELAY": "3"}))
    far = store.put(request(SCHEDULE_TOPIC, queue_id=17, properties={"DELAY": "99"}))
    store.catch_up()
    (unit,) = store.queue_units(QueueKey(SCHEDULE_TOPIC, 2), 0, 9)
    assert unit["tags_code"] == receipt.store_timestamp + 10_000
    (unit,) = store.queue_units(QueueKey(SCHEDULE_TOPIC, 17), 0, 9)
    assert unit["tags_code"] == far.store_timestamp + 7_200_000


def test_listeners_are_told_of_each_message(store):
    listener = Listener()
    store.add_listener(listener)
    for number in range(3):
        store.put(request(tags="a", queue_id=number % 2, properties={"p": str(number)}))
        store.catch_up()
    assert [(a.topic, a.queue_id, a.next_offset) for a in listener.arrivals] == [
        ("T", 0, 1),
        ("T", 1, 1),
        ("T", 0, 2),
    ]
    assert [a.properties["p"] for a in listener.arrivals] == ["0", "1", "2"]
    assert {a.tags_code for a in listener.arrivals} == {tags_code("a")}
    assert listener.ends == {("T", 0): 2, ("T", 1): 1}


LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


@pytest.mark.parametrize("version", ["5.3", "4.9"])
def test_listeners_are_told_of_light_queues(tmp_path, version):
    """As RocketMQ does since 4.9: DefaultMessageStore, notifyMessageArrive4MultiQueue."""
    with open_engine(tmp_path, compat_version=version, **LIGHT) as store:
        listener = Listener()
        store.add_listener(listener)
        for queues in ("%LMQ%a", "", "%LMQ%a,%LMQ%b"):
            properties = {"INNER_MULTI_DISPATCH": queues} if queues else {}
            store.put(request(queue_id=3, tags="x", properties=properties))
        store.catch_up()
        assert [(a.topic, a.queue_id, a.next_offset) for a in listener.arrivals] == [
            *(("T", 3, 1), ("%LMQ%a", 0, 1)),
            ("T", 3, 2),
            *(("T", 3, 3), ("%LMQ%a", 0, 2), ("%LMQ%b", 0, 1)),
        ]
        assert {a.tags_code for a in listener.arrivals} == {tags_code("x")}
        assert listener.arrivals[-1].properties["INNER_MULTI_QUEUE_OFFSET"] == "1,0"
        assert listener.ends == {("T", 3): 3, ("%LMQ%a", 0): 2, ("%LMQ%b", 0): 1}


def test_listener_that_fails_does_not_stop_dispatch(store, caplog):
    class Broken:
        def arrived(self, arrivals):
            raise RuntimeError("broken")

    listener = Listener()
    store.add_listener(Broken())
    store.add_listener(listener)
    store.put(request())
    store.catch_up()
    assert len(listener.arrivals) == 1
    assert "arrival listener failed" in caplog.text


def test_custom_dispatchers_come_before_the_queues_or_behind_the_index(store):
    first, last = Watcher(store), Watcher(store)
    store.add_dispatcher(first, is_first=True)
    store.add_dispatcher(last)
    store.put(request())
    store.catch_up()
    assert first.seen == [([0], 0)]
    assert last.seen == [([0], 1)]


def test_prepared_and_rolled_back_enter_no_queue_but_prepared_the_index(store):
    store.put(request(keys=["p"], fields={"sys_flag": 4}))
    store.put(request(keys=["r"], fields={"sys_flag": 12}))
    assert store.queue_bounds(QueueKey("T", 0)) == (0, 0)
    found = [len(store.query(KeyQuery(topic="T", key=key)).messages) for key in ("p", "r")]
    assert found == [1, 0]


def test_index_can_be_off(tmp_path):
    with open_engine(tmp_path, message_index_enable=False) as store:
        store.put(request(keys=["k"]))
        store.catch_up()
        assert not store.query(KeyQuery(topic="T", key="k")).messages
    assert not (tmp_path / "index").exists()


def test_queue_that_cannot_be_written_is_tried_again_and_then_stops_puts(store, monkeypatch):
    error = DiskFullError("consumequeue/T/0", 20, 0)

    def fail(*_):
        raise error

    dispatcher = store.dispatcher
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "append_packed", fail)
        store.put(request())
        with pytest.raises(DiskFullError, match="consumequeue/T/0"):
            dispatcher.catch_up(store.log.wrote_where)
        store.catch_up()  # readers see what there is
        assert store.put(request()).status is PutStatus.PUT_OK
        for _ in range(30):
            dispatcher.run_once()
        refused = store.put(request())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "LOGICS_QUEUE_ERROR" in refused.reason
        assert "consumequeue/T/0" in dispatcher.error
    store.catch_up()
    assert dispatcher.error is None
    assert store.queue_bounds(QueueKey("T", 0)) == (0, 2)


def test_dispatching_again_changes_nothing(store):
    for number in range(50):
        store.put(request(queue_id=number % 3, keys=[f"k{number}"]))
    store.catch_up()
    before = {key: queue.max_offset for key, queue in store.queues.items()}
    store.dispatcher.dispatch_range(0, store.log.max_offset)
    assert {key: queue.max_offset for key, queue in store.queues.items()} == before
    assert len(store.query(KeyQuery(topic="T", key="k7")).messages) == 1


def test_record_larger_than_the_window_is_dispatched(tmp_path):
    options = {
        "mapped_file_size_commit_log": 64 << 20,
        "max_message_size": 40 << 20,
    }
    with open_engine(tmp_path, **options) as store:
        store.put(request(body=b"small"))
        store.put(request(body=bytes(20 << 20)))
        store.put(request(body=b"after"))
        assert [len(message.body) for message in read(store)] == [5, 20 << 20, 5]


def test_bits_of_subscriptions_stand_in_extension_units(tmp_path):
    bloom = BloomFilter.sized()
    positions = bloom.bit_positions("G", "T")
    subscription = SqlSubscription(SqlFilter("a > 5"), positions)
    with open_engine(tmp_path, enable_consume_queue_ext=True) as store:
        bits = FilterBits(bloom, lambda topic: [subscription] if topic == "T" else [])
        store.add_dispatcher(bits, is_first=True)
        for value in ("4", "6"):
            store.put(request(properties={"a": value}, tags="x"))
        store.put(request("Other"))
        store.catch_up()
        queue = store.queues.find(QueueKey("T", 0))
        units = [queue.ext_unit(int(code)) for code in queue.units(0, 9)["tags_code"]]
        assert [bloom.is_hit(positions, unit.bitmap) for unit in units] == [False, True]
        assert {unit.tags_code for unit in units} == {tags_code("x")}
        other = store.queues.find(QueueKey("Other", 0))
        assert other.ext_unit(int(other.units(0, 1)["tags_code"][0])).bitmap == b""
        result = store.get(GetRequest(topic="T", queue_id=0, offset=0))
        assert len(result.messages) == 2


def test_batch_topic_gets_batch_units(tmp_path):
    with open_engine(tmp_path, batch_topics=["B"]) as store:
        listener = Listener()
        store.add_listener(listener)
        store.put(request("B", properties={"INNER_NUM": "4"}, fields={"sys_flag": 0xC0}))
        store.put(request("B"))
        assert store.queue_bounds(QueueKey("B", 0)) == (0, 5)
        assert [arrival.next_offset for arrival in listener.arrivals] == [4, 5]
    with open_engine(tmp_path) as store:
        assert store.queue_bounds(QueueKey("B", 0)) == (0, 5)


def test_dropped_topic_begins_anew(store):
    for _ in range(5):
        store.put(request())
    store.put(request("Other"))
    assert store.drop_topic("T") == 1
    assert store.queue_bounds(QueueKey("T", 0)) == (0, 0)
    assert store.put(request(body=b"new")).queue_offset == 0
    assert [message.body for message in read(store)] == [b"new"]
    assert len(read(store, "Other")) == 1


def test_put_leaves_the_interpreter_to_a_round_that_reads_wait_for(store, monkeypatch):
    """Puts in a tight loop keep the interpreter; one query took 27 s beside two of them."""
    naps = []
    monkeypatch.setattr(dispatch, "sleep", naps.append)
    message = Message(topic="T", body=b"x")
    store.put_plain(message, 0)
    store.catch_up()
    store.put_plain(message, 0)
    assert naps == []
    store.dispatcher.has_reads = True
    store.put_plain(message, 0)
    store.put(request())
    assert naps == [0, 0]


def test_reads_beside_puts_in_a_tight_loop_are_answered(store):
    is_over = threading.Event()
    message = Message(topic="T", body=bytes(100), keys=["k"])

    def put():
        while not is_over.is_set():
            store.put_plain(message, 0)

    writers = [threading.Thread(target=put) for _ in range(2)]
    for writer in writers:
        writer.start()
    started_s = time.monotonic()
    try:
        for _ in range(20):
            end = store.log.wrote_where
            store.get(GetRequest(topic="T", queue_id=0, offset=0, max_messages=1))
            assert store.dispatcher.dispatched_where >= end
    finally:
        is_over.set()
        for writer in writers:
            writer.join()
    assert time.monotonic() - started_s < 15


class Counting(dispatch.Dispatcher):
    """Rounds that find a number of records, and take no time."""

    def __init__(self, *, is_synced):
        files = SimpleNamespace(committed_where=0)
        source = SimpleNamespace(confirm_offset=0, files=files)
        parts = dispatch.DispatchParts(source, None, None, None, None, None)
        super().__init__(parts, is_synced=is_synced)
        self.found = 0

    def _run_round(self, limit=None):
        self.records += self.found


@pytest.mark.parametrize(
    ("is_synced", "is_awaited", "per_s", "rests"),
    [
        (False, True, 1_000, False),
        (False, True, 5_000, False),
        (False, True, 50_000, True),
        (True, True, 1_000, False),
        (True, True, 5_000, True),
        (True, False, 1_000, True),  # a round for each put would slow the puts down by half
    ],
)
def test_rest_depends_on_the_rate_and_not_on_the_rest_before(
    monkeypatch, is_synced, is_awaited, per_s, rests
):
    now_s = 100.0
    monkeypatch.setattr(dispatch, "perf_counter", lambda: now_s)
    dispatcher = Counting(is_synced=is_synced)
    dispatcher.listeners.append(SimpleNamespace(is_awaited=is_awaited))
    dispatcher.run_once()
    for passed_s in (0.001, 0.010, 0.002):  # as long as the thread rested, for whatever reason
        now_s += passed_s
        dispatcher.found = int(per_s * passed_s)
        dispatcher.run_once()
        dispatcher.is_idle = False
        assert (dispatcher.pause_s() <= 0.010) == rests
        assert dispatcher.is_idle != rests


def test_rounds_of_one_record_write_the_units_that_one_round_of_all_writes(tmp_path):
    """A round of one record takes a shorter way (`UnitBuilder._put_one`)."""
    requests = [
        request(topic=f"T{number % 2}", queue_id=number % 3, tags=f"t{number % 4}", keys=["k"])
        for number in range(40)
    ]
    requests += [request(topic=SCHEDULE_TOPIC, properties={"DELAY": "3"})]

    def units(name, *, waits):
        with open_engine(tmp_path / name, enable_consume_queue_ext=name.endswith("ext")) as engine:
            for one in requests:
                engine.put(one)
                if waits:
                    engine.catch_up()
            engine.catch_up()
            assert engine.dispatcher.records == len(requests)
            return {
                key: [
                    (int(unit["physical_offset"]), int(unit["size"]))
                    for offset in range(queue.max_offset)
                    for unit in engine.queue_units(key, offset, 1)
                ]
                for key, queue in sorted(engine.queues.items())
            }

    alone = units("alone", waits=True)
    assert sum(map(len, alone.values())) == len(requests)
    assert alone == units("together", waits=False)
    assert alone == units("alone-ext", waits=True)
