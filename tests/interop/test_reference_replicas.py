"""RocketMQ judges puts that wait for replicas, and stores made of its raw log bytes."""

import json
from pathlib import Path
from typing import Any

import pytest
from reference_store import ReferenceStore

from rocketlake.clock import SystemClock
from rocketlake.model.queues import QueueKey
from rocketlake.store.message_store import MessageStore
from rocketlake.store.options import BrokerRole
from support.engine import open_engine, request

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

SIZES = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
COMPAT = {"5.3.3": "5.3", "4.9.7": "4.9"}
MANY = {"inSyncReplicas": 2, "totalReplicas": 2, "slaveTimeout": 200}


def spec_of(path: Path, messages: list[dict[str, Any]], **options: object) -> Path:
    spec = {"options": {**SIZES, **options}, "messages": messages}
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("version", "options"),
    [
        ("5.3.3", {"brokerRole": "SYNC_MASTER"}),
        ("5.3.3", {"brokerRole": "SYNC_MASTER", **MANY}),
        ("5.3.3", {"brokerRole": "ASYNC_MASTER", **MANY}),
        ("4.9.7", {"brokerRole": "SYNC_MASTER", "slaveTimeout": 200}),
    ],
)
def test_puts_without_replicas_are_answered_the_same(
    tmp_path: Path, version: str, options: dict[str, object]
):
    kinds: list[dict[str, str]] = [{}, {"WAIT": "true"}, {"WAIT": "false"}]
    messages = [{"topic": "T", "body": "b", "properties": kind} for kind in kinds]
    spec = spec_of(tmp_path / "spec.json", messages, **options)
    theirs = [line["status"] for line in ReferenceStore(version).write(spec, tmp_path / "theirs")]
    known = {name: value for name, value in options.items() if name != "totalReplicas"}
    source = {**SIZES, **known, "compatVersion": COMPAT[version]}
    with open_engine(tmp_path / "ours", SystemClock(), source=source) as store:
        ours = [str(store.put(request("T", properties=kind)).status) for kind in kinds]
    assert ours == theirs


def messages_of(count: int) -> list[dict[str, Any]]:
    return [
        {
            "topic": ("A", "B")[number % 2],
            "queueId": number % 3,
            "body": {"repeat": f"{number} ", "size": 100 + 37 * (number % 20)},
            "keys": f"k{number}",
            "tags": ("x", "y")[number % 2],
        }
        for number in range(count)
    ]


def log_files(root: Path) -> list[tuple[int, bytes]]:
    """Return where each file of a log begins, and its bytes."""
    return [(int(path.name), path.read_bytes()) for path in sorted((root / "commitlog").iterdir())]


def feed(replica: MessageStore, files: list[tuple[int, bytes]], end: int, step: int) -> None:
    """Append the bytes of a log in pieces of so many bytes, as a primary sends them."""
    for base, data in files:
        whole = data[: max(min(len(data), end - base), 0)]
        for at in range(0, len(whole), step):
            done = replica.append_raw(base + at, whole[at : at + step])
            assert done.is_whole, done.reason


@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_replica_of_rocketmqs_log_becomes_a_store_that_rocketmq_goes_on_with(
    tmp_path: Path, step: int
):
    """Fed with the bytes of RocketMQ's log, promoted, put to; then RocketMQ reads and appends."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    reference = ReferenceStore("5.3.3")
    written = reference.write(spec_of(tmp_path / "spec.json", messages_of(150)), theirs)
    end = written[-1]["wroteOffset"] + written[-1]["wroteBytes"]
    source = {**SIZES, "brokerRole": "SLAVE"}
    with open_engine(ours, SystemClock(), source=source) as replica:
        feed(replica, log_files(theirs), end, step)
        replica.change_role(BrokerRole.ASYNC_MASTER)
        for number in range(150, 160):
            receipt = replica.put(request(("A", "B")[number % 2], number % 3, b"%d" % number))
            assert (receipt.queue_offset, receipt.is_ok) == (number // 6, True)
        bounds = {
            (topic, queue_id): replica.queue_bounds(QueueKey(topic, queue_id))
            for topic in "AB"
            for queue_id in range(3)
        }
    assert not (ours / "abort").exists()
    empty = spec_of(tmp_path / "empty.json", [])
    (answer,) = reference.dump([ours], empty).values()
    assert answer.loads, answer.error
    assert (len(answer.messages), answer.missing) == (160, [])
    found = {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in answer.queues}
    assert found == bounds
    more = spec_of(tmp_path / "more.json", messages_of(6))
    recovered, *puts = reference.append(more, ours)
    assert recovered["load"], recovered
    assert [put["logicsOffset"] for put in puts] == [
        bounds["AB"[number % 2], number % 3][1] for number in range(6)
    ]


def test_replica_may_begin_with_the_last_file_as_rocketmqs_does(tmp_path: Path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    written = ReferenceStore("5.3.3").write(
        spec_of(tmp_path / "spec.json", messages_of(150)), theirs
    )
    end = written[-1]["wroteOffset"] + written[-1]["wroteBytes"]
    base, data = max(file for file in log_files(theirs) if file[0] < end)
    with open_engine(ours, SystemClock(), source={**SIZES, "brokerRole": "SLAVE"}) as replica:
        feed(replica, [(base, data)], end, 5000)
        replica.catch_up()
        expected = [line for line in written if line["wroteOffset"] >= base]
        assert 0 < len(expected) < 150
        for number in range(150 - len(expected), 150):
            key = QueueKey(("A", "B")[number % 2], number % 3)
            low, high = replica.queue_bounds(key)
            assert low <= number // 6 < high
