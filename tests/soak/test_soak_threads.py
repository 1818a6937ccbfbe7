"""16 writers and 4 readers for minutes; the store is closed and opened again between rounds."""

import shutil

import pytest

from rocketlake.clock import SystemClock
from support.crowd import Crowd
from support.engine import open_engine

pytestmark = pytest.mark.soak

EACH = 500
ROUNDS_PER_STORE = 8
SIZES = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 1000 * 20,
    "max_hash_slot_num": 5000,
    "max_index_num": 20_000,
}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_writers_and_readers_for_minutes(tmp_path, rounds, flush):
    crowd = None
    for number in rounds:
        step = number % ROUNDS_PER_STORE
        root = tmp_path / str(number // ROUNDS_PER_STORE)
        with open_engine(root, SystemClock(), flush_disk_type=flush, **SIZES) as store:
            if crowd is None or step == 0:
                crowd = Crowd(store)
            crowd.reopened(store)
            crowd.run(EACH)
            assert crowd.check() == 16 * EACH * (step + 1)
        if step == ROUNDS_PER_STORE - 1:
            shutil.rmtree(root)
