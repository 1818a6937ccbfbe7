"""16 writers and 4 readers: every message once, no gap, each writer's order kept."""

import pytest

from rocketlake.clock import SystemClock
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import KeyQuery
from support.crowd import Crowd
from support.engine import open_engine, request

SIZES = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 100 * 20,
    "max_hash_slot_num": 500,
    "max_index_num": 2000,
}


@pytest.mark.parametrize(
    ("each", "options"),
    [
        pytest.param(300, {}, id="async"),
        pytest.param(60, {"flush_disk_type": "SYNC_FLUSH"}, id="sync"),
        pytest.param(200, {"transient_store_pool_enable": True}, id="write buffers"),
    ],
)
def test_many_writers_and_readers(tmp_path, each, options):
    with open_engine(tmp_path, SystemClock(), **SIZES, **options) as store:
        crowd = Crowd(store, writers=16, readers=4)
        crowd.run(each)
        assert crowd.check() == 16 * each
        found = store.query(KeyQuery(topic="A", key="no such key")).messages
        assert not found


def test_reopened_store_goes_on(tmp_path):
    with open_engine(tmp_path, SystemClock(), **SIZES) as store:
        crowd = Crowd(store, writers=4, readers=2)
        crowd.run(50)
    for _ in range(3):
        with open_engine(tmp_path, SystemClock(), **SIZES) as store:
            crowd.reopened(store)
            crowd.run(50)
            assert crowd.check() % 200 == 0
    assert crowd.check() == 800


def test_dispatch_waits_for_the_rest_of_a_file_that_is_still_in_its_write_buffer(tmp_path):
    sizes = {**SIZES, "mapped_file_size_commit_log": 4096}
    never = {"commit_interval_commit_log": 1 << 30, "wake_commit_when_put_message": False}
    with open_engine(tmp_path, transient_store_pool_enable=True, **sizes, **never) as store:
        for number in range(60):  # into the second file, nothing of the first is committed
            store.put(request(body=bytes(100), keys=[f"k{number}"]))
            store.dispatcher.run_once()
        assert store.log.wrote_where > 2 * 4096
        assert store.queue_bounds(QueueKey("T", 0)) == (0, 60)
