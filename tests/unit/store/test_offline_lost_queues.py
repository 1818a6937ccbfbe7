"""Queue files lost since a store was closed: it is shown as a start would leave it."""

import os
import shutil

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.store.offline import OfflineStore

COUNT = 1500
SIZES = {"mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 2000}
QUEUE = "consumequeue/orders/2"


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "store"
    with rocketlake.open_store(path, SIZES) as store:
        store.create_topic("orders", 4)
        for number in range(COUNT):
            store.put(Message(topic="orders", body=b"%04d" % number), queue_id=number % 4)
    return path


def remove_queue(root):
    shutil.rmtree(root / QUEUE)


def remove_first_file(root):
    sorted((root / QUEUE).iterdir())[0].unlink()


def cut_last_file(root):
    os.truncate(sorted((root / QUEUE).iterdir())[-1], 200)


def remove_last_files(root):
    for path in sorted((root / QUEUE).iterdir())[1:]:
        path.unlink()


@pytest.mark.parametrize(
    "lose", [remove_queue, remove_first_file, cut_last_file, remove_last_files]
)
def test_lost_units_are_shown_from_the_log(root, lose):
    lose(root)
    with OfflineStore(root) as view:
        found = [
            batch.columns.message(row).body
            for key in view.queues
            for batch in view.messages(key)
            for row in range(len(batch.columns))
        ]
        assert sorted(found) == [b"%04d" % number for number in range(COUNT)]
    with rocketlake.open_store(root, read_only=True) as store:
        assert store.min_offset("orders", 2) == 0
        assert [m.body for m in store.get("orders", 2, 7, 2).messages] == [b"0030", b"0034"]
    if lose is not cut_last_file:  # a file of the wrong size is refused, with the way out
        with rocketlake.open_store(root) as store:
            assert store.max_offset("orders", 2) == COUNT // 4


def test_topic_whose_queues_are_all_gone_counts_as_deleted(root):
    with rocketlake.open_store(root) as store:
        store.put(Message(topic="kept", body=b"x"))
    shutil.rmtree(root / "consumequeue" / "orders")
    with OfflineStore(root) as view:
        assert {key.topic for key in view.queues if view.queues[key].total} == {"kept"}
