"""What a program keeps unless it asks for less, and what its groups are told of what went."""

import asyncio
import os

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.embedded.consumer.prefetcher import Missed
from rocketlake.errors import StoreClosedError
from rocketlake.files.mapped_file_queue import Expiry
from rocketlake.store.retention.service import Retention
from support.manual_clock import ManualClock

FILE_SIZE = 8192
BODY = bytes(900)
PER_FILE = 8
HOUR_MS = 3_600_000
SMALL = {"mapped_file_size_commit_log": FILE_SIZE, "delete_commit_log_files_interval": 0}


@pytest.fixture(autouse=True)
def no_thread(monkeypatch):
    """Rounds come when a test lets them."""
    monkeypatch.setattr(Retention, "start", Retention._set_times)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def open_small(tmp_path, clock):
    opened = []

    def open_small(conf=None, **options):
        opened.append(
            rocketlake.open_store(tmp_path / "store", conf, clock=clock, **{**SMALL, **options})
        )
        return opened[-1]

    yield open_small
    for store in opened:
        store.close()


def fill(store, files):
    for number in range(files * PER_FILE + 1):
        store.put(Message(topic="orders", body=b"%d" % number + BODY), queue_id=0)
    store.get("orders", 0, 0)
    store.flush()


def log_files(store):
    return sorted((store.path / "commitlog").iterdir())


def age(store, clock, hours):
    changed_s = (clock.now_ms() - hours * HOUR_MS) / 1000
    for path in log_files(store):
        os.utime(path, (changed_s, changed_s))


def run_round(store, clock):
    clock.advance_ms(60_000)
    store._engine.retention.run_once()
    return int(store.info()["deletedLogFiles"])


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "deleted"),
    [
        ({}, 0),
        ({"flush_disk_type": "SYNC_FLUSH"}, 0),
        ({"file_reserved_time": 24}, 3),
        ({"file_reserved_time": 2000}, 0),
        ({"auto_delete_enable": True}, 3),
        ({"file_reserved_time": 24, "auto_delete_enable": False}, 0),
    ],
)
def test_program_that_did_not_ask_keeps_every_message(open_small, clock, options, deleted):
    store = open_small(**options)
    fill(store, 3)
    age(store, clock, 1000)
    assert run_round(store, clock) == deleted
    assert store.min_offset("orders", 0) == deleted * PER_FILE


@pytest.mark.parametrize(
    ("text", "is_automatic", "hours"),
    [
        ("brokerName = a\n", True, {4}),
        ("deleteWhen = 01;13\nfileReservedTime = 48\n", True, {1, 13}),
    ],
)
def test_broker_conf_means_what_it_means_to_a_broker(
    open_small, tmp_path, text, is_automatic, hours
):
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    options = open_small(conf).options
    assert options.auto_delete_enable is options.disk_ratio_enable is is_automatic
    assert (options.delete_hours, options.disk_free_refuse_bytes) == (hours, 0)


@pytest.mark.parametrize("conf", ['{"brokerName": "a"}', {"brokerName": "a"}])
def test_mapping_of_other_options_is_no_broker_conf(open_small, conf):
    options = open_small(conf).options
    assert not options.auto_delete_enable
    assert options.disk_free_refuse_bytes == 16 << 20


def test_age_shorter_than_a_delay_may_be_is_doubted(open_small, caplog):
    open_small(mapped_file_size_commit_log=8 << 20, file_reserved_time=24)
    assert "fileReservedTime: a message may be delayed by 72 hours" in caplog.text


def test_nothing_said_raises_no_doubt(tmp_path, caplog):
    rocketlake.open_store(tmp_path / "store").close()
    assert "doubtful" not in caplog.text


# --- asked ----------------------------------------------------------------------------------------


def test_program_deletes_by_hand(open_small, clock):
    store = open_small()
    fill(store, 4)
    age(store, clock, 30)
    assert store.delete_expired().files == 0
    assert store.delete_expired(hours=31).files == 0
    deleted = store.delete_expired(hours=29.5)
    assert (deleted.files, deleted.size) == (4, 4 * FILE_SIZE)
    assert store.min_offset("orders", 0) == 4 * PER_FILE
    fill(store, 2)
    assert store.delete_expired(hours=0).files == 2
    for hours in (-1, float("nan")):
        with pytest.raises(ValueError, match="hours"):
            store.delete_expired(hours=hours)
    store.close()
    with pytest.raises(StoreClosedError):
        store.delete_expired()


def test_program_deletes_by_hand_with_asyncio(tmp_path):
    async def main():
        async with rocketlake.open_store_async(tmp_path / "store", **SMALL) as store:
            fill(store.store, 2)
            return (await store.delete_expired(hours=0)).files

    assert asyncio.run(main()) == 2


# --- what groups are told -------------------------------------------------------------------------


def test_group_is_told_what_went_before_it_came(open_small, caplog):
    store = open_small()
    fill(store, 4)
    consumer = store.consumer("billing", "orders", timeout=0)
    assert [m.queue_offset for m in consumer.poll(3)] == [0, 1, 2]
    consumer.commit()
    consumer.close()
    store.delete_expired(hours=0)
    (progress,) = (p for p in store.progress("billing") if p.queue_id == 0)
    first = 4 * PER_FILE
    assert (progress.offset, progress.min_offset, progress.missed) == (3, first, first - 3)
    assert progress.lag == 1
    with rocketlake.open_store(store.path, read_only=True) as reader:
        store.flush()
        assert sum(p.missed for p in reader.progress("billing")) == first - 3
    consumer = store.consumer("billing", "orders", timeout=0)
    assert [message.queue_offset for message in consumer] == [first]
    assert consumer.missed == [Missed(0, 3, first)]
    assert [missed.count for missed in consumer.missed] == [first - 3]
    line = f"group=billing topic=orders queue=0 count={first - 3} from=3 to={first}"
    assert caplog.text.count(line) == 1
    assert sum(p.missed for p in store.progress("billing")) == 0


def test_consumer_that_is_reading_goes_on_where_the_queue_begins(open_small):
    store = open_small()
    fill(store, 6)
    consumer = store.consumer("billing", "orders", timeout=0, batch=4)
    seen = []
    for message in consumer:
        seen.append(message.queue_offset)
        if message.queue_offset == 5:
            store.delete_expired(hours=0)
    # What was read ahead is still handed out.
    first = 6 * PER_FILE
    assert seen == [*range(8), first]
    assert consumer.missed == [Missed(0, 8, first)]


def test_gap_that_is_met_piece_by_piece_is_told_as_one(open_small):
    """Log files are gone, and queues have not followed yet."""
    store = open_small()
    fill(store, 5)
    consumer = store.consumer("billing", "orders", timeout=0)
    files = store._engine.log.files
    files.delete_expired(Expiry(reserved_ms=0, pause_ms=0), lambda _: False, is_forced=True)
    first = 5 * PER_FILE
    assert store.min_offset("orders", 0) == 0
    assert [message.queue_offset for message in consumer] == [first]
    assert consumer.missed == [Missed(0, 0, first)]
