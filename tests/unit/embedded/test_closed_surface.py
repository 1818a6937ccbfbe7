"""A store that is closed, being closed, or copied by a fork: no method works, no byte changes.

The methods are found by reflection: one that is added later must be given a call here.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from embedded_fakes import WAIT_S

import rocketlake
from rocketlake import Message, ReadOnlyStore, Store, StoreClosedError
from rocketlake.embedded.aio import AsyncConsumer, AsyncStore
from rocketlake.embedded.bulk_store import BulkStore, RoutePlan, open_bulk
from rocketlake.embedded.consumer.consumer import Consumer
from rocketlake.store.api import AppendRequest, GetRequest
from rocketlake.store.log.topic_routes import TopicRoutes
from rocketlake.store.options import BrokerRole
from support import forks
from support.golden import sha256

Call = Callable[[Any], object]
NEW = Message(topic="new", body=b"new")
MORE = Message(topic="orders", body=b"more")

READS: dict[str, Call] = {
    "get": lambda s: s.get("orders", 0, 0),
    "columns": lambda s: s.columns("orders", 0, 0),
    "query": lambda s: s.query("orders", "k"),
    "message": lambda s: s.message("7F00000100002A9F0000000000000000"),
    "message_at": lambda s: s.message_at(0),
    "offset_by_time": lambda s: s.offset_by_time("orders", 0, 0),
    "min_offset": lambda s: s.min_offset("orders", 0),
    "max_offset": lambda s: s.max_offset("orders", 0),
    "topics": lambda s: s.topics(),
    "topic": lambda s: s.topic("orders"),
    "groups": lambda s: s.groups(),
    "progress": lambda s: s.progress("g"),
    "lag": lambda s: s.lag("g"),
    "require_open": lambda s: s.require_open(),
}
STORE: dict[str, Call] = {
    **READS,
    "put": lambda s: s.put(MORE),
    "put_async": lambda s: s.put_async(MORE).result(WAIT_S),
    "put_batch": lambda s: s.put_batch([MORE]),
    "put_batch_async": lambda s: s.put_batch_async([MORE]).result(WAIT_S),
    "put_again": lambda s: s.put_again(stored),
    "send_back": lambda s: s.send_back("g", 0),
    "info": lambda s: s.info(),
    "flush": lambda s: s.flush(),
    "delete_expired": lambda s: s.delete_expired(0),
    "create_topic": lambda s: s.create_topic("new"),
    "update_topic": lambda s: s.update_topic("orders", 9),
    "delete_topic": lambda s: s.delete_topic("orders"),
    "consumer": lambda s: s.consumer("new", "orders"),
    "reset_offsets": lambda s: s.reset_offsets("g", "orders", {0: 0}),
    "join_group": lambda s: s.join_group("new"),
}
STORE_MORE: dict[str, Call] = {
    "put of a new topic": lambda s: s.put(NEW),
    "put_async of a new topic": lambda s: s.put_async(NEW).result(WAIT_S),
    "put_batch of a new topic": lambda s: s.put_batch([NEW]),
}
ASYNC: dict[str, Call] = {
    **{
        name: STORE[name]
        for name in ("get", "query", "message", "offset_by_time", "flush", "put", "put_batch")
    },
    **{name: STORE[name] for name in ("delete_expired", "consumer")},
}
CONSUMER: dict[str, Call] = {
    "poll": lambda c: c.poll(),
    "commit": lambda c: c.commit(),
    "lag": lambda c: c.lag(),
    "position": lambda c: c.position(0),
    "seek": lambda c: c.seek(0, 0),
    "seek_to_time": lambda c: c.seek_to_time(0),
    "take_ready": lambda c: c.take_ready(1),
}
ASYNC_CONSUMER: dict[str, Call] = {name: CONSUMER[name] for name in ("poll", "commit", "lag")}
BULK: dict[str, Call] = {
    "flush": lambda b: b.flush(),
    "log_bounds": lambda b: b.log_bounds,
    "plan_route": lambda b: b.plan_route("orders"),
    "make_routes": lambda b: b.make_routes([RoutePlan("new", 4, 0, is_new=True)]),
    "append": lambda b: b.append(b"\0" * 8, TopicRoutes([])),
}

STATES = {"close", "is_open", "is_closed", "options", "recovery"}
KNOWLEDGE = {"group", "topic", "missed", "corrupt", "assigned"}
LOOP = {"take_next", "look", "listening_with"}
"""What a loop is made of: it ends, and nothing is raised."""
WRITES = set(STORE) - set(READS) - {"info", "flush", "delete_expired"}

stored: Any = None


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "calls", "exempt"),
    [
        (Store, STORE, STATES - {"is_closed"}),
        (AsyncStore, ASYNC, {"close"}),
        (Consumer, CONSUMER, {"close", "is_closed"} | KNOWLEDGE | LOOP),
        (AsyncConsumer, ASYNC_CONSUMER, {"close"}),
        (ReadOnlyStore, READS, {"close", "is_open"} | WRITES),
        (BulkStore, BULK, {"close"}),
    ],
)
def test_every_public_method_is_in_these_tests(kind, calls, exempt):
    assert public(kind) == set(calls) | exempt


def content(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): sha256(p) for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture(params=["internal", "external"])
def store(request, tmp_path) -> Iterator[Store]:
    with rocketlake.open_store(tmp_path, dispatch=request.param) as opened:
        opened.create_topic("orders", queues=1)
        opened.put(Message(topic="orders", body=b"1", keys=["k"]))
        opened.put(Message(topic="orders", body=b"2"))
        opened.join_group("g")
        opened.reset_offsets("g", "orders", {0: 1})
        globals()["stored"] = opened.get("orders", 0, 0).messages[0]
        opened.flush()
        yield opened


def check_refused(calls: dict[str, Call], target: object, match: str) -> None:
    for name, call in calls.items():
        with pytest.raises(StoreClosedError, match=match):
            run_and_complain(name, call, target)


def run_and_complain(name: str, call: Call, target: object) -> None:
    answer = call(target)
    if inspect.iscoroutine(answer):
        answer = asyncio.run(answer)
    raise AssertionError(f"{name} answered {answer!r}")


def check_all(store: Store, consumer: Consumer, match: str = "closed") -> None:
    check_refused(STORE | STORE_MORE, store, match)
    check_refused(ASYNC, AsyncStore(store), match)
    check_refused(CONSUMER, consumer, match)
    check_refused(ASYNC_CONSUMER, AsyncConsumer(consumer, timeout_s=0, batch=1), match)


# --- closed ---------------------------------------------------------------------------------------


def test_closed_store_refuses_everything_and_changes_nothing(store):
    consumer = store.consumer("g", "orders", timeout=0)
    next(consumer)
    store.close()
    before = content(store.path)
    check_all(store, consumer)
    assert list(consumer) == []
    assert content(store.path) == before


def test_closed_store_leaves_the_tables_of_the_next_one_alone(store):
    store.close()
    with rocketlake.open_store(store.path) as other:
        other.create_topic("others")
        other.reset_offsets("g", "orders", {0: 0})
        other.flush()
        before = content(store.path / "config")
        check_refused(STORE | STORE_MORE, store, "closed")
        assert content(store.path / "config") == before


def test_closed_read_only_store_refuses_to_read(store):
    reader = rocketlake.open_store(store.path, read_only=True)
    reader.close()
    check_refused(READS, reader, "closed")


def test_closed_bulk_store_refuses_everything_and_changes_nothing(tmp_path):
    bulk = open_bulk(tmp_path)
    bulk.make_routes([RoutePlan("orders", 4, 0, is_new=True)])
    bulk.close()
    before = content(tmp_path)
    check_refused(BULK, bulk, "closed")
    check_refused(STORE | STORE_MORE, bulk.store, "closed")
    assert content(tmp_path) == before


def test_closed_engine_refuses_what_could_write(store):
    engine = store._parts.core
    request = AppendRequest(
        message=MORE, queue_id=0, born_timestamp=0, born_host=engine.options.store_endpoint
    )
    store.close()
    before = content(store.path)
    calls: dict[str, Call] = {
        "flush": lambda e: e.flush(),
        "sync": lambda e: e.sync(),
        "drop_topic": lambda e: e.drop_topic("orders"),
        "delete_expired": lambda e: e.delete_expired(),
        "append_raw": lambda e: e.append_raw(0, b"x"),
        "change_role": lambda e: e.change_role(BrokerRole.SLAVE),
        "get_raw": lambda e: e.get_raw(GetRequest(topic="orders", queue_id=0, offset=0)),
        "message_at": lambda e: e.message_at(0),
    }
    check_refused(calls, engine, "closed")
    assert not engine.put(request).is_ok
    assert content(store.path) == before


# --- half closed ----------------------------------------------------------------------------------


class Stop:
    """Holds `close` at the door of one part."""

    def __init__(self, monkeypatch, where: str) -> None:
        self.has_come = threading.Event()
        self.go_on = threading.Event()
        name, method = where.rsplit(".", 1)
        module, kind = name.rsplit(".", 1)
        found = getattr(__import__(module, fromlist=[kind]), kind)
        real = getattr(found, method)

        def held(this: object) -> None:
            self.has_come.set()
            assert self.go_on.wait(WAIT_S)
            real(this)

        monkeypatch.setattr(found, method, held)


@pytest.mark.parametrize(
    "where",
    [
        "rocketlake.delay.services.DelayServices.close",
        "rocketlake.embedded.tables.TableKeeper.close",
        "rocketlake.store.message_store.MessageStore.close",
    ],
)
def test_half_closed_store_refuses_everything_and_changes_nothing(store, monkeypatch, where):
    consumer = store.consumer("g", "orders", timeout=0)
    next(consumer)
    store.flush()
    stop = Stop(monkeypatch, where)
    closing = threading.Thread(target=store.close)
    closing.start()
    try:
        assert stop.has_come.wait(WAIT_S)
        before = content(store.path)
        check_all(store, consumer)
        assert list(consumer) == []
        assert content(store.path) == before
    finally:
        stop.go_on.set()
        closing.join(WAIT_S)
    assert not closing.is_alive()
    with rocketlake.open_store(store.path) as again:
        assert [t.name for t in again.topics()] == ["%RETRY%g", "orders"]
        assert again.max_offset("orders", 0) == 2
        assert [(p.queue_id, p.offset) for p in again.progress("g")] == [(0, 1)]


def test_topic_whose_first_message_meets_close_is_adopted_by_the_next_start(store, monkeypatch):
    """The engine has the message, and `close` came before the topic was kept."""
    topics = store._topics
    register = topics.register

    def late(config):
        topics.close()
        return register(config)

    monkeypatch.setattr(topics, "register", late)
    assert store.put(NEW).is_ok
    store.close()
    with rocketlake.open_store(store.path) as again:
        assert sum(again.max_offset("new", queue) for queue in range(4)) == 1


# --- in a fork ------------------------------------------------------------------------------------


def test_fork_of_an_open_store_refuses_everything_and_changes_nothing(store):
    consumer = store.consumer("g", "orders", timeout=0)
    next(consumer)
    store.flush()
    before = content(store.path)

    def child(tell: forks.Tell) -> None:
        check_all(store, consumer, "belongs to the parent")
        with pytest.raises(StoreClosedError, match="belongs to the parent"):
            list(consumer)
        store.close()
        tell("refused")

    assert forks.run(child).lines == ["refused"]
    assert content(store.path) == before
    assert store.put(MORE).is_ok
    assert store.max_offset("orders", 0) == 3


def test_fork_of_a_bulk_store_refuses_everything(tmp_path):
    with open_bulk(tmp_path) as bulk:

        def child(tell: forks.Tell) -> None:
            check_refused(BULK, bulk, "belongs to the parent")
            tell("refused")

        assert forks.run(child).lines == ["refused"]
