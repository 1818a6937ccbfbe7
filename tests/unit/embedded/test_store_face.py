"""The face of a store: where messages go, topics, groups, and what is refused."""

import logging
from datetime import datetime

import pytest
from embedded_fakes import MemoryEngine, bodies, open_memory_store

from rocketlake.embedded.routes import Route
from rocketlake.embedded.store import Store
from rocketlake.errors import FileAccessError, PutFailedError, StoreClosedError, StorePoisonedError
from rocketlake.metadata import offsets as offset_table
from rocketlake.metadata import topics as topic_table
from rocketlake.model import flags
from rocketlake.model.hashes import java_hash
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import TopicConfig
from rocketlake.store.api import AppendRequest, BatchRequest, GetStatus, PutStatus


@pytest.fixture
def engine():
    return MemoryEngine()


@pytest.fixture
def store(tmp_path, engine):
    with open_memory_store(tmp_path, engine) as opened:
        yield opened


def order(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


def queue_of(engine: MemoryEngine) -> int:
    request = engine.requests[-1]
    return request.queue_id


# --- queues ---------------------------------------------------------------------------------------


def test_put_without_queue_takes_turns_over_the_queues(store, engine):
    store.create_topic("orders", queues=3)
    for _ in range(7):
        store.put(order())
    assert [request.queue_id for request in engine.requests] == [0, 1, 2, 0, 1, 2, 0]


def test_put_with_ordering_key_goes_always_to_the_same_queue(store, engine):
    store.create_topic("orders", queues=8)
    chosen = {}
    for key in ("customer-1", "customer-2", "Zürich", "🚀", "polygenelubricants"):
        for _ in range(3):
            store.put(order(ordering_key=key))
            chosen.setdefault(key, set()).add(queue_of(engine))
    assert {key: len(queues) for key, queues in chosen.items()} == dict.fromkeys(chosen, 1)
    assert chosen["customer-1"] == {abs(java_hash("customer-1")) % 8}


def test_route_of_the_most_negative_hash_is_a_queue():
    """Java's hash of this text is -2^31."""
    route = Route(TopicConfig(name="t", write_queue_count=7))
    assert java_hash("polygenelubricants") == -(2**31)
    assert route.queue_of("polygenelubricants") == 2**31 % 7


def test_put_queue_that_is_named_is_stronger_than_the_ordering_key(store, engine):
    store.create_topic("orders", queues=4)
    store.put(order(ordering_key="a"), queue_id=3)
    assert queue_of(engine) == 3


@pytest.mark.parametrize("queue_id", [4, -1, 99])
def test_put_queue_beyond_the_topic_is_refused(store, engine, queue_id):
    store.create_topic("orders", queues=4)
    with pytest.raises(ValueError, match=f"queue_id = {queue_id}: topic 'orders' has 4 queues"):
        store.put(order(), queue_id=queue_id)
    with pytest.raises(ValueError, match="has 4 queues, 0 to 3"):
        store.put_async(order(), queue_id=queue_id)
    with pytest.raises(ValueError, match="has 4 queues, 0 to 3"):
        store.put_batch([order()], queue_id=queue_id)
    assert engine.requests == []


def test_put_queue_that_is_no_number_is_refused(store):
    store.create_topic("orders")
    with pytest.raises(TypeError):
        store.put(order(), queue_id="0")
    with pytest.raises(TypeError, match="queue_id = '0' is str; wanted int"):
        store.put_async(order(), queue_id="0")


# --- topics that are not there --------------------------------------------------------------------


def test_put_to_unknown_topic_makes_it(store, tmp_path):
    assert store.put(order()).status is PutStatus.PUT_OK
    assert store.topic("orders").write_queue_count == store.options.default_topic_queue_nums
    assert "orders" in topic_table.load(tmp_path).topics  # on the disk, as the answer is given


def test_put_async_and_batch_to_unknown_topics_make_them(store, tmp_path):
    store.put_async(order(topic="a")).result()
    store.put_batch([order(topic="b")])
    store.put_batch_async([order(topic="c")]).result()
    assert list(topic_table.load(tmp_path).topics) == ["a", "b", "c"]


def test_put_async_makes_the_topic_before_the_disk_has_the_message(store, engine):
    engine.is_slow = True
    future = store.put_async(order())
    assert not future.done()
    assert store.topic("orders") is not None
    engine.settle()
    assert future.result().is_ok


@pytest.mark.parametrize("topic", ["%RETRY%billing", "%DLQ%billing"])
def test_put_retry_and_dead_letter_topics_have_one_queue(store, topic):
    store.put(order(topic=topic))
    assert store.topic(topic).read_queue_count == 1


def test_refused_message_makes_no_topic(store, engine, tmp_path):
    engine.answer = PutStatus.MESSAGE_ILLEGAL
    for put in (
        lambda: store.put(order()),
        lambda: store.put_async(order()).result(),
        lambda: store.put_batch([order()]),
        lambda: store.put_batch_async([order()]).result(),
    ):
        with pytest.raises(PutFailedError, match="MESSAGE_ILLEGAL"):
            put()
    engine.answer, engine.error = PutStatus.PUT_OK, StorePoisonedError("flush failed")
    with pytest.raises(StorePoisonedError):
        store.put(order())
    assert isinstance(store.put_async(order()).exception(), StorePoisonedError)
    assert store.topics() == []
    assert list(tmp_path.iterdir()) == []


def test_topic_too_long_is_left_to_the_engine(store, engine):
    engine.answer = PutStatus.MESSAGE_ILLEGAL
    with pytest.raises(PutFailedError, match="MESSAGE_ILLEGAL"):
        store.put(order(topic="t" * 128))
    assert len(engine.requests) == 1


def test_without_auto_create_an_unknown_topic_is_refused(tmp_path):
    with open_memory_store(tmp_path, auto_create_topic_enable=False) as store:
        for put in (store.put, store.put_async, lambda m: store.put_batch([m])):
            with pytest.raises(
                ValueError, match=r"no topic 'orders', and auto_create.*create_topi"
            ):
                put(order())
        store.create_topic("orders")
        assert store.put(order()).is_ok


def test_topic_that_may_not_be_written_is_refused(store):
    store.create_topic("orders")
    store.update_topic("orders", writable=False)
    with pytest.raises(ValueError, match=r"may not be written \(perm 4.*writable=True\) allows"):
        store.put(order())
    store.update_topic("orders", writable=True)
    assert store.put(order()).is_ok


# --- bad messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (order(body="text"), "body = 'text' is str"),
        (order(keys="o-1"), "keys = 'o-1' is one str"),
        (order(keys=["a b"]), "keys has 'a b'"),
        (order(keys=[1]), "keys has 1, int"),
        (order(topic="a b"), "topic = 'a b'"),
        (order(topic=["orders"]), r"topic = \['orders'\] is list"),
        (order(ordering_key=5), "ordering_key = 5"),
        ("orders", "'orders' is str; wanted a Message"),
        (None, "None is NoneType; wanted a Message"),
    ],
)
def test_bad_message_is_refused_by_every_put(store, engine, bad, words):
    store.create_topic("orders")
    puts = (
        store.put,
        store.put_async,
        lambda m: store.put_batch([order(), m]),
        lambda m: store.put_batch_async([order(), m]),
    )
    for put in puts:
        with pytest.raises((TypeError, ValueError), match=words):
            put(bad)
    assert engine.requests == []


@pytest.mark.parametrize("moment", [1.5, datetime(2026, 1, 1)])  # noqa: DTZ001
def test_time_of_delivery_without_a_zone_is_refused(store, engine, moment):
    store.create_topic("orders")
    for put in (store.put, store.put_async):
        with pytest.raises((TypeError, ValueError), match="deliver_at = "):
            put(order(deliver_at=moment))
    assert engine.requests == []


def test_engine_that_cannot_encode_is_explained(store, engine):
    store.create_topic("orders")
    engine.error = ValueError("property 'p' holds a separator character")
    bad = order(properties={"p": "a\x01b"})
    with pytest.raises(ValueError, match=r"properties\['p'\] = 'a\\x01b' holds .* into the body"):
        store.put(bad)
    with pytest.raises(ValueError, match=r"properties\['p'\]"):
        store.put_batch([order(), bad])
    with pytest.raises(ValueError, match="holds a separator"):
        store.put(order())


# --- batches --------------------------------------------------------------------------------------


def test_put_batch_goes_to_one_queue(store, engine):
    store.create_topic("orders", queues=4)
    store.put_batch([order(body=b"1"), order(body=b"2")])
    store.put_batch(order() for _ in range(2))
    batches = [request for request in engine.requests if isinstance(request, BatchRequest)]
    assert [batch.queue_id for batch in batches] == [0, 1]
    assert [m.body for m in batches[0].messages] == [b"1", b"2"]


def test_put_batch_of_nothing_is_refused(store):
    with pytest.raises(ValueError, match="messages is empty"):
        store.put_batch([])
    with pytest.raises(ValueError, match="messages is empty"):
        store.put_batch_async([])


def test_put_batch_of_two_topics_is_refused_with_both_named(store, engine):
    with pytest.raises(ValueError, match="'orders' and 'bills'"):
        store.put_batch([order(), order(topic="bills")])
    assert engine.requests == []
    assert store.topics() == []


def test_put_batch_of_different_ordering_keys_needs_a_queue(store, engine):
    mixed = [order(ordering_key="a"), order(ordering_key="b")]
    with pytest.raises(ValueError, match=r"different ordering keys \('a', 'b'\)"):
        store.put_batch(mixed)
    assert store.put_batch(mixed, queue_id=1).is_ok
    store.put_batch([order(ordering_key="a")] * 2)
    assert engine.requests[-1].queue_id == abs(java_hash("a")) % 4


@pytest.mark.parametrize(
    ("waits", "wanted"), [([True, False], True), ([False, True], True), ([False, False], False)]
)
def test_put_batch_waits_if_one_message_does(store, engine, waits, wanted):
    store.put_batch([order(wait=wait) for wait in waits])
    assert engine.requests[-1].wait is wanted


def test_put_batch_into_batch_queues_is_one_record_and_read_as_several(store, engine):
    store.create_topic("orders", queues=1, attributes={"queue.type": "BatchCQ"})
    batch = [order(body=b"1", keys=["k1"], tags="a"), order(body=b"2", properties={"p": "v"})]
    store.put_batch(batch)
    request = engine.requests[-1]
    assert isinstance(request, AppendRequest)
    assert request.sys_flag == flags.INNER_BATCH | flags.NEED_UNWRAP
    assert request.message.properties == {"INNER_NUM": "2"}
    record = engine.queues[QueueKey("orders", 0)][0]
    engine.queues[QueueKey("orders", 0)] = [
        type(record)(
            **{
                name: getattr(record, name)
                for name in ("topic", "queue_id", "queue_offset", "physical_offset", "store_size")
            },
            **{
                name: getattr(record, name)
                for name in ("store_timestamp", "born_timestamp", "born_host", "store_host")
            },
            flag=0,
            sys_flag=request.sys_flag,
            body_crc=0,
            reconsume_times=0,
            prepared_transaction_offset=0,
            raw_properties=record.raw_properties,
            stored_body=record.stored_body,
        )
    ] * 2
    found = list(store.consumer("g", "orders", timeout=0))
    assert bodies(found) == ["1", "2"]
    assert (found[0].keys, found[0].tags, found[1].properties) == (["k1"], "a", {"p": "v"})


# --- reading --------------------------------------------------------------------------------------


def test_get_query_message_and_bounds(store):
    receipt = store.put(order(body=b"1", keys=["o-1"], tags="paid"), queue_id=0)
    store.put(order(body=b"2", keys=["o-2"], tags="open"), queue_id=0)
    result = store.get("orders", 0, receipt.queue_offset)
    assert (result.status, bodies(result.messages)) == (GetStatus.FOUND, ["1", "2"])
    assert bodies(store.get("orders", 0, 0, tags="paid || refunded").messages) == ["1"]
    assert bodies(store.get("orders", 0, 0, sql="TAGS = 'open'").messages) == ["2"]
    assert bodies(store.query("orders", "o-2")) == ["2"]
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (0, 2)
    assert store.message(receipt.msg_id).body == b"1"
    assert store.message(receipt.msg_id.lower()).body == b"1"
    assert store.message("0" * 32) is None
    assert store.offset_by_time("orders", 0, 1001) == 2
    assert store.info() == {"puts": "2"}


def test_bad_questions_are_refused(store):
    with pytest.raises(ValueError, match="give one of the two"):
        store.get("orders", 0, 0, tags="a", sql="b = 1")
    with pytest.raises(TypeError, match="tags = 5 is int"):
        store.get("orders", 0, 0, tags=5)
    with pytest.raises(ValueError, match="key = 'a b'"):
        store.query("orders", "a b")
    with pytest.raises(TypeError, match="key = 5 is int"):
        store.query("orders", 5)
    with pytest.raises(TypeError, match="no key and no tag"):
        store.query("orders")
    with pytest.raises(TypeError, match="tag = 5 is int"):
        store.query("orders", tag=5)
    with pytest.raises(ValueError, match="a tag is not empty"):
        store.query("orders", tag="")
    with pytest.raises(TypeError, match="key = 'a' and tag = 'b': wanted one of the two"):
        store.query("orders", "a", tag="b")
    with pytest.raises(ValueError, match="boundary = 'middle': wanted 'lower' or 'upper'"):
        store.offset_by_time("orders", 0, 0, "middle")
    with pytest.raises(ValueError, match="not a message id"):
        store.message("xyz")


def test_sql_with_an_end_that_counts_for_nothing_warns(store, caplog):
    store.get("orders", 0, 0, sql="a = 1 b = 2")
    assert "unread='b = 2'" in caplog.text


# --- life -----------------------------------------------------------------------------------------


def test_close_ends_all_and_writes_the_tables(tmp_path):
    engine = MemoryEngine()
    store = open_memory_store(tmp_path, engine)
    store.put(order(), queue_id=0)
    consumer = store.consumer("g", "orders", timeout=0)
    list(consumer)
    assert store.is_open
    store.close()
    store.close()
    assert (store.is_open, engine.is_closed, consumer.is_closed) == (False, True, True)
    assert offset_table.load(tmp_path).get("orders", "g", 0) == 1
    assert repr(store) == f"<Store {str(tmp_path)!r} closed, 1 topics>"
    with pytest.raises(StoreClosedError):
        consumer.poll()


def test_close_goes_on_when_a_part_cannot(tmp_path, monkeypatch):
    engine = MemoryEngine()
    store = open_memory_store(tmp_path, engine)
    store.put(order())

    def fail(self) -> None:
        raise FileAccessError("table", "no")

    monkeypatch.setattr("rocketlake.embedded.tables.TableKeeper.run_last", fail)
    with pytest.raises(FileAccessError):
        store.close()
    assert engine.is_closed
    store.close()


def test_flush_brings_messages_and_tables_to_disk(store, engine, tmp_path):
    store.put(order(), queue_id=0)
    list(store.consumer("g", "orders", timeout=0))
    store.flush()
    assert engine.flushes == 1
    assert offset_table.load(tmp_path).get("orders", "g", 0) == 1


def test_store_says_what_it_is(store, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    store.create_topic("orders")
    assert repr(store) == f"<Store {str(tmp_path)!r} open, 1 topics>"
    assert isinstance(store, Store)
    assert store.unused_options == ()
