"""The first message of a topic nobody has made: threads that meet there, processes killed there."""

import os
import threading
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message, failpoint
from rocketlake.store.api import PutStatus


def test_put_meets_a_topic_that_another_thread_is_making(tmp_path: Path):
    """It has its entry, but not its route yet: that is no topic which may not be written."""
    answers = []

    def put() -> None:
        try:
            answers.append(store.put(Message(topic="new", body=b"second")).status)
        except ValueError as error:
            answers.append(error)

    second = threading.Thread(target=put)

    def meet() -> None:
        second.start()
        second.join(0.2)  # it waits for the entry to be written

    with rocketlake.open_store(tmp_path / "store") as store:
        with failpoint.switched_on("table.before", meet):
            assert store.put(Message(topic="new", body=b"first")).is_ok
        second.join()
        assert answers == [PutStatus.PUT_OK]


@pytest.mark.parametrize("keeps_queues", [True, False])
def test_topic_is_there_when_its_first_message_is(tmp_path: Path, keeps_queues: bool):
    """Killed between the first message and the entry of its topic."""
    root = tmp_path / "store"
    with rocketlake.open_store(root) as store:
        store.put(Message(topic="old", body=b"before"))
    child = os.fork()
    if child == 0:
        try:
            store = rocketlake.open_store(root)
            failpoint.switch_on("table.before", failpoint.kill)
            store.put(Message(topic="new", body=b"first"), queue_id=2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 9, "it was not killed"
    if not keeps_queues:
        for path in (root / "consumequeue" / "new").rglob("*"):
            if path.is_file():
                path.unlink()
    with rocketlake.open_store(root) as store:
        assert [topic.name for topic in store.topics()] == ["new", "old"]
        assert [message.body for message in store.consumer("g", "new", timeout=0)] == [b"first"]
        assert store.put(Message(topic="new", body=b"next"), queue_id=2).queue_offset == 1
    with rocketlake.open_store(root) as store:
        assert [message.body for message in store.get("new", 2, 0).messages] == [b"first", b"next"]


def test_deleted_topic_stays_deleted(tmp_path: Path):
    with rocketlake.open_store(tmp_path / "store") as store:
        store.put(Message(topic="kept", body=b"a"))
        store.put(Message(topic="gone", body=b"b"))
        store.delete_topic("gone")
    with rocketlake.open_store(tmp_path / "store") as store:
        assert [topic.name for topic in store.topics()] == ["kept"]
