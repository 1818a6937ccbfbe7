"""Rebuild and dispatch jobs give a topic that was deleted and made again only its last life."""

import shutil

import pytest
from local_runner import LocalRunner

import rocketlake
from rocketlake.model.message import Message
from rocketlake.spark.jobs.dispatch.job import DispatchJob
from rocketlake.spark.jobs.rebuild import plan_rebuild, run_rebuild
from rocketlake.store.offline import OfflineStore
from support.manual_clock import ManualClock
from support.store_bytes import queue_bytes


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "store"
    with rocketlake.open_store(root, mapped_file_size_commit_log=16 << 10) as store:
        store.put(Message(topic="Other", body=b"o"), 0)
        for life in range(2):
            store.create_topic("T", 1)
            for number in range(3 + life):
                store.put(Message(topic="T", body=b"%d" % life, keys=[f"k{number}"]), 0)
            if not life:
                store.delete_topic("T")
    return root


def rebuild(root):
    with OfflineStore(root) as store:
        plan = plan_rebuild(store, part_bytes=300)
    run_rebuild(LocalRunner(), plan, clock=ManualClock())


def dispatch(root):
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    DispatchJob(LocalRunner(), root, part_bytes=300).run()


@pytest.mark.parametrize("job", [rebuild, dispatch])
def test_queues_of_the_last_life_are_made_again(root, job):
    before = queue_bytes(root)
    shutil.rmtree(root / "consumequeue" / "T")
    job(root)
    assert queue_bytes(root) == before
    with rocketlake.open_store(root, read_only=True) as store:
        assert [m.body for m in store.get("T", 0, 0).messages] == [b"1"] * 4
