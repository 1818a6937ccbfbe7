import threading

import pytest
from delay_fakes import BORN_HOST, DELAYS_MS, MemoryStore, ordered_names

from rocketlake.delay.hook import DelayHook
from rocketlake.delay.level_scheduler import LevelRules, LevelScheduler
from rocketlake.delay.levels import DelayLevels, queue_of
from rocketlake.errors import StorePoisonedError
from rocketlake.files.json_file import load_table
from rocketlake.format.layout import PREFILL_SIZE
from rocketlake.metadata.offsets import DelayOffsets
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, PutStatus

LEVELS = DelayLevels(DELAYS_MS)


class Bench:
    """A store with a scheduler of its levels, which can be stopped and started."""

    def __init__(self, store, place, usage, **rules):
        self.store = store
        self.place = place
        self.usage = usage
        self.rules = LevelRules(levels=LEVELS, **rules)
        store.hook = DelayHook(LEVELS, store.clock, usage, timer=None)
        self.scheduler = None
        self.restart()

    def restart(self):
        self.offsets = DelayOffsets.load(self.place)
        self.scheduler = LevelScheduler(
            self.store, self.store.clock, self.offsets, self.rules, usage=self.usage
        )

    def pass_ms(self, count):
        self.store.clock.advance_ms(count)
        self.scheduler.run_once()

    def file(self):
        return load_table(self.offsets.path).value["offsetTable"]


@pytest.fixture
def bench(store, place, usage):
    return Bench(store, place, usage)


def test_message_is_delivered_when_its_delay_is_over(bench):
    bench.store.send(delay_level=1, queue_id=3)
    bench.pass_ms(999)
    assert bench.store.messages("T", 3) == []
    bench.pass_ms(1)
    (message,) = bench.store.messages("T", 3)
    assert message.stored_body == b"x"
    bench.pass_ms(100_000)
    assert len(bench.store.messages("T", 3)) == 1


def test_everything_but_place_and_time_stays(bench, clock):
    message = Message(
        topic="T", body=b"zzz", tags="a", keys=["k1", "k2"], properties={"u": "v"}, flag=5,
        delay_level=2,
    )  # fmt: skip
    host_v6 = Endpoint.parse("[2001:db8::7]:99")
    bench.store.put(
        AppendRequest(
            message=message, queue_id=4, born_timestamp=77, born_host=host_v6,
            store_host=Endpoint.parse("9.8.7.6:5"), sys_flag=0x11 | 8, reconsume_times=3,
            prepared_transaction_offset=11,
        )
    )  # fmt: skip
    (waiting,) = bench.store.messages("SCHEDULE_TOPIC_XXXX", 1)
    bench.pass_ms(5_000)
    (found,) = bench.store.messages("T", 4)
    same = ("stored_body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host",
            "reconsume_times", "body_crc", "properties")  # fmt: skip
    assert all(getattr(found, name) == getattr(waiting, name) for name in same)
    assert found.properties == {
        "u": "v", "TAGS": "a", "KEYS": "k1 k2", "DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "4",
    }  # fmt: skip
    assert found.store_timestamp == clock.now_ms()
    assert found.prepared_transaction_offset == 0
    assert ordered_names(found) != ordered_names(waiting)


def test_checksum_of_the_old_record_is_left_behind(bench):
    bench.store.send(delay_level=1, properties={"__CRC32#": "0780607090"})
    bench.pass_ms(1_000)
    assert "__CRC32#" not in bench.store.messages()[0].properties


def test_pause_ends_when_the_next_message_is_due(bench, clock):
    assert bench.scheduler.pause_s() == 0
    bench.scheduler.run_once()
    assert bench.scheduler.pause_s() is None
    bench.store.send(delay_level=2)
    clock.advance_ms(1_000)
    bench.store.send(delay_level=2)
    bench.scheduler.run_once()
    assert bench.scheduler.pause_s() == 4.0
    bench.store.send(delay_level=1)
    bench.scheduler.run_once()
    assert bench.scheduler.pause_s() == 1.0
    bench.store.send(delay_level=4)
    bench.pass_ms(5_000)
    bench.scheduler._persist()
    assert bench.scheduler.pause_s() == 10.0  # the clock may be set


def test_arrival_wakes_only_a_level_that_had_nothing(bench):
    woken = []
    bench.scheduler.wakeup = lambda: woken.append(True)
    bench.store.listeners.append(bench.scheduler)
    bench.scheduler.run_once()
    bench.store.send()
    assert woken == []
    bench.store.send(delay_level=3)
    assert len(woken) == 1
    bench.scheduler.run_once()
    bench.store.send(delay_level=3)
    bench.store.send()
    assert len(woken) == 1


def test_message_that_comes_while_levels_are_looked_at_is_not_missed(bench, monkeypatch):
    bench.store.listeners.append(bench.scheduler)
    plain = bench.store.dispatched_bounds
    late = iter([True])

    def bounds(key):
        found = plain(key)
        if key == queue_of(4) and next(late, False):
            bench.store.send(delay_level=1)
        return found

    monkeypatch.setattr(bench.store, "dispatched_bounds", bounds)
    bench.scheduler.run_once()
    assert bench.scheduler.pause_s() == 1.0


def test_failing_put_is_tried_again_and_holds_up_its_level_only(bench, clock, caplog):
    for level in (1, 1, 2):
        bench.store.send(body=b"%d" % level, delay_level=level)
    bench.store.refuse = lambda request: (
        PutStatus.OS_PAGE_CACHE_BUSY if request.message.body == b"1" else None
    )
    bench.pass_ms(10_000)
    assert bench.store.bodies() == [b"2"]
    assert bench.offsets.snapshot().get(1, 0) == 0
    assert "OS_PAGE_CACHE_BUSY the test wants it" in caplog.text
    assert 0 < bench.scheduler.pause_s() <= 0.1
    for _ in range(20):
        bench.pass_ms(1_000)
    assert len(caplog.records) < 8
    bench.store.refuse = lambda _request: None
    bench.pass_ms(1_000)
    assert bench.store.bodies() == [b"2", b"1", b"1"]


def test_store_that_raises_is_tried_again(bench):
    bench.store.send(delay_level=1)

    def poisoned(_request):
        raise StorePoisonedError("a flush failed")

    bench.store.refuse = poisoned
    bench.pass_ms(1_000)
    bench.store.refuse = lambda _request: None
    bench.pass_ms(1_000)
    assert bench.store.bodies() == [b"x"]


def test_record_that_is_gone_is_passed_over(bench, caplog):
    gone = bench.store.send(body=b"1", delay_level=1)
    bench.store.send(body=b"2", delay_level=1)
    bench.store.lost.add(gone.physical_offset)
    bench.store.queues[queue_of(1)].append((0, PREFILL_SIZE, 0))
    bench.pass_ms(1_000)
    assert bench.store.bodies() == [b"2"]
    assert bench.offsets.get(1) == 3
    assert "delayed message is gone" in caplog.text


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", None])
def test_message_that_belongs_nowhere_is_passed_over(bench, caplog, topic):
    bench.store.hook = None
    properties = {"DELAY": "1"} | ({"REAL_TOPIC": topic, "REAL_QID": "0"} if topic else {})
    bench.store.send("SCHEDULE_TOPIC_XXXX", properties=properties)
    bench.store.send("SCHEDULE_TOPIC_XXXX", b"ok", properties={
        "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"})  # fmt: skip
    bench.pass_ms(1_000)
    assert bench.store.bodies() == [b"ok"]
    assert "has no real topic" in caplog.text


def test_due_time_too_far_ahead_is_corrected(bench, clock):
    bench.store.send(delay_level=1)
    at, size, due = bench.store.queues[queue_of(1)][0]
    bench.store.queues[queue_of(1)][0] = (at, size, due + 1)
    bench.scheduler.run_once()
    # It cannot be due later than a message that is put now.
    assert bench.store.bodies() == [b"x"]


def test_due_time_is_computed_where_the_unit_has_an_address(bench):
    bench.store.send(delay_level=2)
    at, size, _ = bench.store.queues[queue_of(2)][0]
    bench.store.queues[queue_of(2)][0] = (at, size, -(1 << 62))
    bench.pass_ms(4_999)
    assert bench.store.bodies() == []
    bench.pass_ms(1)
    assert bench.store.bodies() == [b"x"]


def test_progress_is_written_from_time_to_time_after_the_messages(bench):
    bench.store.send(delay_level=1)
    bench.store.send(delay_level=4)
    bench.pass_ms(1_000)
    assert not bench.offsets.path.exists()
    bench.pass_ms(9_999)
    assert not bench.offsets.path.exists()
    assert bench.store.syncs == 0
    assert bench.scheduler.pause_s() == 0.001
    bench.pass_ms(1)
    assert bench.file() == {1: 1, 4: 0}
    assert bench.store.syncs == 1
    assert bench.scheduler.pause_s() == 10.0
    bench.pass_ms(10_000)
    assert bench.store.syncs == 1


def test_progress_is_not_written_when_the_messages_may_not_be_on_the_disk(bench, monkeypatch):
    bench.store.send(delay_level=1)
    bench.pass_ms(1_000)

    def fail():
        raise StorePoisonedError("a flush failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "sync", fail)
        with pytest.raises(StorePoisonedError):
            bench.pass_ms(10_000)
        assert not bench.offsets.path.exists()
        bench.pass_ms(5_000)
    bench.pass_ms(5_000)
    assert bench.file() == {1: 1}
    assert bench.store.syncs == 1


def test_restart_goes_on_where_it_was(bench):
    for number in range(3):
        bench.store.send(body=b"%d" % number, delay_level=1)
        bench.store.clock.advance_ms(600)
    bench.scheduler.run_once()
    assert bench.store.bodies() == [b"0", b"1"]
    bench.scheduler.close()
    bench.scheduler.close()
    bench.restart()
    bench.pass_ms(0)
    assert bench.store.bodies() == [b"0", b"1"]
    bench.store.clock.advance_ms(100_000)
    bench.restart()
    bench.scheduler.run_once()
    assert bench.store.bodies() == [b"0", b"1", b"2"]


def test_level_that_only_waits_is_not_in_the_file_of_4_9(store, place, usage):
    bench = Bench(store, place, usage, notes_waiting=False, is_4x=True)
    bench.store.send(delay_level=4)
    bench.store.send(delay_level=1)
    bench.pass_ms(1_000)
    bench.scheduler.close()
    assert bench.file() == {1: 1}


@pytest.mark.parametrize("wrong", [5, -1])
def test_progress_outside_of_the_queue_is_corrected(bench, wrong):
    bench.store.send(body=b"0", delay_level=1)
    bench.offsets.set(1, wrong)
    bench.offsets.persist()
    bench.restart()
    bench.pass_ms(1_000)
    bench.store.send(body=b"1", delay_level=1)
    bench.pass_ms(1_000)
    assert bench.store.bodies() == ([b"1"] if wrong > 0 else [b"0", b"1"])
    assert bench.offsets.get(1) == 2


def test_full_level_does_not_hold_up_others(bench):
    for _ in range(600):
        bench.store.send("A", delay_level=1)
    bench.store.send("B", delay_level=2)
    order = []
    bench.store.refuse = lambda request: order.append(request.message.topic)
    bench.pass_ms(5_000)
    assert order.index("B") == 256
    assert len(bench.store.messages("A")) == 600


def test_progress_and_waiting_are_told(bench):
    for level in (1, 1, 3):
        bench.store.send(delay_level=level)
    bench.pass_ms(1_000)
    assert bench.scheduler.progress() == {1: (2, 2), 3: (0, 1)}
    assert bench.scheduler.waiting_count == 1


def test_lateness_is_told(bench):
    bench.store.send(delay_level=1)
    bench.scheduler.run_once()
    assert bench.scheduler.behind_ms == 0
    bench.store.clock.advance_ms(1_700)
    assert bench.scheduler.behind_ms == 700
    bench.scheduler.run_once()
    assert bench.scheduler.behind_ms == 0


def test_thread_delivers_without_being_asked(store, place, usage):
    """The thread runs by the clock's time, which stands still here: only what is due comes."""
    bench = Bench(store, place, usage)
    delivered = threading.Event()
    plain = store.append

    def append(request):
        receipt = plain(request)
        if request.message.topic == "T":
            delivered.set()
        return receipt

    store.append = append
    store.listeners.append(bench.scheduler)
    bench.scheduler.start()
    store.delays_ms = (0, 0, 0, 0)
    store.send(delay_level=1)
    assert delivered.wait(20)
    bench.scheduler.close()
    assert not bench.scheduler.is_running
    assert store.bodies() == [b"x"]
    assert bench.file() == {1: 1}


def test_born_host_of_the_fake_is_the_one_of_the_golden_data():
    assert str(BORN_HOST) == "192.168.0.1:1234"
    assert MemoryStore(None).log_bounds() == (0, 0)
