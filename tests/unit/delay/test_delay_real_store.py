"""Delayed delivery in a real store: files, dispatch, restart and recovery together."""

import threading

import pytest
from delay_bench import RealBench

from rocketlake.clock import SystemClock
from rocketlake.files.json_file import load_table
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import PutStatus

NOW = 1_800_000_000_500


@pytest.fixture
def bench(tmp_path, clock):
    found = RealBench(tmp_path, clock)
    yield found
    found.close()


def test_level_is_delivered_to_its_queue(bench):
    receipt = bench.put(b"later", queue_id=2, delay_level=3, tags="a", keys=["k"])
    assert receipt.status is PutStatus.PUT_OK
    bench.pass_ms(9_999)
    assert bench.bodies(queue_id=2) == []
    (waiting,) = bench.messages("SCHEDULE_TOPIC_XXXX", 2)
    bench.pass_ms(1)
    (message,) = bench.messages(queue_id=2)
    assert (message.topic, message.queue_id, message.body) == ("T", 2, b"later")
    assert (message.tags, message.keys) == ("a", ["k"])
    assert message.properties == waiting.properties
    assert message.born_timestamp == waiting.born_timestamp == NOW


def test_unit_of_a_waiting_message_has_its_due_time(bench):
    bench.put(delay_level=5)
    bench.store.catch_up()
    (unit,) = bench.store.queue_units(QueueKey("SCHEDULE_TOPIC_XXXX", 4), 0, 1).tolist()
    assert unit[2] == NOW + 60_000


def test_time_is_delivered_to_its_queue(bench):
    bench.put(b"timed", queue_id=1, deliver_at=NOW + 5_000)
    bench.put(b"plain", queue_id=1)
    bench.pass_ms(0)
    bench.pass_ms(4_999)
    assert bench.bodies(queue_id=1) == [b"plain"]
    bench.pass_ms(501)
    assert bench.bodies(queue_id=1) == [b"plain", b"timed"]


def test_store_without_delays_has_no_files_of_it(bench, tmp_path):
    for _ in range(10):
        bench.put()
    bench.pass_ms(60_000)
    bench.close()
    assert not (tmp_path / "timerwheel").exists()
    assert not (tmp_path / "timerlog").exists()
    assert not (tmp_path / "config").exists()


def test_everything_survives_a_restart(bench):
    for level in (1, 2, 4):
        bench.put(b"level %d" % level, delay_level=level)
    for seconds in (2, 20, 200):
        bench.put(b"in %d s" % seconds, deliver_at=NOW + seconds * 1_000)
    bench.pass_ms(0)
    bench.pass_ms(6_000)
    delivered = [b"level 1", b"level 2", b"in 2 s"]
    assert bench.bodies() == delivered
    bench.reopen()
    bench.pass_ms(0)
    assert bench.bodies() == delivered
    bench.close()
    bench.clock.advance_ms(300_000)
    bench.open()
    bench.pass_ms(0)
    assert bench.bodies() == [*delivered, b"level 4", b"in 20 s", b"in 200 s"]
    assert load_table(bench.path / "config" / "timermetrics").value["timingCount"]["T"] is not None
    bench.reopen()
    bench.pass_ms(300_000)
    assert len(bench.bodies()) == 6


def test_many_messages_over_many_files(bench):
    count = 700
    for number in range(count):
        if number % 2:
            bench.put(b"%d" % number, queue_id=number % 4, delay_level=1)
        else:
            bench.put(b"%d" % number, queue_id=number % 4, deliver_at=NOW + 1_000 + number)
    bench.pass_ms(0)
    bench.pass_ms(5_000)
    found = [int(body) for queue_id in range(4) for body in bench.bodies(queue_id=queue_id)]
    assert sorted(found) == list(range(count))
    for queue_id in range(4):
        numbers = [int(body) for body in bench.bodies(queue_id=queue_id)]
        assert numbers == sorted(numbers)
    assert len(list((bench.path / "commitlog").iterdir())) > 3
    bench.reopen()
    bench.pass_ms(5_000)
    assert len(bench.bodies()) == count // 4


def test_compressed_body_stays_as_it_is(bench):
    bench.put(b"z", delay_level=1, flag=3)
    bench.pass_ms(1_000)
    assert bench.messages()[0].flag == 3


def test_whole_record_checksum_is_computed_anew(tmp_path, clock):
    bench = RealBench(tmp_path, clock, enabled_append_prop_crc=True)
    bench.put(b"a", delay_level=1)
    bench.put(b"b", deliver_at=NOW + 1_000)
    bench.pass_ms(0)
    bench.pass_ms(3_000)
    assert bench.bodies() == [b"a", b"b"]
    assert all("__CRC32#" in message.properties for message in bench.messages())
    bench.close()


def test_due_times_in_extension_files_are_found(tmp_path, clock):
    bench = RealBench(tmp_path, clock, enable_consume_queue_ext=True)
    bench.put(b"a", delay_level=2)
    bench.pass_ms(4_999)
    assert bench.bodies() == []
    bench.pass_ms(1)
    assert bench.bodies() == [b"a"]
    bench.close()


def test_older_releases_have_levels_and_no_times(tmp_path, clock):
    bench = RealBench(tmp_path, clock, compat_version="4.9")
    assert bench.put(deliver_at=NOW + 5_000).status is PutStatus.WHEEL_TIMER_NOT_ENABLE
    bench.put(b"a", delay_level=1)
    bench.pass_ms(1_000)
    assert bench.bodies() == [b"a"]
    bench.close()
    assert (tmp_path / "config" / "delayOffset.json").read_bytes() == (
        b'{\n\t"offsetTable":{1:1\n\t}\n}'
    )


def test_info_has_the_names_of_the_reference(bench):
    bench.put(delay_level=1)
    bench.put(delay_level=4)
    bench.put(deliver_at=NOW + 60_000)
    bench.store.catch_up()
    assert bench.delay.runtime_info()["timerOffsetBehind"] == "1"
    bench.pass_ms(1_000)
    assert bench.delay.runtime_info() == {
        "scheduleMessageOffset_1": "1,1",
        "scheduleMessageOffset_4": "0,1",
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "1",
    }
    bench.clock.advance_ms(32_000)
    assert bench.delay.behind_ms == 3_000


def test_replica_delivers_nothing(tmp_path, clock):
    bench = RealBench(tmp_path, clock, broker_role="SLAVE")
    bench.delay.start()
    assert not bench.delay.levels.is_running
    assert not bench.delay.timer.is_running
    bench.close()


def test_fork_writes_nothing(tmp_path, clock):
    bench = RealBench(tmp_path, clock)
    bench.put(delay_level=4)
    bench.pass_ms(0)
    bench.delay._note_fork()
    bench.delay.close()
    assert not (tmp_path / "config" / "delayOffset.json").exists()
    bench.delay._is_forked = False
    bench.close()
    assert (tmp_path / "config" / "delayOffset.json").exists()


def test_refused_messages_leave_nothing(bench):
    before = bench.store.log_bounds()
    assert bench.put(deliver_at=NOW + 10**12).status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert bench.put(properties={"DELAY": "x"}).status is PutStatus.MESSAGE_ILLEGAL
    assert bench.store.log_bounds() == before


def test_threads_deliver_by_the_machines_clock(tmp_path):
    """Real threads and real time: a level of no delay, and a time that is nearly there."""
    clock = SystemClock()
    bench = RealBench(tmp_path, clock, message_delay_level="0s 1h", timer_precision_ms=100)
    arrived = threading.Event()

    class Listener:
        seen = 0

        def arrived(self, arrivals):
            self.seen += sum(arrival.topic == "T" for arrival in arrivals)
            if self.seen == 3:
                arrived.set()

    bench.store.add_listener(Listener())
    bench.delay.start()
    bench.put(b"now")
    bench.put(b"level", delay_level=1)
    bench.put(b"time", deliver_at=clock.now_ms() + 150)
    assert arrived.wait(30)
    bench.close()
    assert not bench.delay.levels.is_running
    assert not bench.delay.timer.is_running
    bench.open()
    assert sorted(bench.bodies()) == [b"level", b"now", b"time"]
    bench.close()
