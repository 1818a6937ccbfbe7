"""Verify, repair and backup of a store with a topic that was deleted, and made again."""

import os
import shutil

import pytest

import rocketlake
from rocketlake import Message, OfflineStore
from rocketlake.upkeep.repair.repairer import Repairer
from rocketlake.upkeep.verify.verifier import Verifier, VerifyOptions
from support import command, forks

SIZES = {"mapped_file_size_commit_log": 16 << 10, "mapped_file_size_consume_queue": 400}


def put(store, topic, *bodies):
    for body in bodies:
        store.put(Message(topic=topic, body=body, keys=["k"]), 0)


def write(store):
    """Put into a topic, delete it, make it again and put into it."""
    store.create_topic("T", 1)
    put(store, "T", b"a", b"b", b"c")
    put(store, "Other", b"o")
    store.max_offset("T", 0)
    store.delete_topic("T")
    store.create_topic("T", 1)
    put(store, "T", b"d", b"e")


def bodies(root):
    with rocketlake.open_store(root, read_only=True) as store:
        return [message.body for message in store.get("T", 0, 0).messages]


def verify(root):
    with OfflineStore(root) as store:
        verifier = Verifier(store, VerifyOptions(jobs=1))
        return verifier.run(), [fault.reason for fault in verifier.ledger.faults]


@pytest.fixture
def clean(tmp_path):
    with rocketlake.open_store(tmp_path / "store", **SIZES) as store:
        write(store)
    return tmp_path / "store"


@pytest.fixture
def killed(tmp_path):
    """A store that a process left which was killed."""

    def work(tell):
        write(rocketlake.open_store(tmp_path / "store", **SIZES))
        tell("written")
        os._exit(0)

    assert forks.run(work).lines == ["written"]
    return tmp_path / "store"


def test_verify_knows_earlier_lives_whatever_queues_are_there(clean):
    summary, faults = verify(clean)
    assert (faults, summary.earlier_lives, summary.deleted_topics) == ([], 3, {})
    shutil.rmtree(clean / "consumequeue" / "T")
    (clean / "abort").touch()
    summary, faults = verify(clean)
    assert (faults, summary.earlier_lives) == ([], 3)
    assert summary.pending.not_dispatched == 2


def test_verify_counts_messages_of_a_deleted_topic(clean):
    with rocketlake.open_store(clean) as store:
        store.delete_topic("T")
    summary, faults = verify(clean)
    assert (faults, summary.earlier_lives, summary.deleted_topics) == ([], 0, {"T": 5})


def test_verify_tells_of_queues_that_a_start_removes(tmp_path):
    root = tmp_path / "store"
    with rocketlake.open_store(root, **SIZES) as store:
        store.create_topic("T", 1)
        put(store, "T", b"a", b"b")
        store.max_offset("T", 0)
        shutil.copytree(root / "consumequeue" / "T", tmp_path / "T")
        store.delete_topic("T")
        put(store, "Other", b"o")
    shutil.copytree(tmp_path / "T", root / "consumequeue" / "T")
    (root / "abort").touch()
    summary, faults = verify(root)
    assert faults == []
    assert any("T/0" in note for note in summary.pending.notes)
    with rocketlake.open_store(root, read_only=True) as store:
        assert [topic.name for topic in store.topics()] == ["Other"]
    with rocketlake.open_store(root):
        assert not (root / "consumequeue" / "T").exists()


def test_repair_builds_the_queues_of_the_last_life(clean):
    shutil.rmtree(clean / "consumequeue")
    repairer = Repairer(lambda: OfflineStore(clean), clean, jobs=1)
    repairer.start()
    try:
        _, plan = repairer.verify()
        assert not plan.hopeless
        repairer.act(plan)
        summary, _ = repairer.verify()
    finally:
        repairer.close()
    assert summary.is_sound
    assert bodies(clean) == [b"d", b"e"]


def test_table_that_cannot_be_read_is_a_finding(clean):
    (clean / "config" / "deletedTopics.json").write_text("{")
    (clean / "config" / "deletedTopics.json.bak").unlink(missing_ok=True)
    summary, faults = verify(clean)
    assert summary.kinds["config tables"] == 1
    assert "deletedTopics.json" in faults[0]


@pytest.mark.parametrize("kind", ["clean", "killed"])
def test_backup_has_only_the_last_life(kind, request, tmp_path):
    root = request.getfixturevalue(kind)
    copy = tmp_path / "copy"
    assert command.run("backup", root, copy, "--verify").code == 0
    assert bodies(copy) == [b"d", b"e"]
    summary, faults = verify(copy)
    assert (faults, summary.earlier_lives) == ([], 3)
    with rocketlake.open_store(copy) as store:
        assert [m.body for m in store.get("T", 0, 0).messages] == [b"d", b"e"]


@pytest.mark.parametrize("prunes", [True, False])
def test_backups_of_a_store_in_use_whose_topic_comes_and_goes(tmp_path, prunes):
    root, copy = tmp_path / "store", tmp_path / "copy"
    arguments = ["--verify", *(["--prune"] if prunes else [])]
    with rocketlake.open_store(root, **SIZES) as store:
        put(store, "Stays", b"x")
        for turn in range(3):
            store.create_topic("T", 1)
            put(store, "T", *(b"%d" % number for number in range(5 + turn)))
            assert command.run("backup", root, copy, *arguments).code == 0
            assert len(bodies(copy)) == 5 + turn
            store.delete_topic("T")
            assert command.run("backup", root, copy, *arguments).code == 0
            assert not (copy / "consumequeue" / "T").exists()


def test_backup_describes_a_queue_that_it_made_as_it_is(tmp_path):
    """RocketMQ keeps no table of deleted topics: the copy gets a queue that the source has not."""
    root, copy = tmp_path / "store", tmp_path / "copy"
    with rocketlake.open_store(root, **SIZES) as store:
        put(store, "Stays", b"x")
        for _ in range(3):
            store.create_topic("T", 1)
            put(store, "T", b"a", b"b")
            store.delete_topic("T")
            (root / "config" / "deletedTopics.json").unlink()
            (root / "config" / "deletedTopics.json.bak").unlink(missing_ok=True)
            ran = command.run("backup", root, copy, "--verify")
            assert (ran.code, ran.err) == (0, "")
