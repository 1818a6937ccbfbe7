import threading

import pytest
from timer_bench import HOUR_MS, NOW, TimerBench

from rocketlake.delay.timer_rules import TIMER_QUEUE, TimerRules
from rocketlake.errors import StorePoisonedError
from rocketlake.store.api import PutStatus
from rocketlake.store.options import StoreOptions


@pytest.fixture
def bench(store, place, usage):
    return TimerBench(store, place, usage)


def test_message_is_delivered_when_its_slot_is_over(bench):
    bench.store.send(deliver_at=NOW + 2_000, queue_id=3)  # 2.5 s: the slot ends at 3.0 s
    bench.timer.run_once()
    bench.pass_ms(2_499)
    assert bench.store.messages("T", 3) == []
    assert bench.timer.pause_s() == 0.001
    bench.pass_ms(1)
    (message,) = bench.store.messages("T", 3)
    assert message.stored_body == b"x"
    assert message.properties == {
        "TIMER_DELIVER_MS": str(NOW + 2_000),
        "TIMER_OUT_MS": str(NOW + 1_500),
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "TIMER_ENQUEUE_MS": str(NOW - 500),
        "TIMER_DEQUEUE_MS": str(NOW + 2_500),
    }
    bench.pass_ms(HOUR_MS)
    assert len(bench.store.messages("T", 3)) == 1


@pytest.mark.parametrize("ahead_ms", [1, 499, 500, 501, 1_000, 1_499, 1_500, 10_000, 86_400_000])
def test_no_message_comes_early_nor_a_slot_late(bench, ahead_ms):
    bench.store.send(deliver_at=NOW + ahead_ms)
    bench.timer.run_once()
    bench.clock.advance_ms(ahead_ms - 1)
    bench.timer.run_once()
    assert bench.store.messages() == []
    bench.pass_ms(1_001)
    assert len(bench.store.messages()) == 1


def test_unused_timer_makes_no_files_and_sleeps(bench):
    bench.store.send()
    bench.timer.run_once()
    assert bench.timer.pause_s() is None
    assert not bench.timer.is_rejected(NOW)
    assert bench.timer.behind_ms == 0
    bench.timer.close()
    assert list(bench.root.iterdir()) == []


def test_pause_ends_with_the_next_slot(bench):
    bench.store.send(deliver_at=NOW + 4_000)
    assert bench.timer.pause_s() == 0
    bench.timer.run_once()
    assert bench.timer.pause_s() == 1.0  # to the flush
    bench.pass_ms(1_000)
    assert bench.timer.pause_s() == 3.5
    bench.store.send(deliver_at=NOW + 2_000)
    bench.timer.run_once()
    bench.pass_ms(1_000)
    assert bench.timer.pause_s() == 0.5
    assert bench.timer.behind_ms == 0
    bench.clock.advance_ms(600)
    assert bench.timer.behind_ms == 100
    bench.timer.run_once()
    bench.pass_ms(1_000)
    assert bench.timer.pause_s() == 0.9
    bench.pass_ms(900)
    bench.pass_ms(1_000)
    assert bench.timer.pause_s() is None


def test_arrival_wakes_the_timer(bench):
    woken = []
    bench.timer.wakeup = lambda: woken.append(True)
    bench.store.listeners.append(bench.timer)
    bench.timer.run_once()
    bench.store.send()
    bench.store.send(delay_level=1)
    assert woken == []
    bench.store.send(deliver_at=NOW + HOUR_MS)
    assert len(woken) == 1
    bench.timer.run_once()
    bench.store.send()
    assert len(woken) == 1


def test_messages_of_one_slot_come_in_the_order_they_were_put(bench):
    for number in range(25):  # three files of the log
        bench.store.send(body=b"%d" % number, deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.pass_ms(6_000)
    assert bench.store.bodies() == [b"%d" % number for number in range(25)]
    assert len(list((bench.root / "timerlog").iterdir())) == 3


def test_message_whose_slot_is_over_is_delivered_at_once(bench):
    bench.store.send(deliver_at=NOW + 700)
    bench.pass_ms(5_000)
    (message,) = bench.store.messages()
    assert message.properties["TIMER_ENQUEUE_MS"] == str((1 << 63) - 1)
    assert bench.files.log.end == 0
    assert bench.timer.waiting_counts == {}


def test_message_too_far_ahead_is_rolled(store, place, usage):
    bench = TimerBench(store, place, usage, roll_window_slots=100)
    bench.store.send(deliver_at=NOW + 250_000)
    bench.timer.run_once()
    assert bench.timer.waiting_counts == {"T": 1}
    for _ in range(99):
        bench.pass_ms(1_000)
    assert len(bench.store.messages(*_timer_queue())) == 1
    bench.pass_ms(2_000)
    first, second = bench.store.messages(*_timer_queue())
    assert second.properties["TIMER_ROLL_TIMES"] == "1"
    assert first.properties["TIMER_OUT_MS"] == second.properties["TIMER_OUT_MS"]
    assert bench.timer.waiting_counts == {"T": 1}
    bench.pass_ms(101_000)
    assert len(bench.store.messages(*_timer_queue())) == 3
    assert bench.store.messages() == []
    bench.pass_ms(50_000)
    (message,) = bench.store.messages()
    assert message.properties["TIMER_ROLL_TIMES"] == "2"
    assert bench.timer.waiting_counts == {"T": 0}


def _timer_queue():
    return TIMER_QUEUE.topic, TIMER_QUEUE.queue_id


def test_slots_of_rolled_messages_are_those_of_the_reference():
    rules = TimerRules(roll_window_slots=100)
    assert rules.slot_time(99_000, 0) == (99_000, False)
    assert rules.slot_time(100_000, 0) == (50_000, True)
    assert rules.slot_time(132_999, 0) == (50_000, True)
    assert rules.slot_time(133_000, 0) == (100_000, True)
    assert rules.slot_time(1_133_000, 1_000_000) == (1_100_000, True)


def test_rules_come_from_options():
    rules = TimerRules.of(
        StoreOptions.from_source(
            timer_roll_window_slot=1, timer_max_delay_sec=5, timer_congest_num_each_slot=7
        )
    )
    assert rules.roll_window_slots == 604_740
    assert (rules.max_delay_ms, rules.congest_max, rules.precision_ms) == (5_000, 7, 1_000)
    assert TimerRules.of(StoreOptions()) == TimerRules()


def test_message_can_be_deleted(bench):
    for key in ("k1", "k2"):
        bench.store.send(body=key.encode(), deliver_at=NOW + 5_000, properties={"UNIQ_KEY": key})
    for key in ("T+k1", "T+nobody", "U+k2"):
        bench.store.send(
            body=b"delete", deliver_at=NOW + 5_000, properties={"TIMER_DEL_UNIQKEY": key}
        )
    bench.timer.run_once()
    assert bench.timer.waiting_counts == {"T": -1}
    bench.pass_ms(6_000)
    assert bench.store.bodies() == [b"k2"]
    assert bench.timer.waiting_counts == {"T": 0}


def test_delete_that_comes_too_late_is_dropped(bench, caplog):
    bench.store.send(deliver_at=NOW + 700, properties={"TIMER_DEL_UNIQKEY": "T+k"})
    bench.pass_ms(5_000)
    assert bench.store.messages() == []
    assert "too late" in caplog.text


def test_failing_put_is_tried_again_and_no_message_comes_twice(bench, caplog):
    for number in range(3):
        bench.store.send(body=b"%d" % number, deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.store.refuse = lambda request: (
        PutStatus.SERVICE_NOT_AVAILABLE if request.message.body == b"1" else None
    )
    bench.pass_ms(6_000)
    assert bench.store.bodies() == [b"0"]
    assert 0 < bench.timer.pause_s() <= 0.1
    bench.timer.run_once()  # too early
    assert bench.timer._delivery.failures == 1
    for _ in range(10):
        bench.pass_ms(1_000)
    assert len(caplog.records) == 4
    bench.store.refuse = lambda _request: None
    bench.pass_ms(1_000)
    assert bench.store.bodies() == [b"0", b"1", b"2"]


def test_late_message_that_cannot_be_put_is_tried_again(bench):
    bench.store.send(body=b"1", deliver_at=NOW + 700)
    bench.store.send(body=b"2", deliver_at=NOW + HOUR_MS)
    bench.clock.advance_ms(5_000)

    def poisoned(_request):
        raise StorePoisonedError("a flush failed")

    bench.store.refuse = poisoned
    bench.timer.run_once()
    assert bench.store.bodies() == []
    bench.store.refuse = lambda _request: None
    bench.pass_ms(1_000)
    assert bench.store.bodies() == [b"1"]
    assert bench.timer.waiting_counts == {"T": 1}


def test_message_that_is_refused_for_good_is_passed_over(bench, caplog):
    bench.store.send(body=b"1", deliver_at=NOW + 5_000)
    bench.store.send(body=b"2", deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.store.refuse = lambda request: (
        PutStatus.PROPERTIES_SIZE_EXCEEDED if request.message.body == b"1" else None
    )
    bench.pass_ms(6_000)
    assert bench.store.bodies() == [b"2"]
    assert "PROPERTIES_SIZE_EXCEEDED" in caplog.text


def test_records_that_are_gone_or_no_timed_messages_are_passed_over(bench, caplog):
    gone = bench.store.send(body=b"1", deliver_at=NOW + 5_000)
    later = bench.store.send(body=b"2", deliver_at=NOW + 5_000)
    bench.store.send(body=b"3", deliver_at=NOW + 5_000)
    bench.store.send("rmq_sys_wheel_timer", b"4")
    bench.store.lost.add(gone.physical_offset)
    bench.timer.run_once()
    bench.store.lost.add(later.physical_offset)
    bench.pass_ms(6_000)
    assert bench.store.bodies() == [b"3"]
    assert caplog.text.count("timed message is gone") == 2
    assert "message without a time" in caplog.text


def test_full_slot_is_refused_at_random_and_then_always(store, place, usage):
    bench = TimerBench(store, place, usage, congest_max=50)
    statuses = []
    for _ in range(400):
        statuses.append(bench.store.send(deliver_at=NOW + 5_000).status)
        bench.timer.run_once()
    refused = [status is PutStatus.WHEEL_TIMER_FLOW_CONTROL for status in statuses]
    assert not any(refused[:51])
    assert 50 < refused.count(False) <= 100
    assert bench.store.send(deliver_at=NOW + 6_000).is_ok


def test_metrics_are_written_and_read(bench):
    bench.store.send("größe😀", deliver_at=NOW + 60_000)
    bench.timer.run_once()
    bench.timer.close()
    data = (bench.root / "config" / "timermetrics").read_bytes()
    assert data == (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1800000000500},'
        b'"timingCount":{"gr\\u00F6\\u00DFe\\uD83D\\uDE00":'
        b'{"count":1,"timeStamp":1800000000500}}}'
    )
    bench.restart()
    assert bench.timer.waiting_counts == {"größe😀": 1}
    assert bench.metrics.get("größe😀").timestamp == NOW
    assert bench.metrics.get("other").count == 0


def test_precision_below_a_second(store, place, usage):
    bench = TimerBench(store, place, usage, precision_ms=100)
    bench.store.send(deliver_at=NOW + 250)
    bench.timer.run_once()
    bench.pass_ms(299)
    assert bench.store.messages() == []
    bench.pass_ms(1)
    assert len(bench.store.messages()) == 1


def test_thread_delivers_without_being_asked(bench):
    delivered = threading.Event()
    plain = bench.store.append

    def append(request):
        receipt = plain(request)
        if request.message.topic == "T":
            delivered.set()
        else:
            bench.clock.advance_ms(10_000)
        return receipt

    bench.store.append = append
    bench.store.listeners.append(bench.timer)
    bench.timer.start()
    bench.store.send(deliver_at=NOW + 500)
    assert delivered.wait(20)
    bench.timer.close()
    assert not bench.timer.is_running
    assert bench.store.bodies() == [b"x"]
