"""RocketMQ opens what we wrote, reads every message, appends; then we go on, and RocketMQ again."""

import json
import os
import random
import subprocess
import sys
from base64 import b64decode
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import our_writing
import pytest
from our_writing import Line, Wrote
from reference_store import VERSIONS, Answer, ReferenceStore
from store_comparison import Circumstances, differences

import rocketlake
from rocketlake.model.message import Message, split_keys
from rocketlake.store.api import GetRequest, GetStatus
from rocketlake.store.offline import OfflineStore

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

READY_S = 60
KEYS = ("Aa", "BB", "k3", "k7", "ключ", "键", "zip", "b2", "late", "no such key")

Places = dict[tuple[str, int, int], Line]
"""What is in the queues: topic, queue and queue offset -> fields of the message."""


@pytest.mark.parametrize("version", VERSIONS)
def test_stores_go_from_hand_to_hand(tmp_path: Path, version: str):
    release = ReferenceStore(version)
    closed, killed = tmp_path / "closed", tmp_path / "killed"
    held = {
        closed: places(write_and_close(closed, version)),
        killed: places(write_and_be_killed(killed, version)),
    }
    spec = as_spec(tmp_path / "spec.json", version, [])
    check(release, held, spec, unclean={killed})

    for store, wanted in held.items():
        wanted.update(append(release, store, tmp_path / "more.json", version, wanted))
        with our_writing.open_ours(store, version) as ours:
            check_ours(ours, wanted)
            again = places(our_writing.write(ours, version, generation=1))
            assert not wanted.keys() & again.keys()
            wanted.update(again)
            check_ours(ours, wanted)
    # 5.5 indexes at most ten files of the log anew after an unclean stop, and leaves a gap.
    gaps = {killed} if version == "5.5.0" else set()
    check(release, held, spec, unclean=set(), gaps=gaps)


@pytest.mark.parametrize("version", ["5.5.0", "5.3.3", "4.9.7"])
def test_store_of_a_program_is_read(tmp_path: Path, version: str):
    """Nothing chosen: the files are small, and RocketMQ must only be told their sizes."""
    root = tmp_path / "store"
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    with rocketlake.open_store(root) as store:
        messages = [
            Message(
                topic="orders", body=f"order {number}".encode(), tags="paid", keys=[f"o-{number}"]
            )
            for number in range(40)
        ]
        for message in messages[:20]:
            assert store.put(message).status == "PUT_OK"
        store.put_batch(messages[20:], queue_id=3)
        store.put(Message(topic="orders", body=b"later", delay_level=18))
        store.put(Message(topic="orders", body=b"much later", deliver_at=in_an_hour))
        sizes = {
            key: getattr(store.options, name)
            for key, name in (
                ("mappedFileSizeCommitLog", "mapped_file_size_commit_log"),
                ("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue"),
                ("maxHashSlotNum", "max_hash_slot_num"),
                ("maxIndexNum", "max_index_num"),
            )
        }
    spec, queries = tmp_path / "spec.json", tmp_path / "queries.json"
    spec.write_text(json.dumps({"options": sizes, "messages": []}), encoding="utf-8")
    # The tag of a message is a key of this form in the index, which older releases find as well.
    keys = [{"topic": "orders", "key": key} for key in ("o-0", "o-25", "T#paid")]
    queries.write_text(json.dumps({"keys": keys}), encoding="utf-8")
    answer = ReferenceStore(version).dump([root], spec, queries)[root]
    assert answer.loads, answer.error
    read = {b64decode(line["body"]): line["topic"] for line in answer.messages}
    assert read.keys() - {message.body for message in messages} == {b"later", b"much later"}
    assert read[b"later"] == "SCHEDULE_TOPIC_XXXX"
    assert read[b"much later"] == "rmq_sys_wheel_timer"
    assert [len(line["found"]) for line in answer.keys] == [1, 1, 40]


# --- writing ------------------------------------------------------------------------------------


def write_and_close(store: Path, version: str) -> list[Wrote]:
    with our_writing.open_ours(store, version) as ours:
        return our_writing.write(ours, version, generation=0)


def write_and_be_killed(store: Path, version: str) -> list[Wrote]:
    """Write in a process of its own and kill it."""
    command = [sys.executable, our_writing.__file__, str(store), version]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the writing process said nothing"
    finally:
        process.kill()
        process.communicate(timeout=READY_S)
    assert (store / "abort").exists()
    return msgspec.json.decode(line, type=list[Wrote])


def append(
    release: ReferenceStore, store: Path, spec: Path, version: str, written: Places
) -> Places:
    """Have RocketMQ put into the store; it must go on with our queue offsets."""
    rng = random.Random(7)
    messages = [
        {
            "topic": rng.choice(("A", "Bb-topic", "Batch", "New")),
            "queueId": rng.randrange(2),
            "body": f"by RocketMQ {number}",
            "keys": f"k{number % 9} rocket",
            "bornTimestamp": 1_700_000_000_000 + number,
        }
        for number in range(40)
    ]
    recovered, *answers = release.append(as_spec(spec, version, messages), store)
    assert recovered["load"]
    found: Places = {}
    for message, answer in zip(messages, answers, strict=True):
        assert answer["status"] == "PUT_OK"
        place = message["topic"], message["queueId"], answer["logicsOffset"]
        topic, queue_id, offset = place
        assert offset == 0 or (topic, queue_id, offset - 1) in written | found, place
        assert place not in written
        found[place] = {
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "physicalOffset": answer["wroteOffset"],
            "msgId": answer["msgId"],
            "storeTimestamp": answer["storeTimestamp"],
            "properties": {"KEYS": message["keys"]},
            "bodyText": message["body"],
        }
    return found


def as_spec(path: Path, version: str, messages: list[Line]) -> Path:
    spec = {
        "options": our_writing.options(version),
        "topics": our_writing.topics(version),
        "messages": messages,
    }
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def places(wrote: list[Wrote]) -> Places:
    found = {one.queue: one.line for one in wrote}
    assert len(found) == len(wrote), "two messages at one place"
    return found


# --- what RocketMQ reads -----------------------------------------------------------------------


def check(
    release: ReferenceStore,
    held: dict[Path, Places],
    spec: Path,
    *,
    unclean: set[Path],
    gaps: Collection[Path] = (),
) -> None:
    queries = spec.with_name("queries.json")
    asked = {name: [] for name in ("keys", "times")}
    for wanted in held.values():
        for name, more in questions(wanted).items():
            asked[name] += more
    queries.write_text(json.dumps(asked), encoding="utf-8")
    answers = release.dump([*held], spec, queries)
    for store, wanted in held.items():
        answer, is_clean = answers[store], store not in unclean
        assert answer.loads, answer.error
        assert not answer.missing
        by_queue(answer, wanted)
        by_key(answer, wanted, is_clean=is_clean and store not in gaps)
        if store in gaps:
            answer.keys.clear()
        known = Circumstances(
            is_5x=release.version.startswith("5."), is_clean=is_clean, damage="", undamaged=answer
        )
        with OfflineStore(store) as view:
            assert not differences(answer, view, known)


def questions(wanted: Places) -> Line:
    times = sorted({line["storeTimestamp"] for line in wanted.values()})
    queues = random.Random(1).sample(sorted({place[:2] for place in wanted}), 6)
    return {
        "keys": [{"topic": topic, "key": key} for topic in ("A", "Batch") for key in KEYS],
        "times": [
            {"topic": topic, "queueId": queue_id, "timestamp": time + step}
            for topic, queue_id in queues
            for time in {times[0], times[len(times) // 3], times[-1]}
            for step in (-1, 0, 1)
        ],
    }


def by_queue(answer: Answer, wanted: Places) -> None:
    found = {
        (line["unit"]["topic"], line["unit"]["queueId"], line["unit"]["queueOffset"]): line
        for line in answer.messages
    }
    assert found.keys() == wanted.keys()
    for place, line in wanted.items():
        theirs = found[place]
        if "bodyText" in line:
            assert b64decode(theirs["body"]).decode() == line["bodyText"]
        wrong = {
            name: (theirs[name], value)
            for name, value in line.items()
            if name != "bodyText" and theirs[name] != value
        }
        assert not wrong, f"{place}: RocketMQ reads, we wrote: {wrong}"
    counts = {
        (line["topic"], line["queueId"]): (line["minOffset"], line["maxOffset"], line["pulled"])
        for line in answer.queues
    }
    sizes: dict[tuple[str, int], int] = {}
    for (topic, queue_id, _), line in wanted.items():
        size = int(line["properties"].get("INNER_NUM", 1))
        sizes[topic, queue_id] = sizes.get((topic, queue_id), 0) + size
    assert counts == {queue: (0, size, size) for queue, size in sizes.items()}


def by_key(answer: Answer, wanted: Places, *, is_clean: bool) -> None:
    """At most 64, the newest; after an unclean stop RocketMQ makes the index anew, in gaps."""
    for line in answer.keys:
        having = {
            one["physicalOffset"]
            for one in wanted.values()
            if one["topic"] == line["topic"]
            and line["key"] in split_keys(one["properties"].get("KEYS"))
        }
        found = {
            one["physicalOffset"]
            for one in line["found"]
            if one["topic"] == line["topic"] and line["key"] in split_keys(one["keys"])
        }
        assert found <= having
        if is_clean and len(line["found"]) < 64:
            assert found == having, f"{line['key']} of {line['topic']}"


# --- what we read ------------------------------------------------------------------------------


def check_ours(ours, wanted: Places) -> None:
    ours.catch_up()
    for topic, queue_id in {place[:2] for place in wanted}:
        offset = count = 0
        while True:
            asked = GetRequest(topic=topic, queue_id=queue_id, offset=offset, max_messages=50)
            result = ours.get(asked)
            if result.status is not GetStatus.FOUND:
                break
            for message in result.messages:
                # In a light queue a message has the offset that it has there.
                line = wanted[topic, queue_id, message.queue_offset]
                assert message.physical_offset == line["physicalOffset"]
                assert message.properties == line["properties"]
                body = line["bodyText"].encode() if "bodyText" in line else b64decode(line["body"])
                assert message.stored_body == body
            count += len(result.messages)
            offset = result.next_offset
        assert count == sum(place[:2] == (topic, queue_id) for place in wanted)
