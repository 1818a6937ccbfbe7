"""A disk that stands still in the middle of a flush, and goes on later."""

import os
import threading

import pytest
from store_bench import open_engine, request

from rocketlake.store.api import PutStatus


class StuckDisk:
    """Lets `fdatasync` stand still."""

    def __init__(self, monkeypatch):
        self.is_stuck = False
        self.has_come, self.go_on = threading.Event(), threading.Event()
        sync = os.fdatasync

        def wait_then_sync(descriptor):
            if self.is_stuck and threading.current_thread().name != "rocketlake-page-prefetcher":
                self.has_come.set()
                assert self.go_on.wait(30)
            sync(descriptor)

        monkeypatch.setattr(os, "fdatasync", wait_then_sync)


@pytest.fixture
def disk(monkeypatch):
    return StuckDisk(monkeypatch)


@pytest.fixture
def store(tmp_path, disk):
    store = open_engine(tmp_path, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=20)
    assert store.put(request()).is_ok  # its files are made now
    store.catch_up()
    yield store
    disk.go_on.set()
    store.close()


def test_puts_end_at_their_timeout(store, disk):
    disk.is_stuck = True
    first = store.put_async(request())
    assert disk.has_come.wait(10)
    assert store.put(request()).status is PutStatus.FLUSH_DISK_TIMEOUT
    assert first.result(10).status is PutStatus.FLUSH_DISK_TIMEOUT


def test_put_that_flushes_itself_is_late_but_says_so(store, disk):
    """It cannot leave the flush; those behind it keep their timeout."""
    disk.is_stuck = True
    answers = []
    thread = threading.Thread(target=lambda: answers.append(store.put(request())))
    thread.start()
    assert disk.has_come.wait(10)
    assert store.put(request()).status is PutStatus.FLUSH_DISK_TIMEOUT
    assert not answers
    disk.go_on.set()
    thread.join(10)
    assert [answer.status for answer in answers] == [PutStatus.FLUSH_DISK_TIMEOUT]


def test_while_the_disk_is_slow_no_put_flushes_itself(store, disk):
    store.parts.log_parts.flusher._is_slow = True
    disk.is_stuck = True
    assert store.put(request()).status is PutStatus.FLUSH_DISK_TIMEOUT
    disk.go_on.set()
    assert store.put_async(request()).result(10).status is PutStatus.PUT_OK
