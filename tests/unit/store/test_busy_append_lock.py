"""Puts while an append holds the lock for too long: when it is asked for, and what is answered."""

import pytest
from store_bench import open_engine, request

from rocketlake.model.message import Message
from rocketlake.store.api import PutStatus
from support.manual_clock import ManualClock


def test_busy_append_lock_refuses_others(tmp_path):
    clock = ManualClock()
    with open_engine(tmp_path, clock=clock) as store:
        store.put_plain(Message(topic="T", body=b""), 0)
        store.log.tail.lock_since_ms = clock.now_ms()
        clock.advance_ms(1000)
        assert store.put(request()).is_ok
        store.log.tail.lock_since_ms = clock.now_ms()
        clock.advance_ms(1001)
        with store.log.pause():
            assert store.put(request()).status is PutStatus.OS_PAGE_CACHE_BUSY
            busy = store.put_plain(Message(topic="T", body=b""), 0)
        assert busy.status is PutStatus.OS_PAGE_CACHE_BUSY
        assert store.put(request()).is_ok  # the time of an append that was interrupted is no lock


@pytest.mark.parametrize(
    ("version", "status"),
    [("4.6", "PROPERTIES_SIZE_EXCEEDED"), ("4.9", "OS_PAGE_CACHE_BUSY")],
)
def test_busy_lock_is_asked_for_last_by_4_6(tmp_path, version, status):
    clock = ManualClock()
    long = Message(topic="T", body=b"", properties={"name": "v" * 40_000})
    with open_engine(tmp_path, clock=clock, compat_version=version) as store:
        store.put_plain(Message(topic="T", body=b""), 0)
        store.log.tail.lock_since_ms = clock.now_ms()
        clock.advance_ms(1001)
        with store.log.pause():
            assert store.put_plain(long, 0).status == status
            assert store.put(request()).status is PutStatus.OS_PAGE_CACHE_BUSY
