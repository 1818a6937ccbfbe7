"""Names that no queue can have: refused by every put, skipped where a log holds them."""

import logging
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import PutFailedError, StoreError
from rocketlake.format import layout
from rocketlake.model import properties as names
from rocketlake.model.topics import can_name_queues
from rocketlake.store.api import GetRequest, PutReceipt, PutStatus
from rocketlake.store.log.topic_routes import TopicRoutes
from rocketlake.store.message_store import MessageStore
from rocketlake.store.offline import OfflineStore
from support import command
from support.engine import batch_request, open_engine, request
from support.store_builder import StoreBuilder

LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}
WRONG = {
    "slash": "%LMQ%a/b",
    "parent": "..",
    "self": ".",
    "absolute": "/tmp",
    "long": "%LMQ%" + "x" * 300,
    "long in bytes": "%LMQ%" + "\u00e9" * 126,
}


def fanning_out(*queues: str) -> dict[str, str]:
    return {names.MULTI_DISPATCH: names.MULTI_SEPARATOR.join(queues)}


def count(store: MessageStore, topic: str) -> int:
    return len(store.get(GetRequest(topic=topic, queue_id=0, offset=0)).messages)


def put(store: MessageStore, way: str, properties: dict[str, str]) -> PutReceipt:
    if way == "put":
        return store.put(request("T", 0, b"x", properties=properties))
    if way == "put_async":
        return store.put_async(request("T", 0, b"x", properties=properties)).result()
    good = request("T", 0, b"good").message
    return store.put_batch(
        batch_request([good, request("T", 0, b"x", properties=properties).message])
    )


# --- the rule --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*WRONG.values(), "", "a\0b", "\ud800"])
def test_names_that_no_directory_can_have(name: str):
    assert not can_name_queues(name)


@pytest.mark.parametrize("name", ["T", "%LMQ%a", "x" * 255, "\u00e9" * 127, "a b", "...", "\udc80"])
def test_names_that_are_possible(name: str, tmp_path: Path):
    assert can_name_queues(name)
    (tmp_path / name).mkdir()


# --- putting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [{}, {"delay_level": 1}, {"deliver_at": 1 << 60}])
@pytest.mark.parametrize("name", ["%LMQ%a/b", "%LMQ%" + "x" * 300, "other", "SCHEDULE_TOPIC_XXXX"])
def test_light_queue_is_checked_when_a_message_is_put_not_when_it_is_due(tmp_path, name, late):
    """A delay level waited for ever for one of them; naming a topic took the places of its own."""
    with rocketlake.open_store(tmp_path, **LIGHT, timer_max_delay_sec=2**31 - 1) as store:
        if late.get("deliver_at"):
            late = {"deliver_at": store._engine.clock.now_ms() + 60_000}
        message = Message(topic="T", body=b"x", properties=fanning_out(name), **late)
        with pytest.raises(PutFailedError, match="property INNER_MULTI_DISPATCH names"):
            store.put(message)


@pytest.mark.parametrize("options", [LIGHT, {}])
def test_offset_in_light_queues_is_the_stores_to_give(tmp_path: Path, options):
    """A batch that brought its own took the place of another topic's message."""
    own = {names.MULTI_QUEUE_OFFSET: "100"}
    with rocketlake.open_store(tmp_path, **options) as store:
        for number in range(3):
            store.put(Message(topic="victim", body=b"%d" % number), 0)
        if options:
            with pytest.raises(PutFailedError, match="put them one by one"):
                store.put_batch(
                    [Message(topic="T", body=b"x", properties={**fanning_out("%LMQ%a"), **own})]
                )
        for properties in (own, {**fanning_out("%LMQ%a"), **own}):
            store.put(Message(topic="T", body=b"x", properties=properties), 0)
        store.put_batch([Message(topic="T", body=b"x", properties=own)], 0)
        stored = store.get("T", 0, 0).messages
        assert len(stored) == 3
        assert not any("100" in m.properties.get(names.MULTI_QUEUE_OFFSET, "") for m in stored)
        assert [m.body for m in store.get("victim", 0, 0).messages] == [b"0", b"1", b"2"]
        assert store.max_offset("%LMQ%a", 0) == bool(options)
    assert command.run("verify", tmp_path).code == 0


def test_late_message_of_a_log_that_names_a_bad_light_queue_holds_up_no_other(tmp_path: Path):
    """As RocketMQ takes it."""
    with rocketlake.open_store(tmp_path) as store:  # no light queues: the property says nothing
        bad = Message(topic="T", body=b"bad", properties=fanning_out("%LMQ%a/b"), delay_level=1)
        store.put(bad)
        store.put(Message(topic="T", body=b"good", delay_level=1))
    with (
        rocketlake.open_store(tmp_path, **LIGHT) as store,
        store.consumer("g", "T", timeout=20) as consumer,
    ):
        assert {next(consumer).body, next(consumer).body} == {b"bad", b"good"}


@pytest.mark.parametrize("way", ["put", "put_async", "put_batch"])
@pytest.mark.parametrize("name", WRONG.values(), ids=WRONG)
def test_light_queue_that_cannot_be_is_refused(tmp_path: Path, name: str, way: str):
    with open_engine(tmp_path, **LIGHT) as store:
        receipt = put(store, way, fanning_out("%LMQ%good", name))
        assert receipt.status is PutStatus.MESSAGE_ILLEGAL
        assert receipt.reason.startswith("property INNER_MULTI_DISPATCH names")
        assert count(store, "T") == 0
        assert store.put(request("T", 0, b"x", properties=fanning_out("%LMQ%good"))).is_ok
        assert count(store, "T") == count(store, "%LMQ%good") == 1


@pytest.mark.parametrize("name", ["a/b", "..", "%RETRY%" + "x" * 250, "a\0b"])
def test_topic_that_cannot_be_a_directory_is_refused(tmp_path: Path, name: str):
    """Also in a store that takes longer topics than a broker does."""
    with open_engine(tmp_path) as store:
        store.parts.putter.limits_topics = False
        for receipt in (
            store.put(request(name)),
            store.put_async(request(name)).result(),
            store.put_batch(batch_request([request(name).message])),
        ):
            assert receipt.status is PutStatus.MESSAGE_ILLEGAL
            assert "can have no queues" in receipt.reason
        with pytest.raises(StoreError, match="can have no queues"):
            store.bulk.append(b"", 0, TopicRoutes([store.bulk.route(name, 1)]))
        assert store.put(request("T")).is_ok


# --- what a log holds ------------------------------------------------------------------------


def make_hostile(root: Path) -> None:
    """A log as another program may leave it, whose records no queue has yet."""
    builder = StoreBuilder(root).record(body=b"first")
    for number, name in enumerate(WRONG.values()):
        builder.record(body=b"%d" % number, light=["%LMQ%good", name], dispatched=False)
    builder.record(topic="a/b", body=b"slash", dispatched=False)
    builder.record(topic="x" * 300, body=b"long", dispatched=False)
    builder.record(body=b"last", dispatched=False).unclean().write()


def test_log_with_impossible_names_is_opened_read_verified_and_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    make_hostile(tmp_path)
    wanted = [b"first", *(b"%d" % number for number in range(len(WRONG))), b"last"]
    with OfflineStore(tmp_path) as view:
        assert sum(len(batch.columns) for key in view.queues for batch in view.messages(key)) == (
            len(wanted) + len(WRONG)
        )
    assert command.run("verify", tmp_path).code == 0
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            store = rocketlake.open_store(tmp_path, **LIGHT)
        assert [bytes(m.body) for m in store.get("T", 0, 0).messages] == wanted
        assert len(store.get("%LMQ%good", 0, 0).messages) == len(WRONG)
        store.close()
        assert not (tmp_path / "abort").exists()
    told = [record for record in caplog.records if "no queue for a record" in record.message]
    assert len(told) == len(WRONG) + 2, "once each, and not again by the second start"
    assert command.run("verify", tmp_path).code == 0
    assert command.run("dump", tmp_path).code == 0


def test_names_without_end_are_logged_a_few_times(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    builder = StoreBuilder(tmp_path, log_file_size=1 << 20).record(body=b"first")
    for number in range(100):
        builder.record(light=[f"%LMQ%a/{number}"], dispatched=False)
    builder.unclean().write()
    with caplog.at_level(logging.WARNING):
        rocketlake.open_store(tmp_path, **LIGHT).close()
    assert sum("no queue for a record" in record.message for record in caplog.records) == 20


@pytest.mark.parametrize("number", [layout.MAX_I64, layout.MAX_I64 // 20])
def test_queue_offset_that_no_file_can_have(tmp_path: Path, number: int):
    builder = StoreBuilder(tmp_path).record(body=b"first")
    builder.record(queue_id=3, body=b"second", queue_offset=number, dispatched=False)
    builder.record(body=b"last", dispatched=False).unclean().write()
    with rocketlake.open_store(tmp_path, read_only=True) as view:
        assert [found.body for found in view.get("T", 3, 0).messages] == [b"second"]
    with rocketlake.open_store(tmp_path) as store:
        assert [found.body for found in store.get("T", 3, 0).messages] == [b"second"]
        assert store.put(Message(topic="T", body=b"next"), queue_id=3).queue_offset == 1
    assert command.run("info", tmp_path).code == 0


@pytest.mark.parametrize("number", [layout.MAX_I64, 10**30, -(10**30), layout.MAX_I64 // 20])
def test_light_queue_offset_that_no_file_can_have(tmp_path: Path, number: int):
    properties = {names.MULTI_DISPATCH: "%LMQ%a", names.MULTI_QUEUE_OFFSET: str(number)}
    builder = StoreBuilder(tmp_path).record(body=b"first")
    builder.record(properties=properties, dispatched=False)
    builder.record(body=b"last", dispatched=False).unclean().write()
    with rocketlake.open_store(tmp_path, **LIGHT) as store:
        assert len(store.get("T", 0, 0).messages) == 3
    assert command.run("info", tmp_path).code == 0


def test_queue_below_0_is_a_queue_like_others(tmp_path):
    for count in (1, 2, 3):
        with open_engine(tmp_path) as store:
            for queue_id in (0, -1):
                assert store.put(request("T", queue_id)).queue_offset == count - 1
            result = store.get(GetRequest(topic="T", queue_id=-1, offset=0))
            assert len(result.messages) == count
