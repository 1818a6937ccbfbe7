"""A store as a replica: raw bytes, and the confirmed end."""

import threading

import pytest
from replica_bench import bodies, fill, log_bytes, send
from store_bench import open_engine, read, request

from rocketlake.errors import StoreClosedError
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import PutStatus
from rocketlake.store.options import BrokerRole
from support.manual_clock import ManualClock

PLAIN = Message(topic="T", body=b"plain")
SLAVE, PRIMARY = BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER
REFUSED = PutStatus.SERVICE_NOT_AVAILABLE


# --- raw bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [37, 4096, 1 << 30])
def test_bytes_of_a_primary_make_the_same_log_and_queues(primary, replica, size):
    fill(primary)
    data = log_bytes(primary)
    send(data, replica, size=size)
    assert log_bytes(replica) == data
    for topic in ("T", "U"):
        assert bodies(replica, topic) == bodies(primary, topic)


@pytest.mark.parametrize("files", [0, 1, 3])
def test_empty_log_begins_where_any_file_begins(primary, replica, files):
    fill(primary, 200)
    start = files * (16 << 10)
    send(log_bytes(primary, start), replica, start)
    assert replica.log_bounds() == (start, primary.log.wrote_where)
    expected = [m.queue_offset for m in read(primary) if m.physical_offset >= start]
    assert replica.queue_bounds(QueueKey("T", 0)) == (expected[0], expected[-1] + 1)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [(1, "no file of 16384 bytes begins at 1"), (-16384, "no file"), (5000, "begins at 5000")],
)
def test_empty_log_refuses_other_places(replica, offset, reason):
    done = replica.append_raw(offset, b"abc")
    assert not done.is_whole
    assert reason in done.reason
    assert replica.log.files.files == ()


@pytest.mark.parametrize("shift", [-16384, -1, 1, 16384])
def test_bytes_for_another_place_are_refused_with_the_place(primary, replica, shift):
    fill(primary, 10)
    data = log_bytes(primary)
    send(data, replica)
    done = replica.append_raw(len(data) + shift, b"abc")
    assert done.end == len(data)
    assert done.reason == f"the log ends at {len(data)}, not at {len(data) + shift}"
    assert log_bytes(replica) == data


def test_store_that_takes_puts_takes_no_raw_bytes(primary):
    done = primary.append_raw(0, b"abc")
    assert "only a replica" in done.reason or "for a replica" in done.reason
    assert primary.log.wrote_where == 0


def test_nothing_and_a_closed_store_are_refused(tmp_path):
    store = open_engine(tmp_path, broker_role="SLAVE")
    assert store.append_raw(0, b"").reason == "there are no bytes"
    store.close()
    with pytest.raises(StoreClosedError):
        store.append_raw(0, b"abc")


def test_full_disk_is_the_reason_and_what_fits_stays(primary, replica, monkeypatch):
    fill(primary)
    data = log_bytes(primary)
    send(data[:16384], replica)
    monkeypatch.setattr(replica.log.files, "last_file", lambda create_at: None)
    done = replica.append_raw(16384, data[16384:])
    assert (done.end, done.is_whole) == (16384, False)
    assert "could not be made" in done.reason
    monkeypatch.undo()
    send(data[16384:], replica, 16384)
    assert log_bytes(replica) == data


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_raw_bytes_wake_dispatch_and_flush_and_listeners(primary, tmp_path, flush):
    fill(primary, 5, ["T"])
    arrived, appended = threading.Event(), []

    class Listener:
        def arrived(self, arrivals):
            arrived.set()

        def appended(self):
            appended.append(store.log.wrote_where)

    with open_engine(tmp_path, broker_role="SLAVE", flush_disk_type=flush) as store:
        store.add_listener(Listener())
        store.add_append_listener(Listener())
        send(log_bytes(primary), store)
        assert arrived.wait(5)
        assert appended == [primary.log.wrote_where]


@pytest.mark.parametrize(("version", "is_told"), [("5.3", True), ("4.9", False)])
def test_replica_tells_arrivals_as_its_release_does(primary, tmp_path, version, is_told):
    fill(primary, 5, ["T"])
    seen = []

    class Listener:
        def arrived(self, arrivals):
            seen.extend(arrival.next_offset for arrival in arrivals)

    with open_engine(tmp_path, broker_role="SLAVE", compat_version=version) as store:
        store.add_listener(Listener())
        send(log_bytes(primary), store)
        store.catch_up()
    assert bool(seen) is is_told


def test_checkpoint_speaks_of_raw_records_once_they_are_flushed(tmp_path):
    clock = ManualClock()
    with open_engine(tmp_path / "primary", clock=clock) as primary:
        fill(primary, 20)
        clock.advance_ms(5000)
        last = primary.put(request())
        data = log_bytes(primary)
    replica = open_engine(tmp_path / "replica", broker_role="SLAVE")
    send(data, replica, size=100)
    replica.close()
    found = Checkpoint.decode((tmp_path / "replica" / "checkpoint").read_bytes())
    assert found.physical_timestamp == last.store_timestamp
    assert found.queue_timestamp == last.store_timestamp
    assert not (tmp_path / "replica" / "abort").exists()


def test_replica_counts_what_it_dispatches_as_put(primary, replica):
    fill(primary, 30)
    send(log_bytes(primary), replica)
    replica.catch_up()
    for topic in ("T", "U"):
        ours, theirs = replica.stats.topics[topic], primary.stats.topics[topic]
        assert (ours.count, ours.size) == (theirs.count, theirs.size)


def test_part_of_a_record_waits_for_the_rest(primary, replica):
    fill(primary, 4, ["T"])
    data = log_bytes(primary)
    send(data[:-7], replica)
    assert sum(map(len, bodies(replica))) == 3
    send(data[-7:], replica, len(data) - 7)
    assert bodies(replica) == bodies(primary)


# --- the confirmed end --------------------------------------------------------------------------


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_readers_see_the_least_of_flushed_and_replicated(tmp_path, flush):
    with open_engine(tmp_path, flush_disk_type=flush) as store:
        receipts = [store.put(request(body=b"%d" % n)) for n in range(4)]
        ends = [receipt.physical_offset + receipt.size for receipt in receipts]
        assert store.log.confirm_offset == ends[-1]
        store.confirm_up_to(ends[1])
        assert store.log.confirm_offset == ends[1]
        store.confirm_up_to(1 << 40)
        assert store.log.confirm_offset == ends[-1]
        future = store.put_async(request(wait=False))
        assert future.result(0).is_ok
        if flush == "SYNC_FLUSH":
            assert store.log.confirm_offset <= store.log.files.flushed_where
        store.flush()
        assert store.log.confirm_offset == store.log.wrote_where


def test_messages_behind_the_confirmed_end_are_seen_when_it_moves(tmp_path):
    woken = threading.Event()

    class Listener:
        def arrived(self, arrivals):
            if arrivals[-1].next_offset == 3:
                woken.set()

    with open_engine(tmp_path) as store:
        store.confirm_up_to(0)
        store.add_listener(Listener())
        receipts = [store.put(request(body=b"%d" % n)) for n in range(3)]
        assert read(store) == []
        store.confirm_up_to(receipts[1].physical_offset)
        assert [m.body for m in read(store)] == [b"0"]
        store.confirm_up_to(None)
        assert woken.wait(5)


def test_confirmed_end_is_kept_in_the_checkpoint_and_not_beyond_the_disk(tmp_path):
    store = open_engine(tmp_path)
    receipts = [store.put(request(body=b"%d" % n)) for n in range(3)]
    store.confirm_up_to(receipts[2].physical_offset)
    store.close()
    found = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert found.confirm_offset == receipts[2].physical_offset


def test_store_without_replication_writes_no_confirmed_end(tmp_path):
    store = open_engine(tmp_path)
    store.put(request())
    store.close()
    assert Checkpoint.decode((tmp_path / "checkpoint").read_bytes()).confirm_offset == 0
