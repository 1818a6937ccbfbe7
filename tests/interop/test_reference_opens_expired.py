"""RocketMQ opens a store whose files we deleted, and reads the same."""

import json
import shutil
from pathlib import Path

import pytest
from reference_store import Answer, ReferenceStore
from store_comparison import Circumstances, differences

from rocketlake.clock import SystemClock
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest
from rocketlake.store.message_store import MessageStore
from rocketlake.store.offline import OfflineStore
from support.engine import open_engine, request

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

OPTIONS = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 120,
}
Bounds = dict[tuple[str, int], tuple[int, int]]


def test_expired_store_is_read_the_same(tmp_path: Path):
    closed, killed = tmp_path / "closed", tmp_path / "killed"
    with open_engine(closed, SystemClock(), source=OPTIONS) as ours:
        write(ours)
        deleted = ours.delete_expired(force=True)
        assert min(deleted.files, deleted.queue_files, deleted.index_files) > 1
        put(ours, range(1000, 1020))
        ours.catch_up()
        ours.flush()
        wanted, bounds = read(ours)
        shutil.copytree(closed, killed)
    assert (killed / "abort").exists()
    spec, queries = tmp_path / "spec.json", tmp_path / "queries.json"
    spec.write_text(json.dumps({"options": OPTIONS, "messages": []}), encoding="utf-8")
    keys = [{"topic": "A", "key": f"k{number}"} for number in (0, 1, 300, 1000, 1019)]
    queries.write_text(json.dumps({"keys": keys}), encoding="utf-8")
    answers = ReferenceStore("5.3.3").dump([closed, killed], spec, queries)
    for store in (closed, killed):
        check(answers[store], store, wanted, bounds)
    counts = [len(line["found"]) for line in answers[closed].keys]
    assert (counts[:2], counts[3:]) == ([0, 0], [1, 1])


def write(ours: MessageStore) -> None:
    for _ in range(30):
        ours.put(request("Old", 0, b"soon gone"))
    put(ours, range(500))
    ours.catch_up()
    ours.flush()


def put(ours: MessageStore, numbers: range) -> None:
    for number in numbers:
        message = request("A", number % 3, b"%d" % number + bytes(200), keys=[f"k{number}"])
        assert ours.put(message).is_ok


def read(ours: MessageStore) -> tuple[dict[tuple[str, int, int], int], Bounds]:
    """What is left: where each message lies, and the bounds of the queues."""
    found, bounds = {}, {}
    for key in (QueueKey("A", 0), QueueKey("A", 1), QueueKey("A", 2), QueueKey("Old", 0)):
        low, high = bounds[key.topic, key.queue_id] = ours.queue_bounds(key)
        asked = GetRequest(topic=key.topic, queue_id=key.queue_id, offset=low, max_messages=1000)
        for message in ours.get(asked).messages:
            found[key.topic, key.queue_id, message.queue_offset] = message.physical_offset
        assert len([place for place in found if place[:2] == tuple(bounds)[-1]]) == high - low
    assert bounds["Old", 0] == (30, 30)
    return found, bounds


def check(
    answer: Answer, store: Path, wanted: dict[tuple[str, int, int], int], bounds: Bounds
) -> None:
    assert answer.loads, answer.error
    assert not answer.missing
    theirs = {
        (line["topic"], line["queueId"], line["queueOffset"]): line["physicalOffset"]
        for line in answer.messages
    }
    assert theirs == wanted
    queues = {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in answer.queues}
    assert queues == bounds
    is_clean = not (store / "abort").exists()
    known = Circumstances(is_5x=True, is_clean=is_clean, damage="", undamaged=answer)
    with OfflineStore(store) as view:
        assert not differences(answer, view, known)
