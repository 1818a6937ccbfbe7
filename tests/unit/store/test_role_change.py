"""Roles that change while a store runs: replicas that take over, primaries that step down."""

import queue
import random
import threading
from contextlib import suppress

import pytest
from replica_bench import bodies, fill, log_bytes, send
from store_bench import open_engine, read, request

from rocketlake.errors import StoreClosedError, StoreError
from rocketlake.files import background_service as service
from rocketlake.model.message import Message
from rocketlake.store.api import GetRequest, GetStatus, PutStatus
from rocketlake.store.dispatch import dispatcher as dispatch
from rocketlake.store.options import BrokerRole

PLAIN = Message(topic="T", body=b"plain")
SLAVE, PRIMARY = BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER
REFUSED = PutStatus.SERVICE_NOT_AVAILABLE


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


def damage(store, changes):
    """Change bytes of a log, as a disk may."""
    for offset, value in changes.items():
        file = store.log.files.find(offset)
        file.buffer[offset - file.base_offset] = value


def test_damaged_record_keeps_a_replica_from_becoming_a_primary(primary, replica):
    fill(primary, 6, ["T"])
    data = log_bytes(primary)
    at = primary.get(GetRequest(topic="T", queue_id=2, offset=0)).messages[0].physical_offset
    replica.confirm_up_to(0)
    send(data, replica)
    # Neither its size nor its lengths tell where the next one is.
    damage(replica, {at + place: data[at + place] ^ 0x7F for place in (0, 4, 84)})
    with pytest.raises(StoreError, match=f"offset {at} of the log is damaged"):
        replica.change_role(PRIMARY)
    assert replica.role is SLAVE
    assert replica.put(request()).status is REFUSED
    assert replica.log.wrote_where == len(data)


def test_damaged_size_is_not_taken_for_a_record_that_came_in_part(primary, replica):
    fill(primary, 120, ["T"])
    data = log_bytes(primary)
    assert len(data) > 2 * (16 << 10)
    at = primary.get(GetRequest(topic="T", queue_id=2, offset=0)).messages[0].physical_offset
    replica.confirm_up_to(0)
    send(data, replica)
    damage(replica, {at + 1: 0x10, at + 84: data[at + 84] ^ 0x7F})  # beyond the end of the file
    before = log_bytes(replica)
    with pytest.raises(StoreError, match=f"offset {at} of the log is damaged"):
        replica.change_role(PRIMARY)
    assert log_bytes(replica) == before


@pytest.mark.parametrize("step", [100, 1 << 20])
@pytest.mark.parametrize("place", [0, 4, 30, 84, 100])
def test_damaged_record_of_a_primary_is_refused_with_its_place(primary, replica, step, place):
    fill(primary, 60, ["T"])
    data = log_bytes(primary)
    at = primary.get(GetRequest(topic="T", queue_id=2, offset=5)).messages[0].physical_offset
    bad = bytearray(data)
    bad[at + place] ^= 0x7F
    where, done = 0, None
    while where < len(bad):
        done = replica.append_raw(where, bytes(bad[where : where + step]))
        if not done.is_whole:
            break
        where = done.end
    assert f"the record at {at} is damaged" in done.reason
    assert at <= done.end < at + 400
    assert replica.log.wrote_where == done.end
    if done.end == at:
        send(data[at:], replica, at, step)  # the bytes come again, and are good now
        assert bodies(replica) == bodies(primary)


def test_hole_of_zeros_in_raw_bytes_is_refused(primary, replica):
    fill(primary, 6, ["T"])
    data = log_bytes(primary)
    done = replica.append_raw(0, data + bytes(50))
    assert (done.end, done.is_whole) == (len(data), False)
    assert bodies(replica) == bodies(primary)


def test_promoted_replica_has_everything_after_a_restart(primary, tmp_path):
    """A damaged record that was let in would end the log at the next start."""
    fill(primary, 60, ["T"])
    bad = bytearray(log_bytes(primary))
    bad[-300] ^= 1
    with open_engine(tmp_path / "r", broker_role="SLAVE", flush_disk_type="SYNC_FLUSH") as replica:
        replica.append_raw(0, bytes(bad))
        replica.change_role(PRIMARY)
        for _ in range(3):
            assert replica.put(request("T", b"acknowledged", 1)).status is PutStatus.PUT_OK
        before = bodies(replica)
    with open_engine(tmp_path / "r") as again:
        assert bodies(again) == before


def test_primary_that_becomes_a_replica_takes_no_more_puts(primary):
    fill(primary, 6, ["T"])
    primary.put_plain(PLAIN, 0)
    roles = Roles()
    primary.add_role_listener(roles)
    end = primary.log.wrote_where
    primary.change_role(SLAVE)
    for receipt in (
        primary.put(request()),
        primary.put_plain(PLAIN, 0),
        primary.put_plain_async(PLAIN, 0).result(5),
    ):
        assert receipt.status is REFUSED
        assert "replica" in receipt.reason
    assert primary.log.wrote_where == end
    primary.change_role(PRIMARY)
    assert primary.put_plain(PLAIN, 0).physical_offset == end
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
        assert store.put_plain(PLAIN, 0).status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_no_put_is_lost_or_doubled_while_roles_change(primary):
    """Puts of several threads while the role changes: each is in the log, or was refused."""
    stop, stored, rng = threading.Event(), [], random.Random(3)

    def put(queue_id):
        number = 0
        while not stop.is_set():
            body = b"%d-%d" % (queue_id, number)
            message = Message(topic="T", body=body)
            receipt = primary.put_plain(message, queue_id)
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


@pytest.mark.parametrize("call", ["change_role", "truncate"])
def test_close_ends_behind_a_change_that_waits_for_a_stuck_listener(tmp_path, call, monkeypatch):
    monkeypatch.setattr(dispatch, "_STUCK_LOOK_S", 0.01)
    monkeypatch.setattr(service, "_CLOSE_MAX_S", 0.2)
    stuck, gate = threading.Event(), threading.Event()

    class Listener:
        def arrived(self, arrivals):
            stuck.set()
            gate.wait(30)

    store = open_engine(tmp_path, broker_role="SLAVE" if call == "change_role" else "ASYNC_MASTER")
    store.add_listener(Listener())
    with open_engine(tmp_path / "primary") as primary:
        fill(primary, 3, ["T"])
        if call == "change_role":
            send(log_bytes(primary), store)
        else:
            store.put(request())
    assert stuck.wait(10)

    def change():
        with suppress(StoreError):
            store.change_role(PRIMARY) if call == "change_role" else store.truncate(0)

    changing = threading.Thread(target=change)
    changing.start()
    with suppress(StoreError):
        store.close()
    assert not store.is_open
    gate.set()
    changing.join(20)
    assert not changing.is_alive()


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
