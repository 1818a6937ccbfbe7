"""A store as a replica: raw bytes, the confirmed end, and roles that change while it runs."""

import queue
import random
import threading

import pytest
from store_bench import open_engine, read, request

from rocketlake.errors import StoreClosedError, StoreError
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest, GetStatus, PutStatus
from rocketlake.store.options import BrokerRole
from support.manual_clock import ManualClock

PLAIN = Message(topic="T", body=b"plain")
SLAVE, PRIMARY = BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER
REFUSED = PutStatus.SERVICE_NOT_AVAILABLE


@pytest.fixture
def primary(tmp_path):
    with open_engine(tmp_path / "primary") as store:
        yield store


@pytest.fixture
def replica(tmp_path):
    with open_engine(tmp_path / "replica", broker_role="SLAVE") as store:
        yield store


def fill(store, count=60, topics=("T", "U")):
    for number in range(count):
        store.put(request(topics[number % len(topics)], b"%04d" % number * 60, number % 3))


def log_bytes(store, start=None, end=None):
    """Return all bytes of a log, from file to file."""
    where = store.log_bounds()[0] if start is None else start
    data = b""
    end = store.log.wrote_where if end is None else end
    while where < end:
        with store.log.slice(where) as held:
            data += bytes(held.view)
            where += held.size
    return data[: end - (store.log_bounds()[0] if start is None else start)]


def send(data, store, where=0, size=1 << 30):
    """Append bytes to a replica in pieces."""
    for at in range(0, len(data), size):
        done = store.append_raw(where + at, data[at : at + size])
        assert done.is_whole, done.reason
        assert done.end == where + min(at + size, len(data))


def bodies(store, topic="T"):
    return [[m.body for m in read(store, topic, queue_id)] for queue_id in range(3)]


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


# --- roles --------------------------------------------------------------------------------------


class Roles:
    def __init__(self):
        self.seen = []

    def role_changed(self, *, is_replica):
        self.seen.append(is_replica)


def test_replica_that_becomes_a_primary_counts_on_where_the_old_one_stopped(primary, replica):
    fill(primary)
    send(log_bytes(primary), replica)
    replica.change_role(PRIMARY)
    assert replica.role is PRIMARY
    for queue_id in range(3):
        receipts = [store.put(request("T", b"new", queue_id)) for store in (primary, replica)]
        places = [(r.status, r.queue_offset, r.physical_offset) for r in receipts]
        assert places[0] == places[1]
        assert receipts[1].queue_offset > 0
    assert bodies(replica) == bodies(primary)
    assert replica.append_raw(replica.log.wrote_where, b"abc").reason is not None


def test_slots_of_puts_before_the_change_get_the_new_numbers(tmp_path, primary):
    fill(primary, 6, ["T"])
    with open_engine(tmp_path / "other") as store:
        slot = store._putter.slot("T", 0)
        store.change_role(SLAVE)
        send(log_bytes(primary), store)
        store.change_role(PRIMARY)
        assert slot is store.parts.offsets.find("T", 0)
        assert slot.next_offset == 2


def test_rest_of_a_record_is_cut_before_puts_begin(primary, replica):
    fill(primary, 4, ["T"])
    data = log_bytes(primary)
    send(data[:-7], replica)
    replica.change_role(PRIMARY)
    receipt = replica.put(request("T", b"new", 0))
    assert receipt.is_ok
    assert [m.body for m in read(replica, "T", 0)][-1] == b"new"
    assert replica.log.wrote_where == receipt.physical_offset + receipt.size
    assert sum(map(len, bodies(replica))) == 4


def test_what_was_not_confirmed_is_dispatched_first(primary, replica):
    fill(primary, 6, ["T"])
    replica.confirm_up_to(0)
    send(log_bytes(primary), replica)
    assert bodies(replica) == [[], [], []]
    replica.change_role(PRIMARY)
    assert bodies(replica) == bodies(primary)
    assert replica.put(request("T", b"new", 0)).queue_offset == 2


def test_damaged_record_keeps_a_replica_from_becoming_a_primary(primary, replica):
    fill(primary, 6, ["T"])
    data = bytearray(log_bytes(primary))
    at = primary.get(GetRequest(topic="T", queue_id=2, offset=0)).messages[0].physical_offset
    for position in (0, 4, 84):  # neither its size nor its lengths tell where the next one is
        data[at + position] ^= 0x7F
    send(bytes(data), replica)
    with pytest.raises(StoreError, match=f"offset {at} of the log is damaged"):
        replica.change_role(PRIMARY)
    assert replica.role is SLAVE
    assert replica.put(request()).status is REFUSED
    assert replica.log.wrote_where == len(data)
    assert replica.append_raw(len(data), b"abc").is_whole


def test_damaged_size_is_not_taken_for_a_record_that_came_in_part(primary, replica):
    fill(primary, 120, ["T"])
    data = bytearray(log_bytes(primary))
    assert len(data) > 2 * (16 << 10)
    at = primary.get(GetRequest(topic="T", queue_id=2, offset=0)).messages[0].physical_offset
    data[at : at + 4] = (1 << 20).to_bytes(4, "big")  # beyond the end of the file
    data[at + 84] ^= 0x7F
    send(bytes(data), replica)
    replica.catch_up()
    with pytest.raises(StoreError, match=f"offset {at} of the log is damaged"):
        replica.change_role(PRIMARY)
    assert log_bytes(replica) == bytes(data)


def test_primary_that_becomes_a_replica_takes_no_more_puts(primary):
    fill(primary, 6, ["T"])
    primary.put_message(PLAIN, 0)
    roles = Roles()
    primary.add_role_listener(roles)
    end = primary.log.wrote_where
    primary.change_role(SLAVE)
    for receipt in (
        primary.put(request()),
        primary.put_message(PLAIN, 0),
        primary.put_plain_async(PLAIN, 0).result(5),
    ):
        assert receipt.status is REFUSED
        assert "replica" in receipt.reason
    assert primary.log.wrote_where == end
    primary.change_role(PRIMARY)
    assert primary.put_message(PLAIN, 0).physical_offset == end
    assert roles.seen == [True, False]


def test_readers_of_a_replica_keep_their_offsets(primary):
    fill(primary, 6, ["T"])
    beyond = GetRequest(topic="T", queue_id=0, offset=50)
    assert primary.get(beyond).next_offset == 2
    primary.change_role(SLAVE)
    for read_one in (primary.get, primary.get_raw):
        result = read_one(beyond)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 50)
    primary.change_role(PRIMARY)
    assert primary.get_raw(beyond).next_offset == 2


def test_role_that_the_store_has_changes_nothing(primary):
    roles = Roles()
    primary.add_role_listener(roles)
    primary.change_role(PRIMARY)
    assert roles.seen == []
    primary.change_role(BrokerRole.SYNC_MASTER)
    assert roles.seen == []
    assert primary.put(request()).status is PutStatus.PUT_OK


def test_sync_master_waits_for_replicas_from_the_next_put_on(tmp_path):
    with open_engine(tmp_path, in_sync_replicas=2, total_replicas=2) as store:
        assert store.put(request()).status is PutStatus.PUT_OK
        store.change_role(BrokerRole.SYNC_MASTER)
        assert store.put_message(PLAIN, 0).status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_no_put_is_lost_or_doubled_while_roles_change(primary):
    """Puts of several threads while the role changes: each is in the log, or was refused."""
    stop, stored, rng = threading.Event(), [], random.Random(3)

    def put(queue_id):
        number = 0
        while not stop.is_set():
            body = b"%d-%d" % (queue_id, number)
            message = Message(topic="T", body=body)
            receipt = primary.put_message(message, queue_id)
            if receipt.is_ok:
                stored.append((queue_id, receipt.queue_offset, body))
            else:
                assert receipt.status is REFUSED
            number += 1

    threads = [threading.Thread(target=put, args=(queue_id,)) for queue_id in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        primary.change_role(SLAVE)
        end = primary.log.wrote_where
        for _ in range(rng.randrange(200)):
            assert primary.log.wrote_where == end
        primary.change_role(PRIMARY)
    stop.set()
    for thread in threads:
        thread.join()
    for queue_id in range(3):
        expected = [body for queue, _, body in sorted(stored) if queue == queue_id]
        assert [m.body for m in read(primary, "T", queue_id)] == expected


def test_store_that_starts_as_a_replica_can_become_a_primary(tmp_path):
    with open_engine(tmp_path) as store:
        fill(store, 6, ["T"])
    with open_engine(tmp_path, broker_role="SLAVE") as store:
        assert store.put(request()).status is REFUSED
        store.change_role(PRIMARY)
        assert store.put(request("T", b"new", 0)).queue_offset == 2


@pytest.mark.parametrize("call", ["change_role", "truncate"])
def test_what_waits_for_dispatch_is_refused_in_its_thread(tmp_path, call):
    """A call that waited there would wait for itself."""
    told = queue.Queue()

    class Listener:
        def arrived(self, arrivals):
            try:
                getattr(store, call)(SLAVE if call == "change_role" else 0)
            except StoreError as error:
                told.put(str(error))

    with open_engine(tmp_path) as store:
        store.add_listener(Listener())
        store.put(request())
        assert f"{call} waits for dispatch" in told.get(timeout=10)
        assert store.put(request()).is_ok


def test_role_listener_cannot_change_the_role(primary):
    told = []

    class Listener:
        def role_changed(self, *, is_replica):
            try:
                primary.change_role(PRIMARY)
            except StoreError as error:
                told.append(str(error))

    primary.add_role_listener(Listener())
    primary.change_role(SLAVE)
    assert primary.role is SLAVE
    assert told == ["the role is being changed: a role listener cannot change it again"]


def test_record_that_is_confirmed_in_part_holds_up_no_put(tmp_path):
    with open_engine(tmp_path, mapped_file_size_commit_log=4096, max_message_size=2000) as store:
        receipt = store.put(request(body=bytes(1000)))
        store.confirm_up_to(receipt.physical_offset + receipt.size + 10)
        for _ in range(40):
            assert store.put(request(body=bytes(1000))).status is PutStatus.PUT_OK


def test_closed_store_has_no_other_role(tmp_path):
    store = open_engine(tmp_path)
    store.close()
    with pytest.raises(StoreClosedError):
        store.change_role(SLAVE)
