"""Puts of a server: from a client's fields, and for callers that must not wait."""

import re
import threading
from pathlib import Path

import pytest
from msgspec import structs
from store_bench import batch, open_engine, read, request

from rocketlake.model.endpoint import Endpoint
from rocketlake.model.flags import TransactionType
from rocketlake.store.api import PutReceipt, PutStatus, SendFields
from rocketlake.store.put.putter import Putter
from rocketlake.store.put.server_put import ServerProperties

HOST = Endpoint.parse("192.168.0.9:4321")
EDITS = ServerProperties(added={"CLUSTER": "c", "MSG_REGION": "r"}, dropped=["POP_CK"])
OK = PutStatus.PUT_OK


def fields(body=b"body", properties="KEYS\x01k\x02TAGS\x01t\x02", queue_id=0, **more):
    values = {"topic": "T", "born_host": HOST.encode(), "born_timestamp": 5, **more}
    return SendFields(body=body, properties=properties, queue_id=queue_id, **values)


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def store(tmp_path, request):
    opened = open_engine(tmp_path, flush_disk_type=request.param)
    opened.edit_properties(EDITS)
    yield opened
    opened.close()


def answered(answer):
    return answer if isinstance(answer, PutReceipt) else answer.result(10)


WAYS = {
    "fields": lambda store, one: store.put_fields(one),
    "non-blocking": lambda store, one: answered(store.non_blocking.put_fields(one)),
}


@pytest.fixture(params=WAYS)
def put(request):
    return WAYS[request.param]


def test_message_has_what_its_client_said_and_what_the_server_sets(store, put):
    for _ in range(2):  # by the long way, which makes the queue's frame, and by the short one
        receipt = put(store, fields(flag=3, sys_flag=0x700, reconsume_times=2))
        assert receipt.status is OK
    for message in read(store):
        assert message.properties == {"KEYS": "k", "TAGS": "t", "CLUSTER": "c", "MSG_REGION": "r"}
        assert (message.body, message.flag, message.sys_flag) == (b"body", 3, 0x700)
        assert (message.born_host, message.born_timestamp) == (HOST, 5)
        assert message.reconsume_times == 2
    assert [m.queue_offset for m in read(store)] == [0, 1]
    assert store.stats.topics["T"].count == 2


def test_second_message_takes_the_short_way(store, put, monkeypatch):
    put(store, fields())
    monkeypatch.setattr(Putter, "append", None)
    assert put(store, fields(memoryview(b"xyz"))).status is OK
    assert read(store)[1].body == b"xyz"


@pytest.mark.parametrize(
    "properties", ["CLUSTER\x01other\x02POP_CK\x01x\x02a\x01b", "a\x01b\x02name\x02POP_CK\x01x"]
)
def test_both_ways_edit_properties_alike(store, put, properties):
    for _ in range(2):
        put(store, fields(properties=properties))
    found = [message.properties for message in read(store)]
    assert found == [{"a": "b", "CLUSTER": "c", "MSG_REGION": "r"}] * 2


def test_message_that_does_not_wait_is_answered_before_the_disk_has_it(store, put):
    put(store, fields())
    receipt = put(store, fields(properties="WAIT\x01false\x02"))
    assert receipt.status is OK
    assert read(store)[1].properties["WAIT"] == "false"


def test_half_message_enters_no_queue(store, put):
    put(store, fields())
    receipt = put(store, fields(sys_flag=int(TransactionType.PREPARED)))
    assert (receipt.status, receipt.queue_offset) == (OK, 0)
    assert len(read(store)) == 1


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (fields(bytes(9 << 10)), PutStatus.MESSAGE_ILLEGAL),
        (fields(properties="a\x01" + "b" * 32_760), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (fields(topic="t" * 200), PutStatus.MESSAGE_ILLEGAL),
        (fields(properties="INNER_NUM\x012"), PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_refusals_are_those_of_every_put(store, put, one, status):
    put(store, fields())
    end = store.log.wrote_where
    receipt = put(store, one)
    assert (receipt.status, receipt.is_ok) == (status, False)
    assert receipt.reason
    assert store.log.wrote_where == end


@pytest.mark.parametrize("host", [b"", bytes(7), bytes(21)])
def test_host_of_another_size_is_an_error(store, put, host):
    put(store, fields())
    with pytest.raises(ValueError, match=r"host|bytes"):
        put(store, fields(born_host=host))
    assert len(read(store)) == 1


def test_files_end_and_begin_in_the_middle(store, put):
    bodies = [b"%04d" % number * 200 for number in range(60)]
    answers = [put(store, fields(body)) for body in bodies]
    assert {receipt.status for receipt in answers} == {OK}
    assert len(store.log.files.files) > 2
    assert [m.body for m in read(store)] == bodies


def test_body_that_changes_while_it_is_copied_has_its_checksum(tmp_path):
    """A thread that reads from a file into the body needs no interpreter lock for that."""
    size, stop = 1 << 20, threading.Event()
    body = memoryview(bytearray(size))
    ones = tmp_path / "ones"
    ones.write_bytes(b"\1" * size)

    def fill():
        with ones.open("rb", buffering=0) as one, Path("/dev/zero").open("rb", buffering=0) as zero:
            while not stop.is_set():
                one.seek(0)
                one.readinto(body)
                zero.readinto(body)

    sizes = {"mapped_file_size_commit_log": 64 << 20, "max_message_size": 2 << 20}
    with open_engine(tmp_path / "store", **sizes) as store:
        store.put_fields(fields())
        filler = threading.Thread(target=fill)
        filler.start()
        receipts = [store.put_fields(fields(body)) for _ in range(40)]
        stop.set()
        filler.join()
        assert all(store.message_at(receipt.physical_offset) for receipt in receipts)


# --- callers that must not wait -------------------------------------------------------------------


def test_append_lock_is_not_waited_for(store):
    store.put_fields(fields())
    putter = store.non_blocking
    with store.log.pause():
        answers = [putter.put_fields(fields(b"%d" % n)) for n in range(5)]
        answers.append(putter.put(request()))
        answers.append(putter.put_batch(batch([b"a", b"b"])))
        assert not any(answer.done() for answer in answers)
        assert putter.waiting_count == 7
    assert {answered(answer).status for answer in answers} == {OK}
    bodies = [message.body for message in read(store)]
    assert bodies == [b"body", *(b"%d" % n for n in range(5)), b"body", b"a", b"b"]


def test_body_that_has_to_wait_is_the_stores_own(store):
    """A server reads the next request into the same memory."""
    store.put_fields(fields())
    body = bytearray(b"AAAA")
    with store.log.pause():
        answer = store.non_blocking.put_fields(fields(memoryview(body)))
        body[:] = b"BBBB"
    assert answered(answer).status is OK
    assert read(store)[1].body == b"AAAA"


def test_hook_that_ends_its_thread_ends_no_other_put(store):
    class Hook:
        name = "exit"

        def before_put(self, request):
            if request.message.body == b"bad":
                raise SystemExit(3)

    store.put_fields(fields())
    store.add_hook(Hook())
    answers = [store.non_blocking.put_fields(fields(body)) for body in (b"a", b"bad", b"c")]
    assert isinstance(answers[1].exception(10), SystemExit)
    assert [answered(answers[i]).status for i in (0, 2)] == [OK, OK]


def test_file_that_is_not_ready_is_not_waited_for(store, monkeypatch):
    store.put_fields(fields())
    gate, files = threading.Event(), store.log.files
    grow = files.last_file

    def wait_for_file(create_at=None):
        if files.files[-1].is_full:
            assert gate.wait(10)
        return grow(create_at)

    monkeypatch.setattr(files, "last_file", wait_for_file)
    answers = []
    while not store.non_blocking.waiting_count:
        answers.append(store.non_blocking.put_fields(fields(bytes(1000))))
    more = [store.non_blocking.put_fields(fields(b"%d" % n)) for n in range(3)]
    assert not any(answer.done() for answer in more)
    gate.set()
    assert {answered(answer).status for answer in answers + more} == {OK}
    assert [message.body for message in read(store)][-3:] == [b"0", b"1", b"2"]


def test_disk_is_not_waited_for(tmp_path, monkeypatch):
    with open_engine(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        store.put_fields(fields())
        gate = threading.Event()
        flush = store.log.files.flush

        def slow_flush(least_pages):
            assert gate.wait(10)
            return flush(least_pages)

        monkeypatch.setattr(store.log.files, "flush", slow_flush)
        answers = [store.non_blocking.put_fields(fields()) for _ in range(3)]
        assert not any(answer.done() for answer in answers)
        gate.set()
        assert {answer.result(10).status for answer in answers} == {OK}


def test_put_that_needs_no_waiting_is_answered_at_once(tmp_path):
    with open_engine(tmp_path) as store:
        store.put_fields(fields())
        assert isinstance(store.non_blocking.put_fields(fields()), PutReceipt)


def test_puts_of_each_caller_keep_their_order(store):
    """Some are appended at once, some behind a lock that another thread holds now and then."""
    stop = threading.Event()

    def hold():
        while not stop.is_set():
            with store.log.pause():
                stop.wait(0.001)

    holder = threading.Thread(target=hold)
    holder.start()
    answers = {}
    callers = []
    for queue_id in range(3):
        answers[queue_id] = own = []

        def call(queue_id=queue_id, own=own):
            for number in range(300):
                one = fields(b"%d" % number, queue_id=queue_id)
                own.append(store.non_blocking.put_fields(one))

        callers.append(threading.Thread(target=call))
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    stop.set()
    holder.join()
    for queue_id, own in answers.items():
        assert [answered(answer).queue_offset for answer in own] == list(range(300))
        assert [m.body for m in read(store, "T", queue_id)] == [b"%d" % n for n in range(300)]


def test_closed_store_refuses_what_waits_and_what_comes(tmp_path):
    store = open_engine(tmp_path)
    store.put_fields(fields())
    putter = store.non_blocking
    store.close()
    for answer in (putter.put_fields(fields()), putter.put(request())):
        receipt = answered(answer)
        assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "closed" in receipt.reason


def test_puts_that_wait_are_answered_when_the_store_is_closed(tmp_path):
    store = open_engine(tmp_path)
    store.put_fields(fields())
    lock = store.log.pause()
    with lock:
        answers = [store.non_blocking.put_fields(fields()) for _ in range(3)]
        closing = threading.Thread(target=store.close)
        closing.start()
    closing.join()
    statuses = {answered(answer).status for answer in answers}
    assert statuses <= {OK, PutStatus.SERVICE_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"topic": None}, "topic = None is NoneType; wanted str"),
        ({"topic": ["T"]}, "topic = ['T'] is list; wanted str"),
        ({"queue_id": "0"}, "queue_id = '0' is str; wanted int"),
        ({"queue_id": 1 << 40}, "queue_id = 1099511627776 does not fit into 32 bits"),
        ({"body": "text"}, "body = 'text' is str; wanted bytes, bytearray or memoryview"),
        ({"body": 7}, "body = 7 is int; wanted bytes"),
        ({"body": [1, 2]}, "body = [1, 2] is list; wanted bytes"),
        ({"properties": None}, "properties = None is NoneType; wanted str or bytes"),
        ({"born_host": "10.0.0.1:1"}, "born_host = '10.0.0.1:1' is str; wanted bytes"),
        ({"born_host": b"1"}, "born_host has 1 bytes; wanted 8 or 20"),
        ({"born_timestamp": 1.5}, "born_timestamp = 1.5 is float; wanted int"),
        ({"flag": None}, "flag = None is NoneType; wanted int"),
        ({"sys_flag": b""}, "sys_flag = b'' is bytes; wanted int"),
        ({"reconsume_times": "1"}, "reconsume_times = '1' is str; wanted int"),
    ],
)
def test_field_of_another_type_is_named_and_nothing_is_put(store, put, wrong, words):
    """A body of 7 was stored as seven zero bytes, and a list of numbers as their bytes."""
    assert put(store, fields()).is_ok  # the short way from now on
    end = store.log.wrote_where
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        put(store, structs.replace(fields(), **wrong))
    assert store.log.wrote_where == end


def test_what_are_no_fields_is_named(store, put):
    with pytest.raises(TypeError, match=r"fields = b'' is bytes; wanted SendFields"):
        put(store, b"")
