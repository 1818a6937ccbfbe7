"""Topics and groups of a store: made, changed, deleted; their progress, moved."""

import re

import pytest
from embedded_fakes import MemoryEngine, bodies, open_memory_store

import rocketlake
from rocketlake.errors import DiskFullError
from rocketlake.metadata import offsets as offset_table
from rocketlake.metadata import topics as topic_table
from rocketlake.model.message import Message
from rocketlake.store import deleted_topics


@pytest.fixture
def engine():
    return MemoryEngine()


@pytest.fixture
def store(tmp_path, engine):
    with open_memory_store(tmp_path, engine) as opened:
        yield opened


def order(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


# --- topics ---------------------------------------------------------------------------------------


def test_create_list_and_update_topics(store, tmp_path):
    store.create_topic("b", queues=2)
    store.create_topic("a")
    assert [(t.name, t.read_queue_count) for t in store.topics()] == [("a", 4), ("b", 2)]
    changed = store.update_topic("b", queues=5, readable=False)
    assert (changed.write_queue_count, changed.perm) == (5, 2)
    assert topic_table.load(tmp_path).topics["b"] == changed
    assert store.topic("none") is None


def test_create_topic_twice_is_refused(store):
    store.create_topic("orders")
    with pytest.raises(ValueError, match=r"topic 'orders' exists; update_topic\('orders'"):
        store.create_topic("orders")


@pytest.mark.parametrize("queues", [0, -1, 65_537])
def test_create_topic_with_impossible_queues_is_refused(store, queues):
    with pytest.raises(ValueError, match="wanted 1 to 65536"):
        store.create_topic("orders", queues=queues)
    with pytest.raises(TypeError, match="queues = '4' is str"):
        store.create_topic("orders", queues="4")
    assert store.topics() == []


def test_unknown_topic_cannot_be_changed_or_deleted(store):
    store.create_topic("orders")
    for use in (store.update_topic, store.delete_topic):
        with pytest.raises(ValueError, match="there is no topic 'x'; there are orders"):
            use("x")
    with pytest.raises(ValueError, match="there is no topic 'x'"):
        store.reset_offsets("g", "x", "first")


def test_more_queues_reach_puts_and_consumers(store, engine):
    store.create_topic("orders", queues=1)
    consumer = store.consumer("g", "orders", timeout=0)
    store.put(order(body=b"1"))
    store.update_topic("orders", queues=2)
    store.put(order(body=b"2"), queue_id=1)
    assert bodies(list(consumer)) == ["1", "2"]
    assert consumer.assigned == [0, 1]


def test_topic_that_may_not_be_read_waits_for_its_consumers(store):
    store.create_topic("orders", queues=2)
    consumer = store.consumer("g", "orders", timeout=0)
    store.update_topic("orders", readable=False)
    store.put(order(), queue_id=0)
    assert (consumer.poll(), consumer.assigned) == ([], [])
    store.update_topic("orders", readable=True)
    assert len(consumer.poll()) == 1


def test_delete_topic_forgets_all_of_it(store, tmp_path):
    store.put(order(), queue_id=0)
    list(store.consumer("g", "orders", timeout=0))
    store.flush()
    store.delete_topic("orders")
    assert store.topics() == []
    assert store.max_offset("orders", 0) == 0
    assert store.groups() == []
    assert topic_table.load(tmp_path).topics == {}
    assert offset_table.load(tmp_path).offsets == {}
    assert store.put(order(), queue_id=0).queue_offset == 0


# --- groups ---------------------------------------------------------------------------------------


def test_groups_progress_and_lag(store):
    store.create_topic("orders", queues=2)
    for _ in range(3):
        store.put(order(), queue_id=0)
    consumer = store.consumer("billing", "orders", timeout=0)
    next(consumer)
    next(consumer)
    consumer.close()
    assert store.groups() == ["billing"]
    assert [(p.topic, p.queue_id, p.offset, p.lag) for p in store.progress("billing")] == [
        ("orders", 0, 1, 2),
        ("orders", 1, 0, 0),
    ]
    assert store.lag("billing") == 2
    assert store.lag("nobody") == 0


def test_progress_of_a_queue_the_group_never_saw_counts_from_its_begin(store):
    store.create_topic("orders", queues=1)
    store.consumer("g", "orders", timeout=0).close()
    store.update_topic("orders", queues=2)
    store.put(order(), queue_id=1)
    assert [(p.queue_id, p.offset, p.lag) for p in store.progress("g")] == [(0, 0, 0), (1, None, 1)]


def test_reset_offsets(store):
    store.create_topic("orders", queues=1)
    for number in range(5):
        store.put(order(body=str(number).encode()))
    consumer = store.consumer("g", "orders", timeout=0)
    assert len(list(consumer)) == 5
    store.reset_offsets("g", "orders", to={0: 3})
    assert bodies(list(consumer)) == ["3", "4"]
    store.reset_offsets("g", "orders", to="first")
    assert bodies(list(consumer)) == ["0", "1", "2", "3", "4"]
    store.reset_offsets("g", "orders", to="last")
    assert list(consumer) == []
    store.reset_offsets("other", "orders", to="last")
    assert store.lag("other") == 0
    store.reset_offsets("g", "orders", to=0)  # a time long ago
    assert store.lag("g") == 5


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("middle", "to = 'middle': wanted 'first', 'last' or a time"),
        ({7: 0}, "to has queue 7; the topic has 1 queues"),
        ({0: -1}, "to has the offset -1 for queue 0"),
    ],
)
def test_reset_offsets_to_nowhere_is_refused(store, to, words):
    store.create_topic("orders", queues=1)
    with pytest.raises(ValueError, match=words):
        store.reset_offsets("g", "orders", to)
    assert store.groups() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"group": "a b"}, "group = 'a b'"),
        ({"topic": ""}, "topic = ''"),
        ({"timeout": -1}, "timeout = -1: wanted seconds"),
        ({"batch": 0}, "batch = 0"),
        ({"start": "middle"}, "start = 'middle'"),
        ({"queues": []}, "queues is empty"),
        ({"queues": [-1]}, "queues has -1"),
        ({"tags": "||"}, "tag expression"),
        ({"sql": "a >"}, "expected"),
    ],
)
def test_consumer_that_makes_no_sense_is_refused(store, arguments, words):
    with pytest.raises(ValueError, match=words):
        store.consumer(**{"group": "g", "topic": "orders", **arguments})


def test_consumer_of_chosen_queues(store):
    store.create_topic("orders", queues=3)
    for queue_id in range(3):
        store.put(order(body=str(queue_id).encode()), queue_id=queue_id)
    chosen = store.consumer("g", "orders", queues=[1], timeout=0)
    rest = store.consumer("g", "orders", timeout=0)
    assert bodies(list(chosen)) == ["1"]
    assert sorted(bodies(list(rest))) == ["0", "2"]


# --- topics that are made again ------------------------------------------------------------------


@pytest.fixture
def real(tmp_path):
    with rocketlake.open_store(tmp_path / "store") as opened:
        yield opened


def make_again(store):
    store.delete_topic("orders")
    store.create_topic("orders", 1)
    for body in (b"d", b"e", b"f"):
        assert store.put(order(body=body), 0).is_ok


def test_message_in_hand_of_a_deleted_topic_is_not_committed(real):
    """Its queue offset is that of a message of the new life, which the group has not seen."""
    real.create_topic("orders", 1)
    for body in (b"a", b"b"):
        real.put(order(body=body), 0)
    with real.consumer("g", "orders", timeout=0) as consumer:
        found = iter(consumer)
        assert [next(found).body, next(found).body] == [b"a", b"b"]
        make_again(real)
        assert [message.body for message in found] == [b"d", b"e", b"f"]
    assert real.progress("g")[0].offset == 3


def test_messages_polled_of_a_deleted_topic_are_not_committed(real):
    real.create_topic("orders", 1)
    for body in (b"a", b"b"):
        real.put(order(body=body), 0)
    with real.consumer("g", "orders") as consumer:
        assert len(consumer.poll(10)) == 2
        make_again(real)
        consumer.commit()
    with real.consumer("g", "orders") as consumer:
        assert [message.body for message in consumer.poll(10)] == [b"d", b"e", b"f"]


def test_progress_of_a_deleted_topic_is_gone_before_it_can_be_made_again(real, monkeypatch):
    """A crash behind that would let the group skip messages of the new life."""
    real.create_topic("orders", 1)
    real.put(order(), 0)
    with real.consumer("g", "orders") as consumer:
        consumer.poll(1)
        consumer.commit()
    real.flush()
    seen = []
    book = real._topics.book
    delete = book.delete
    table = real.path / "config"
    monkeypatch.setattr(
        book, "delete", lambda name: seen.append(offset_table.load(table).offsets) or delete(name)
    )
    real.delete_topic("orders")
    assert seen == [{}]


def test_topic_whose_deletion_failed_can_be_written(real, monkeypatch):
    real.create_topic("orders", 1)
    real.put(order(body=b"a"), 0)

    def fail(*_):
        raise DiskFullError("config", 10, 0)

    with monkeypatch.context() as patch:
        patch.setattr(deleted_topics, "write_table", fail)
        with pytest.raises(DiskFullError):
            real.delete_topic("orders")
    assert real.put(order(body=b"b"), 0).queue_offset == 1
    assert bodies(real.get("orders", 0, 0).messages) == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queues": "4"}, "queues = '4' is str; wanted int"),
        ({"queues": True}, "queues = True is bool; wanted int"),
        ({"attributes": ["a"]}, "attributes = ['a'] is list; wanted a dict of str to str"),
    ],
)
def test_words_for_a_topic_of_another_type_are_named(store, arguments, words):
    with pytest.raises(TypeError, match=re.escape(words)):
        store.create_topic("new", **arguments)
    store.create_topic("orders")
    with pytest.raises(TypeError, match=re.escape(words)):
        store.update_topic("orders", **arguments)
    with pytest.raises(TypeError, match="name = 7 is int; wanted str"):
        store.create_topic(7)
    with pytest.raises(TypeError, match="writable = 'no' is str; wanted bool"):
        store.update_topic("orders", writable="no")
