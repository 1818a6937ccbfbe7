"""Progress that speaks of messages which are lost: a start brings it back to the queues' ends."""

import logging
import shutil

import pytest
from by_hand import by_hand

import rocketlake
from rocketlake import Message
from rocketlake.files.ops import PosixFileOps
from rocketlake.format.timer import TimerCheckpoint
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.offsets import DelayOffsets, LightOffsetBook, OffsetBook
from support.manual_clock import ManualClock

T0 = 1_700_000_000_000
SMALL = {"mapped_file_size_commit_log": 1 << 20}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def hands():
    with by_hand() as hands:
        yield hands


def bodies(messages):
    return [message.body.decode() for message in messages]


def place(path):
    return TableLocation(PosixFileOps(), ManualClock(), path / "config")


def put(store, count, first=0, **fields):
    for number in range(first, first + count):
        assert store.put(Message(topic="orders", body=b"%d" % number, **fields), 0).is_ok


def consume(store, count):
    with store.consumer("billing", "orders", timeout=0) as consumer:
        return bodies(consumer.poll(count))


def deliver(hands):
    for name in ("rocketlake-dispatch", "delay levels", "timer"):
        hands.run(name)


def kill(path):
    """What a killed process leaves: the files as they are now, and the mark of a running store."""
    target = path.with_name(path.name + "-killed")
    shutil.copytree(path, target)
    return target


@pytest.mark.parametrize("dispatch", ["internal", "external"])
def test_group_goes_on_at_the_end_of_its_queue(path, dispatch, caplog):
    logging.disable(logging.NOTSET)
    with rocketlake.open_store(path, **SMALL) as store:
        put(store, 3)
        assert consume(store, 3) == ["0", "1", "2"]
    book = OffsetBook.load(place(path))
    book.commit("orders", "billing", 0, 5)
    book.commit("orders", "other", 0, 2)
    book.commit("gone", "billing", 2, 7)
    book.persist()
    with rocketlake.open_store(path, **SMALL, dispatch=dispatch) as store:
        assert store.recovery.notes == (
            "group billing was at 5 of orders/0, which ends at 3: it goes on at 3",
            "group billing was at 7 of gone/2, which ends at 0: it goes on at 0",
        )
        assert caplog.text.count("progress set back") == 2
        put(store, 4, first=3)
        assert consume(store, 9) == ["3", "4", "5", "6"]
        with store.consumer("other", "orders", timeout=0) as other:
            assert bodies(other.poll(9)) == ["2", "3", "4", "5", "6"]
    with rocketlake.open_store(path, **SMALL) as store:
        assert store.recovery.notes == ()


def test_progress_is_on_the_disk_before_anything_is_put(path):
    """Otherwise the queue grows beyond it, and the next start has nothing to bring back."""
    with rocketlake.open_store(path, **SMALL) as store:
        put(store, 3)
    book = OffsetBook.load(place(path))
    book.commit("orders", "billing", 0, 5)
    book.persist()
    with rocketlake.open_store(path, **SMALL) as store:
        put(store, 4, first=3)
        store._engine.flush()
        killed = kill(path)
    with rocketlake.open_store(killed, **SMALL) as store:
        assert consume(store, 9) == ["3", "4", "5", "6"]


def test_light_queue_goes_on_at_its_end(path):
    light = SMALL | {"enable_lmq": True, "enable_multi_dispatch": True}
    queue = "%LMQ%one"

    def put_light(store, body):
        fan_out = {"INNER_MULTI_DISPATCH": queue}
        message = Message(topic="orders", body=body, properties=fan_out)
        assert store.put(message, 0).is_ok

    with rocketlake.open_store(path, **light) as store:
        put_light(store, b"0")
    book = LightOffsetBook.load(place(path))
    book.commit(queue, "billing", 0, 3)
    book.persist()
    with rocketlake.open_store(path, **light) as store:
        assert len(store.recovery.notes) == 1
        put_light(store, b"1")
        assert store._offsets.get(queue, "billing", 0) == 1
        assert store.max_offset(queue, 0) == 2


def test_delay_level_goes_on_at_the_end_of_its_queue(path, hands):
    clock = ManualClock(T0)
    with rocketlake.open_store(path, **SMALL, clock=clock) as store:
        put(store, 1, delay_level=1)
        clock.advance_ms(2_000)
        deliver(hands)
    book = DelayOffsets.load(place(path))
    assert book.get(1) == 1
    book.set(1, 3)
    book.persist()
    with rocketlake.open_store(path, **SMALL, clock=clock) as store:
        assert store.recovery.notes == (
            "delay level 1 was delivered up to 3, its queue ends at 1: it goes on at 1",
        )
        put(store, 3, first=1, delay_level=1)
        store._engine.flush()
        killed = kill(path)
    with rocketlake.open_store(killed, **SMALL, clock=clock) as store:
        clock.advance_ms(2_000)
        deliver(hands)
        assert bodies(store.get("orders", 0, 0).messages) == ["0", "1", "2", "3"]


def test_timer_goes_on_at_the_end_of_its_queue(path, hands):
    clock = ManualClock(T0)
    with rocketlake.open_store(path, **SMALL, clock=clock) as store:
        put(store, 1, deliver_at=T0 + 60_000)
        deliver(hands)
    page = path / "config" / "timercheck"
    checkpoint = TimerCheckpoint.decode(page.read_bytes())
    assert checkpoint.queue_offset == 1
    fields = (checkpoint.last_read_time, checkpoint.flushed_position, 4, 4)
    page.write_bytes(TimerCheckpoint(*fields).encode())
    with rocketlake.open_store(path, **SMALL, clock=clock) as store:
        assert store.recovery.notes == (
            "the timer was at 4 of its queue, which ends at 1: it goes on at 1",
        )
        put(store, 4, first=1, deliver_at=T0 + 60_000)
        store._engine.flush()
        killed = kill(path)
    with rocketlake.open_store(killed, **SMALL, clock=clock) as store:
        clock.advance_ms(61_000)
        deliver(hands)
        assert sorted(bodies(store.get("orders", 0, 0).messages)) == ["0", "1", "2", "3", "4"]
