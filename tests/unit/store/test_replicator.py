"""Puts and replicas: what is asked when, and what a put answers."""

from concurrent.futures import CancelledError, Future

import pytest
from store_bench import batch, open_engine, read, request

from rocketlake.errors import FlushFailedError, StorePoisonedError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.model.message import Message
from rocketlake.store.api import PutStatus, ReplicaAnswer
from rocketlake.store.options import BrokerRole
from support.manual_clock import ManualClock

OK = PutStatus.PUT_OK
PLAIN = Message(topic="T", body=b"plain")
SYNC_MASTER = {"broker_role": "SYNC_MASTER"}


class Replicator:
    """Answers what a test says, and remembers the ends it was asked about."""

    def __init__(self, *, checked=OK, asked=OK):
        self.checked = checked
        self.asked = asked
        self.ends = []

    def check(self, end_offset):
        return self._answer(self.checked)

    def ask(self, end_offset, *, timeout_ms):
        self.ends.append(end_offset)
        return self._answer(self.asked)

    @staticmethod
    def _answer(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer


WAYS = {
    "put": lambda store: store.put(request()),
    "plain": lambda store: store.put_plain(PLAIN, 0),
    "future": lambda store: store.put_async(request()).result(5),
    "plain future": lambda store: store.put_plain_async(PLAIN, 0).result(5),
    "batch": lambda store: store.put_batch(batch([b"a", b"b"])),
    "batch future": lambda store: store.put_batch_async(batch([b"a", b"b"])).result(5),
}


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def store(tmp_path, request):
    opened = open_engine(tmp_path, flush_disk_type=request.param, broker_role="SYNC_MASTER")
    opened.put_plain(PLAIN, 0)  # the queue has its frame: what follows takes the short way
    yield opened
    opened.close()


@pytest.fixture(params=WAYS)
def put(request):
    return WAYS[request.param]


@pytest.mark.parametrize(
    "status",
    [
        PutStatus.SLAVE_NOT_AVAILABLE,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
    ],
)
@pytest.mark.parametrize("is_later", [False, True])
def test_put_ends_with_what_replicas_say(store, put, status, is_later):
    answer = status
    if is_later:
        answer = Future()
        answer.set_result(status)
    replicator = Replicator(asked=answer)
    store.set_replicator(replicator)
    receipt = put(store)
    assert receipt.status is status
    assert "replica" in receipt.reason
    assert receipt.is_ok
    assert replicator.ends == [receipt.physical_offset + receipt.size]


@pytest.mark.parametrize("is_later", [False, True])
def test_put_ends_with_the_words_of_replicas(store, put, is_later):
    answer = ReplicaAnswer(PutStatus.FLUSH_SLAVE_TIMEOUT, "replica b is 9 bytes behind")
    wanted = (answer.status, answer.reason)
    if is_later:
        said, answer = answer, Future()
        answer.set_result(said)
    store.set_replicator(Replicator(asked=answer))
    receipt = put(store)
    assert (receipt.status, receipt.reason) == wanted
    refusal = ReplicaAnswer(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, "1 of 2 replicas are there")
    store.set_replicator(Replicator(checked=refusal))
    receipt = put(store)
    assert (receipt.status, receipt.reason) == (refusal.status, refusal.reason)
    store.set_replicator(Replicator(checked=ReplicaAnswer(OK), asked=ReplicaAnswer(OK)))
    assert put(store).status is OK


def test_too_few_replicas_refuse_before_the_append(store, put):
    end = store.log.wrote_where
    status = PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    store.set_replicator(Replicator(checked=status))
    receipt = put(store)
    assert (receipt.status, receipt.is_ok) == (status, False)
    assert store.log.wrote_where == end


@pytest.mark.parametrize("error", [OSError("no route"), CancelledError()])
@pytest.mark.parametrize("is_later", [False, True])
def test_replicator_that_fails_behind_the_append_gives_a_status(store, put, error, is_later):
    answer = error
    if is_later:
        answer = Future()
        answer.set_exception(error)
    store.set_replicator(Replicator(asked=answer))
    receipt = put(store)
    assert (receipt.status, receipt.is_ok) == (PutStatus.UNKNOWN_ERROR, True)
    assert receipt.reason == f"the replicator failed: {error!r}"


def test_future_that_the_replicator_cancels_gives_a_status(store, put):
    answer = Future()
    answer.cancel()
    store.set_replicator(Replicator(asked=answer))
    assert put(store).status is PutStatus.UNKNOWN_ERROR


class Ended(BaseException):
    """What is no Exception, as `sys.exit` raises."""


@pytest.mark.parametrize("ending", ["base", "none", "text"])
def test_future_that_ends_in_an_odd_way_gives_a_status(store, put, ending):
    answer = Future()
    if ending == "base":
        answer.set_exception(Ended())
    else:
        answer.set_result(None if ending == "none" else "PUT_OK")
    store.set_replicator(Replicator(asked=answer))
    receipt = put(store)
    assert (receipt.status, receipt.is_ok) == (PutStatus.UNKNOWN_ERROR, True)


def test_answer_that_is_none_gives_a_status(store, put):
    store.set_replicator(Replicator(asked=None))
    assert put(store).status is PutStatus.UNKNOWN_ERROR


def test_replicator_that_fails_before_the_append_refuses(store, put):
    end = store.log.wrote_where
    store.set_replicator(Replicator(checked=OSError("no route")))
    receipt = put(store)
    assert (receipt.status, receipt.is_ok) == (PutStatus.UNKNOWN_ERROR, False)
    assert "no route" in receipt.reason
    assert store.log.wrote_where == end


def test_answer_may_come_later(store):
    later = Future()
    replicator = Replicator(asked=later)
    store.set_replicator(replicator)
    future = store.put_async(request())
    store.flush()
    assert not future.done()
    later.set_result(OK)
    assert future.result(5).status is OK
    assert replicator.ends == [store.log.wrote_where]


def test_message_that_does_not_wait_asks_no_replica(store):
    replicator = Replicator(
        checked=PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, asked=PutStatus.FLUSH_SLAVE_TIMEOUT
    )
    store.set_replicator(replicator)
    assert store.put(request(wait=False)).status is OK
    assert store.put(request(properties={"WAIT": "false"})).status is OK
    assert store.put_batch(batch([b"a"], fields={"wait": False})).status is OK
    assert replicator.ends == []


def test_plain_puts_keep_the_short_way(store, monkeypatch):
    store.set_replicator(Replicator())
    monkeypatch.setattr(store._putter, "put", None)
    assert store.put_plain(PLAIN, 0).status is OK
    assert store.put_plain_async(PLAIN, 0).result(5).status is OK


@pytest.fixture
def before_sync(monkeypatch):
    """Return a list of calls that are made before a file of the log is synced."""
    calls = []
    sync = MappedFile.sync

    def sync_behind_calls(file):
        if "commitlog" in str(file.path):
            for call in calls:
                call(file)
        sync(file)

    monkeypatch.setattr(MappedFile, "sync", sync_behind_calls)
    return calls


def test_replicas_are_asked_while_the_disk_works(tmp_path, before_sync):
    with open_engine(tmp_path, flush_disk_type="SYNC_FLUSH", **SYNC_MASTER) as store:
        replicator = Replicator()
        store.set_replicator(replicator)
        asked = []
        before_sync.append(lambda _: asked.append(len(replicator.ends)))
        store.put(request())
        assert asked == [1]


def test_close_completes_puts_whose_replicas_never_answer(tmp_path):
    store = open_engine(tmp_path, **SYNC_MASTER)
    store.set_replicator(Replicator(asked=Future()))
    future = store.put_async(request())
    store.close()
    assert future.result(0).status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_put_whose_replicas_never_answer_ends_at_its_time(tmp_path):
    clock = ManualClock()
    with open_engine(tmp_path, clock=clock, slave_timeout=100, **SYNC_MASTER) as store:
        store.set_replicator(Replicator(asked=Future()))
        future = store.put_async(request())
        watcher = store.parts.durability.watcher
        watcher.run_once()
        assert not future.done()
        clock.advance_ms(6_000)
        watcher.run_once()
        assert future.result(0).status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_flush_that_fails_is_told_whatever_replicas_say(tmp_path, put, before_sync):
    def fail(file):
        raise FlushFailedError(str(file.path), "I/O error")

    store = open_engine(tmp_path, flush_disk_type="SYNC_FLUSH", **SYNC_MASTER)
    store.set_replicator(Replicator())
    before_sync.append(fail)
    with pytest.raises(StorePoisonedError):
        put(store)
    with pytest.raises(StorePoisonedError):
        store.close()


def test_replicas_are_asked_by_a_sync_master_alone(tmp_path, put):
    """As RocketMQ does; the role may change while the store runs."""
    with open_engine(tmp_path) as store:
        replicator = Replicator(checked=PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        store.set_replicator(replicator)
        store.put_plain(PLAIN, 0)
        assert put(store).status is OK
        store.change_role(BrokerRole.SYNC_MASTER)
        assert put(store).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        store.change_role(BrokerRole.ASYNC_MASTER)
        assert put(store).status is OK
        assert replicator.ends == []


@pytest.mark.parametrize(
    ("method", "wrong", "error"),
    [
        ("set_replicator", object(), "no method check"),
        ("add_append_listener", 5, "no method appended"),
        ("add_role_listener", None, "no method role_changed"),
        ("confirm_up_to", "1", "wanted an int"),
        ("confirm_up_to", True, "wanted an int"),
    ],
)
def test_what_is_no_part_is_refused_at_once(store, method, wrong, error):
    with pytest.raises(TypeError, match=error):
        getattr(store, method)(wrong)
    assert store.put_plain(PLAIN, 0).is_ok


@pytest.mark.parametrize("role", ["MASTER", None, 1])
def test_role_that_is_none_is_refused(store, role):
    with pytest.raises(ValueError, match="not a valid BrokerRole"):
        store.change_role(role)
    assert store.role is BrokerRole.SYNC_MASTER


class TestSyncMasterAlone:
    """brokerRole=SYNC_MASTER, and nothing replicates; checked with RocketMQ in tests/interop."""

    @pytest.mark.parametrize(
        ("options", "status"),
        [
            ({}, OK),
            ({"in_sync_replicas": 2, "total_replicas": 2}, PutStatus.FLUSH_SLAVE_TIMEOUT),
            ({"in_sync_replicas": 2, "duplication_enable": True}, OK),
            ({"compat_version": "4.9"}, PutStatus.SLAVE_NOT_AVAILABLE),
        ],
    )
    def test_put_answers_as_the_release(self, tmp_path, put, options, status):
        with open_engine(tmp_path, broker_role="SYNC_MASTER", **options) as store:
            store.log.set_confirm_offset(1 << 40)
            store.put_plain(PLAIN, 0)
            receipt = put(store)
            assert receipt.status is status
            assert receipt.is_ok
            assert ("no replica follows the log" in receipt.reason) is (status is not OK)
            assert store.put(request(wait=False)).status is OK

    def test_replicator_answers_once_there_is_one(self, tmp_path, put):
        options = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2}
        with open_engine(tmp_path, **options) as store:
            store.set_replicator(Replicator())
            assert put(store).status is OK
            store.set_replicator(None)
            assert put(store).status is PutStatus.FLUSH_SLAVE_TIMEOUT


class Appended:
    """Counts the calls, and the end of the log at each."""

    def __init__(self, store, error=None):
        self.store = store
        self.error = error
        self.ends = []

    def appended(self):
        self.ends.append(self.store.log.wrote_where)
        if self.error is not None:
            raise self.error


def test_append_listener_hears_of_every_way_of_putting(store, put):
    listener = Appended(store)
    store.add_append_listener(listener)
    put(store)
    assert listener.ends == [store.log.wrote_where]
    store.put(request(wait=False))
    assert listener.ends[-1] == store.log.wrote_where
    store.remove_append_listener(listener)
    put(store)
    assert len(listener.ends) == 2


def test_append_listener_hears_before_anything_is_confirmed(tmp_path):
    with open_engine(tmp_path) as store:
        store.log.set_confirm_offset(0)
        listener = Appended(store)
        store.add_append_listener(listener)
        receipt = store.put(request())
        assert listener.ends == [receipt.size]
        assert read(store) == []


def test_append_listener_that_fails_does_not_fail_the_put(store, put, caplog):
    store.add_append_listener(Appended(store, OSError("broken")))
    assert put(store).status is OK
    assert "append listener failed" in caplog.text
