import pytest
from timer_bench import HOUR_MS, LOG_FILE_SIZE, NOW, TimerBench

from rocketlake.delay.timer_rules import TIMER_QUEUE
from rocketlake.errors import FileSizeError, FlushFailedError, StorePoisonedError
from rocketlake.format import layout
from rocketlake.model.queues import QueueKey


@pytest.fixture
def bench(store, place, usage):
    return TimerBench(store, place, usage)


def test_clean_stop_and_start_deliver_once(bench):
    for seconds in (2, 4, 6):
        bench.store.send(body=b"%d" % seconds, deliver_at=NOW + seconds * 1_000)
    bench.timer.run_once()
    bench.pass_ms(2_600)
    bench.timer.close()
    assert bench.store.bodies() == [b"2"]
    found = bench.checkpoint()
    assert found.last_read_time == NOW + 2_500
    assert (found.queue_offset, found.primary_queue_offset) == (3, 3)
    assert found.flushed_position == 3 * layout.TIMER_UNIT_SIZE
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"2"]
    bench.pass_ms(2_000)
    assert bench.store.bodies() == [b"2", b"4"]
    bench.timer.close()
    bench.clock.advance_ms(30 * 24 * HOUR_MS)  # twice as long as the wheel
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"2", b"4", b"6"]
    bench.timer.close()
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"2", b"4", b"6"]


def test_late_messages_come_once_although_they_have_no_unit(bench):
    """RocketMQ goes on behind the last unit, and delivers them again (compat, found by reading)."""
    bench.store.send(body=b"unit", deliver_at=NOW + HOUR_MS)
    bench.timer.run_once()
    bench.store.send(body=b"late", deliver_at=NOW + 700)
    bench.pass_ms(5_000)
    bench.timer.close()
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"late"]


def test_late_message_whose_delivery_a_crash_took_comes_again(bench):
    """A message behind it has a unit: it does not say that everything before it was delivered."""
    bench.store.send(body=b"first", deliver_at=NOW + HOUR_MS)
    bench.timer.run_once()
    bench.pass_ms(1_000)  # flushed
    bench.store.send(body=b"late", deliver_at=NOW + 1_700)
    bench.store.send(body=b"last", deliver_at=NOW + HOUR_MS)
    bench.clock.advance_ms(5_000)
    kept = len(bench.store.log)
    bench.timer.run_once()
    assert bench.store.bodies() == [b"late"]
    bench.kill()
    # The power cut took what was delivered, and left the unit behind it.
    del bench.store.log[kept:]
    bench.store.queues[QueueKey("T", 0)].clear()
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"late"]
    bench.pass_ms(HOUR_MS)
    assert bench.store.bodies() == [b"late", b"first", b"last"]


def test_killed_timer_finds_its_units_in_the_log(bench):
    bench.store.send(body=b"1", deliver_at=NOW + 10_000)
    bench.timer.run_once()
    bench.pass_ms(1_000)  # flushed
    for number in (2, 3):
        bench.store.send(body=b"%d" % number, deliver_at=NOW + 10_000)
    bench.store.send(body=b"4", deliver_at=NOW + 20_000)
    bench.timer.run_once()
    end = bench.files.log.end
    bench.kill()
    bench.restart()
    assert bench.files.log.end == end
    bench.timer.run_once()
    assert bench.files.log.end == end
    assert bench.files.wheel.slot(NOW + 9_500).count == 3
    bench.pass_ms(30_000)
    assert bench.store.bodies() == [b"1", b"2", b"3", b"4"]


def test_killed_timer_delivers_at_least_once(bench):
    bench.store.send(body=b"1", deliver_at=NOW + 1_000)
    bench.store.send(body=b"2", deliver_at=NOW + 60_000)
    bench.timer.run_once()
    bench.pass_ms(1_500)
    assert bench.store.bodies() == [b"1"]
    bench.kill()
    bench.restart()
    bench.pass_ms(60_000)
    assert bench.store.bodies() in ([b"1", b"2"], [b"1", b"1", b"2"])


def test_message_put_while_the_timer_was_away_gets_its_time(bench):
    bench.store.send(body=b"1", deliver_at=NOW + 60_000)
    bench.timer.run_once()
    bench.timer.close()
    bench.store.send(body=b"2", deliver_at=NOW + 5_000)
    bench.store.send(body=b"3", deliver_at=NOW + 70_000)
    bench.clock.advance_ms(10_000)
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"2"]
    bench.pass_ms(70_000)
    assert bench.store.bodies() == [b"2", b"1", b"3"]


@pytest.mark.parametrize("lost", ["timerlog", "timerwheel", "both", "tail", "snapshots"])
def test_lost_files_are_made_anew_from_the_queue(store, place, usage, caplog, lost):
    bench = TimerBench(store, place, usage, roll_window_slots=100)
    bench.store.send(body=b"done", deliver_at=NOW + 2_000)
    bench.store.send(body=b"rolled", deliver_at=NOW + 180_000)
    bench.store.send(body=b"waits", deliver_at=NOW + 90_000)
    bench.timer.run_once()
    bench.pass_ms(60_000)  # the rolled one is in the queue twice
    bench.timer.run_once()
    bench.timer.close()
    assert bench.store.bodies() == [b"done"]
    if lost in {"timerlog", "both"}:
        for path in (bench.root / "timerlog").iterdir():
            path.unlink()
    if lost in {"timerwheel", "both"}:
        (bench.root / "timerwheel").unlink()
    if lost == "snapshots":  # as 5.5 with timerWheelSnapshotFlush leaves the wheel
        wheel = bench.root / "timerwheel"
        for name in ("timerwheel.104", "timerwheel.156", "timerwheel.208.tmp"):
            wheel.with_name(name).write_bytes(wheel.read_bytes())
        wheel.write_bytes(bytes(wheel.stat().st_size))
    if lost == "tail":
        path = next((bench.root / "timerlog").iterdir())
        path.write_bytes(path.read_bytes()[:52] + bytes(LOG_FILE_SIZE - 52))
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"done"]
    bench.pass_ms(31_000)
    assert "rebuilt" in caplog.text
    assert bench.store.bodies() == [b"done", b"waits"]
    bench.pass_ms(100_000)
    assert bench.store.bodies() == [b"done", b"waits", b"rolled"]
    bench.timer.close()
    bench.restart()
    assert caplog.text.count("rebuilt") == 1
    assert [*bench.root.glob("timerwheel.*")] == []


@pytest.mark.parametrize("taken", ["nothing", "first page", "all"])
def test_crash_while_files_are_made_anew(bench, taken):
    """The checkpoint of before vouches for units that are not there any more."""
    bench.store.send(body=b"done", deliver_at=NOW + 2_000)
    for number in range(8):
        bench.store.send(body=b"%d" % number, deliver_at=NOW + 60_000 + number * 1_000)
    bench.timer.run_once()
    bench.pass_ms(5_000)
    bench.timer.close()
    assert bench.store.bodies() == [b"done"]
    (bench.root / "timerwheel").unlink()
    bench.restart()
    assert bench.checkpoint().flushed_position == 0
    bench.timer.run_once()
    bench.kill()
    # Nothing was flushed since: of the new units a power cut leaves any part.
    count = {"nothing": 0, "first page": 4, "all": 99}[taken] * layout.TIMER_UNIT_SIZE
    for path in sorted((bench.root / "timerlog").iterdir()):
        data = path.read_bytes()
        path.write_bytes(bytes(min(count, len(data))) + data[count:])
    bench.restart()
    bench.pass_ms(120_000)
    assert bench.store.bodies() == [b"done", *(b"%d" % number for number in range(8))]


def test_units_before_the_checkpoint_whose_records_are_lost_are_made_anew(bench):
    """A broker flushes its timer before its log: other records take the place of the lost ones."""
    bench.store.send(body=b"1", deliver_at=NOW + 60_000)
    bench.timer.run_once()
    kept = len(bench.store.log)
    bench.store.send(body=b"2", deliver_at=NOW + 60_000)
    bench.timer.run_once()
    bench.timer.close()
    del bench.store.log[kept:]
    bench.store.queues[TIMER_QUEUE].pop()
    bench.restart()
    bench.store.send(body=b"3", deliver_at=NOW + 90_000)
    bench.timer.run_once()
    bench.pass_ms(75_000)
    assert bench.store.bodies() == [b"1"]
    bench.pass_ms(75_000)
    assert bench.store.bodies() == [b"1", b"3"]


@pytest.mark.parametrize("damage", ["unit", "due", "slot"])
def test_slot_found_damaged_when_it_is_due_is_made_anew(bench, caplog, damage):
    for number in range(3):
        bench.store.send(body=b"%d" % number, deliver_at=NOW + 5_000)
    bench.store.send(body=b"late", deliver_at=NOW + 60_000)
    bench.timer.run_once()
    bench.pass_ms(1_000)
    if damage == "slot":
        path = bench.root / "timerwheel"
        path.write_bytes(bytes(path.stat().st_size))
    else:
        path = next((bench.root / "timerlog").iterdir())
        at = layout.TIMER_UNIT_SIZE + (0 if damage == "unit" else 24)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\x7f")
    bench.pass_ms(5_000)
    assert "rebuilt" in caplog.text
    assert bench.store.bodies() == [b"0", b"1", b"2"]
    bench.pass_ms(60_000)
    assert bench.store.bodies() == [b"0", b"1", b"2", b"late"]


def test_units_whose_records_are_lost_are_cut_off(bench, caplog):
    bench.store.send(body=b"1", deliver_at=NOW + 10_000)
    bench.timer.run_once()
    bench.pass_ms(1_000)
    kept = len(bench.store.log)
    bench.store.send(body=b"2", deliver_at=NOW + 10_000)
    bench.timer.run_once()
    bench.kill()
    # The commit log lost its end in a power cut; other records take its place.
    del bench.store.log[kept:]
    bench.store.queues[TIMER_QUEUE].pop()
    bench.restart()
    assert bench.files.log.end == layout.TIMER_UNIT_SIZE
    assert "its records are lost" in caplog.text
    bench.store.send(body=b"3", deliver_at=NOW + 20_000)
    bench.timer.run_once()
    bench.pass_ms(60_000)
    assert bench.store.bodies() == [b"1", b"3"]


def test_message_waits_through_a_crash_before_the_first_flush_and_a_long_pause(bench):
    """A wheel without a checkpoint would tell only of the last week."""
    bench.store.send(deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.files.log.flush()
    bench.files.wheel.flush()
    bench.kill()
    bench.clock.advance_ms(30 * 24 * HOUR_MS)
    bench.restart()
    bench.timer.run_once()
    assert bench.store.bodies() == [b"x"]


def test_progress_is_written_after_the_messages(bench, monkeypatch):
    bench.store.send(deliver_at=NOW + 5_000)
    bench.timer.run_once()
    assert bench.checkpoint().queue_offset == 0
    bench.pass_ms(1_000)
    assert bench.checkpoint().queue_offset == 1
    assert bench.store.syncs == 1
    bench.pass_ms(5_000)

    def fail():
        raise StorePoisonedError("a flush failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "sync", fail)
        with pytest.raises(StorePoisonedError):
            bench.pass_ms(1_000)
        assert bench.checkpoint().last_read_time == NOW + 500
    bench.pass_ms(1_000)
    assert bench.checkpoint().last_read_time == NOW + 7_500
    assert bench.timer.pause_s() is None


def test_nothing_is_written_after_a_flush_that_failed(bench, monkeypatch, caplog):
    bench.store.send(deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.pass_ms(1_000)
    before = bench.checkpoint()
    bench.store.send(body=b"2", deliver_at=NOW + 6_000)
    bench.timer.run_once()

    def fail():
        raise FlushFailedError("timerlog", "flush failed")

    with monkeypatch.context() as patch:
        patch.setattr(bench.files.log, "flush", fail)
        bench.pass_ms(1_000)
    assert "cannot be flushed" in caplog.text
    bench.pass_ms(10_000)
    assert bench.store.bodies() == [b"x", b"2"]
    bench.timer.close()
    assert bench.checkpoint() == before


def test_version_counts_each_step_of_progress(bench):
    bench.store.send(deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.pass_ms(1_000)
    first = bench.checkpoint()
    assert (first.version_counter, first.version_timestamp) == (1, NOW + 1_000)
    bench.timer.close()
    second = bench.checkpoint()
    assert second == first


def test_clock_that_is_set_back_brings_no_message_twice(bench):
    bench.store.send(body=b"1", deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.pass_ms(6_000)
    bench.timer.close()
    bench.clock.advance_ms(-6_000)
    bench.restart()
    bench.store.send(body=b"2", deliver_at=NOW + 5_000)
    bench.timer.run_once()
    bench.pass_ms(6_000)
    assert bench.store.bodies() == [b"1", b"2"]


def test_expired_files_of_the_log_are_deleted(bench, monkeypatch):
    for number in range(25):
        bench.store.send(deliver_at=NOW + 1_000 + number)
    bench.timer.run_once()
    bench.pass_ms(5_000)
    monkeypatch.setattr(bench.store, "log_bounds", lambda: (1 << 40, 1 << 41))
    bench.store.send(deliver_at=NOW + 60_000)
    bench.pass_ms(30_000)
    bench.pass_ms(1_000)
    assert len(list((bench.root / "timerlog").iterdir())) == 1


def test_wheel_of_another_size_stops_the_start(bench):
    (bench.root / "timerwheel").write_bytes(b"x")
    with pytest.raises(FileSizeError, match="timerwheel"):
        bench.restart()
