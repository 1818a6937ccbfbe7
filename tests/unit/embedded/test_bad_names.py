"""Names and values that are refused where they come in, whatever way they come."""

import json

import pytest

import rocketlake
from rocketlake import Message


@pytest.fixture
def store(tmp_path):
    with rocketlake.open_store(tmp_path / "store", raise_on_failure=False) as opened:
        yield opened


@pytest.mark.parametrize(
    "topic",
    ["a@b", "a b", "x\x02y", "x.bak", "%DLQ%..", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"],
)
@pytest.mark.parametrize("way", ["put_batch", "put_batch_async", "put", "put_async"])
def test_topic_that_nobody_can_read_is_refused(store, topic, way):
    message = Message(topic=topic, body=b"x")
    with pytest.raises(ValueError, match="topic = "):
        getattr(store, way)([message, message] if "batch" in way else message)
    assert store.topics() == []


def test_own_topics_in_the_table_of_a_broker_are_not_written(tmp_path):
    root = tmp_path / "store"
    rocketlake.open_store(root).close()
    (root / "config").mkdir(exist_ok=True)
    entry = {"topicName": "SCHEDULE_TOPIC_XXXX", "readQueueNums": 18, "writeQueueNums": 18}
    table = {"topicConfigTable": {"SCHEDULE_TOPIC_XXXX": {**entry, "perm": 6}}}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    with (
        rocketlake.open_store(root) as store,
        pytest.raises(ValueError, match="is the store's own"),
    ):
        store.put(Message(topic="SCHEDULE_TOPIC_XXXX", body=b"x"))


@pytest.mark.parametrize("group", [5, None, "", "a/b"])
def test_group_is_checked_before_it_is_noted(tmp_path, group):
    with rocketlake.open_store(tmp_path) as store:
        receipt = store.put(Message(topic="T", body=b"x"))
        calls = (
            lambda: store.join_group(group),
            lambda: store.send_back(group, receipt.physical_offset),
            lambda: store.reset_offsets(group, "T", "first"),
            lambda: store.consumer(group, "T"),
        )
        for call in calls:
            with pytest.raises((TypeError, ValueError), match="group = "):
                call()
    rocketlake.open_store(tmp_path).close()


def test_attributes_are_texts(store):
    with pytest.raises(TypeError, match="wanted str"):
        store.create_topic("T", attributes={"a": 5})
    store.create_topic("T")
    with pytest.raises(TypeError, match="wanted str"):
        store.update_topic("T", attributes={5: "a"})


def test_topics_whose_table_cannot_be_written(store):
    path = store.path / "config" / "topics.json.tmp"
    store.put(Message(topic="before", body=b"x"))
    path.mkdir()
    store.put(Message(topic="one", body=b"x"), queue_id=0)
    store.put_batch([Message(topic="two", body=b"x")], queue_id=0)
    store.put_async(Message(topic="three", body=b"x"), queue_id=0).result()
    with pytest.raises(rocketlake.StoreError):
        store.create_topic("four")
    with pytest.raises(rocketlake.StoreError):
        store.update_topic("one", queues=9)
    assert store.topic("four") is None
    assert store.topic("one").read_queue_count != 9
    path.rmdir()
    for topic in ("one", "two", "three"):
        store.put(Message(topic=topic, body=b"y"), queue_id=0)
        assert store.max_offset(topic, 0) == 2
    store.create_topic("four")
    names = [config.name for config in store.topics()]
    assert names == ["before", "four", "one", "three", "two"]
    written = json.loads((store.path / "config" / "topics.json").read_text())
    assert set(names) <= set(written["topicConfigTable"])
