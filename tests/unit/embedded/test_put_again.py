"""`put_again`: a message as it was stored before, in a new record; topics and queues as needed."""

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import StoreError
from rocketlake.model.compression import Compression, deflate, flagged
from support.store_builder import StoreBuilder


def stored(tmp_path, *arguments, **fields):
    """A message of another store."""
    builder = StoreBuilder(tmp_path / "other", log_file_size=4000)
    root = builder.record(*arguments, **fields).write()
    with rocketlake.open_store(root, read_only=True) as store:
        (message,) = store.get(arguments[0], arguments[1], 0).messages
        return message


@pytest.fixture
def store(tmp_path):
    with rocketlake.open_store(tmp_path / "store") as store:
        yield store


def test_everything_but_the_place_stays(store, tmp_path):
    body = deflate(b"text " * 50, Compression.ZLIB)
    sys_flag = flagged(0, Compression.ZLIB)
    properties = {"UNIQ_KEY": "U1", "x": "y"}
    old = stored(
        tmp_path, "T", 1, body, tags="A", keys=["k"], properties=properties, sys_flag=sys_flag
    )
    store.put(Message(topic="T", body=b"before"), queue_id=1)
    receipt = store.put_again(old)
    assert (receipt.status, receipt.queue_offset) == ("PUT_OK", 1)
    (new,) = store.get("T", 1, 1).messages
    same = ("topic", "queue_id", "stored_body", "properties", "sys_flag", "flag", "born_timestamp")
    for name in (*same, "born_host", "reconsume_times", "tags", "keys"):
        assert getattr(new, name) == getattr(old, name), name
    assert new.body == b"text " * 50
    assert new.store_timestamp > old.store_timestamp


def test_topics_and_queues_are_made(store, tmp_path):
    old = stored(tmp_path, "New", 12, b"body")
    assert store.put_again(old).is_ok
    assert store.topic("New").read_queue_count == 13
    store.create_topic("Small", 1)
    other = stored(tmp_path, "Small", 3, b"body")
    assert store.put_again(other).is_ok
    assert (store.topic("Small").read_queue_count, store.topic("Small").write_queue_count) == (4, 4)


def test_what_cannot_be_is_refused(store, tmp_path):
    with pytest.raises(ValueError, match="70001 read queues; wanted 1 to"):
        store.put_again(stored(tmp_path, "T", 70_000, b"body"))
    assert store.topic("T") is None
    store.create_topic("Quiet", 2)
    store.update_topic("Quiet", writable=False)
    with pytest.raises(ValueError, match="may not be written"):
        store.put_again(stored(tmp_path, "Quiet", 0, b"body"))


def test_a_read_only_store_refuses(tmp_path):
    old = stored(tmp_path, "T", 0, b"body")
    with (
        rocketlake.open_store(tmp_path / "other", read_only=True) as store,
        pytest.raises(StoreError, match="read-only"),
    ):
        store.put_again(old)
