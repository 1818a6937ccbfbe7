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


@pytest.mark.parametrize("version", ["5.5.0", "5.3.3"])
def test_expired_store_is_read_the_same(tmp_path: Path, version: str):
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
    answers = ReferenceStore(version).dump([closed, killed], spec, queries)
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


@pytest.mark.parametrize("release", ["5.5.0", "5.3.3", "4.9.7"])
def test_store_whose_queues_lost_units_with_the_log_is_read_the_same(tmp_path: Path, release: str):
    """Queues end at a few messages, the log begins far behind them: units keep their numbers."""
    made, left, killed = tmp_path / "made", tmp_path / "left", tmp_path / "killed"
    options = {**OPTIONS, "compatVersion": release[:3]}
    with open_engine(made, SystemClock(), source=options) as ours:
        write(ours)
        shutil.copytree(made, left)
    lose(left)
    with open_engine(left, SystemClock(), source=options) as ours:
        put(ours, range(1000, 1020))
        ours.catch_up()
        ours.flush()
        wanted, bounds = read_all(ours)
        ours.parts.queues.flush(0)
        shutil.copytree(left, killed)
    assert {place[2] for place in wanted if place[:2] == ("A", 0)} >= {166, 167}
    spec, queries = tmp_path / "spec.json", tmp_path / "queries.json"
    spec.write_text(json.dumps({"options": OPTIONS, "messages": []}), encoding="utf-8")
    queries.write_text(json.dumps({"keys": []}), encoding="utf-8")
    answers = ReferenceStore(release).dump([left, killed], spec, queries)
    for store in (left, killed):
        answer = answers[store]
        assert answer.loads, answer.error
        theirs = {
            (line["topic"], line["queueId"], line["queueOffset"]): line["physicalOffset"]
            for line in answer.messages
        }
        assert theirs == wanted
        queues = {(q["topic"], q["queueId"]): q["maxOffset"] for q in answer.queues}
        assert {key: queues[key] for key in bounds} == bounds


def lose(store: Path) -> None:
    """Take what queues were not flushed of, and log files that were deleted before that."""
    for queue in (store / "consumequeue").glob("A/*"):
        for file in sorted(queue.iterdir())[2:]:
            file.unlink()
    for file in sorted((store / "commitlog").iterdir())[:6]:
        file.unlink()
    assert (store / "abort").exists()


def read_all(
    ours: MessageStore,
) -> tuple[dict[tuple[str, int, int], int], dict[tuple[str, int], int]]:
    """Where each message lies, and where the queues of topic A end."""
    found, ends = {}, {}
    for queue_id in range(3):
        low, high = ours.queue_bounds(QueueKey("A", queue_id))
        ends["A", queue_id] = high
        asked = GetRequest(topic="A", queue_id=queue_id, offset=low, max_messages=1000)
        for message in ours.get(asked).messages:
            found["A", queue_id, message.queue_offset] = message.physical_offset
        assert low > 0
        assert sum(place[1] == queue_id for place in found) == high - low
    return found, ends
