"""Messages by their tag, through the entries that RocketMQ 5.5 has in its index."""

import pytest
from embedded_fakes import bodies

import rocketlake
from rocketlake import Message
from support.manual_clock import ManualClock

T0 = 1_700_000_000_000


def test_tags_are_found_through_the_index(tmp_path):
    with rocketlake.open_store(tmp_path, compat_version="5.3") as store:
        store.put(Message(topic="orders", body=b"before 5.5", tags="paid"), queue_id=0)
    with rocketlake.open_store(tmp_path, clock=ManualClock(T0), compat_version="5.5") as store:
        store.put(Message(topic="orders", body=b"1", tags="paid", keys=["open"]), queue_id=0)
        store.put(Message(topic="orders", body=b"2", tags="open"), queue_id=1)
        store.put(Message(topic="orders", body=b"3", tags="paid"), queue_id=1)
        store.put(Message(topic="other", body=b"4", tags="paid"), queue_id=0)
        assert bodies(store.query("orders", tag="paid")) == ["1", "3"]
        assert bodies(store.query("orders", "open")) == ["1"]
        assert bodies(store.query("orders", tag="open")) == ["2"]
        assert bodies(store.query("orders", tag="paid", max_messages=1)) == ["3"]
        assert store.query("orders", tag="paid", begin=T0 + 1) == []
    with rocketlake.open_store(tmp_path, read_only=True) as store:
        assert bodies(store.query("orders", tag="paid")) == ["1", "3"]


def test_query_without_key_and_tag_says_what_is_wanted(tmp_path):
    with rocketlake.open_store(tmp_path) as store:
        for opened in (store, rocketlake.open_store(tmp_path, read_only=True)):
            with pytest.raises(TypeError) as caught:
                opened.query("orders")
            assert "no key and no tag: query('orders', key=" in str(caught.value)
            assert "tag=" in str(caught.value)
        opened.close()
