"""Backups of stores in use, ours and RocketMQ's: RocketMQ opens the copies and reads them."""

import json
import shutil
import subprocess
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path

import pytest
import reference_store
from reference_store import ReferenceStore

import rocketlake
from rocketlake import Message, OfflineStore
from support import command

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

COUNT = 150_000
LIMIT_S = 120


def sizes_of(store: rocketlake.Store) -> dict[str, object]:
    named = (
        ("mappedFileSizeCommitLog", "mapped_file_size_commit_log"),
        ("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue"),
        ("maxHashSlotNum", "max_hash_slot_num"),
        ("maxIndexNum", "max_index_num"),
    )
    return {key: getattr(store.options, name) for key, name in named}


def backup(source: Path, copy: Path) -> int:
    """Make a backup; return where its log ends."""
    ran = command.run("backup", source, copy)
    assert ran.code == 0, ran.err
    end: int = json.loads((copy / "backup.json").read_text())["log_end"]
    return end


@pytest.mark.parametrize(
    ("version", "ours"), [("5.5.0", "5.5"), ("5.3.3", "5.3"), ("4.9.7", "4.9")]
)
def test_copy_of_our_open_store(tmp_path: Path, version: str, ours: str):
    source, copy = tmp_path / "store", tmp_path / "copy"
    spec, queries = tmp_path / "spec.json", tmp_path / "queries.json"
    with rocketlake.open_store(
        source, compat_version=ours, mapped_file_size_commit_log=32 << 10
    ) as store:
        for number in range(600):
            body = b"order %d" % number
            store.put(Message(topic="orders", body=body, tags="paid", keys=[f"o-{number}"]))
            if number in {250, 500}:
                backup(source, copy)
        backup(source, copy)
        spec.write_text(json.dumps({"options": sizes_of(store), "messages": []}))
    keys = [{"topic": "orders", "key": f"o-{number}"} for number in (0, 250, 599)]
    queries.write_text(json.dumps({"keys": keys}))
    answer = ReferenceStore(version).dump([copy], spec, queries)[copy]
    assert answer.loads, answer.error
    read = sorted(b64decode(line["body"]) for line in answer.messages)
    assert read == sorted(b"order %d" % number for number in range(600))
    assert [len(line["found"]) for line in answer.keys] == [1, 1, 1]


@pytest.mark.parametrize(
    ("version", "ours"), [("5.5.0", "5.5"), ("5.3.3", "5.3"), ("4.9.7", "4.9")]
)
def test_copy_of_a_store_with_good_records_behind_a_bad_one(
    tmp_path: Path, version: str, ours: str
):
    """Every byte is there: RocketMQ makes of the copy what it makes of the store."""
    source, copy, twin = tmp_path / "store", tmp_path / "copy", tmp_path / "twin"
    with rocketlake.open_store(
        source, compat_version=ours, mapped_file_size_commit_log=32 << 10
    ) as store:
        places = [
            store.put(Message(topic="orders", body=b"order %d" % number)).physical_offset
            for number in range(600)
        ]
        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps({"options": sizes_of(store), "messages": []}))
    (source / "abort").write_text("4711")
    (source / "checkpoint").write_bytes(bytes(4096))
    bad = places[300]
    with (source / "commitlog" / f"{bad >> 15 << 15:020}").open("r+b") as file:
        file.seek((bad & 0x7FFF) + 90)
        file.write(b"\xff\xff")
    shutil.copytree(source, twin)
    ran = command.run("backup", source, copy)
    assert ran.code == 1, ran.err
    assert "299 good records" in ran.err
    release = ReferenceStore(version)
    seen = bounds(release.recover(copy, spec))
    assert seen == bounds(release.recover(twin, spec))
    assert seen[0] == bad


def test_copy_while_rocketmq_writes(tmp_path: Path):
    source, copy, halfway = tmp_path / "store", tmp_path / "copy", tmp_path / "halfway"
    options = {"mappedFileSizeConsumeQueue": 20 * 30_000}
    release = ReferenceStore("5.5.0")
    writer = release.bench_put(
        source,
        *("--count", COUNT, "--size", 200, "--threads", 2, "--flush", "ASYNC"),
        *("--file-size", 16 << 20, "--options", json.dumps(options)),
    )
    try:
        wait_for(source / "commitlog", writer)
        ends: list[int] = []
        while writer.poll() is None:
            ends.append(backup(source, copy))
            if ends[-1] and not halfway.exists():
                shutil.copytree(copy, halfway)
        _, err = writer.communicate(timeout=LIMIT_S)
        assert writer.returncode == 0, err
    finally:
        reference_store.kill(writer)
    last = backup(source, copy)
    assert any(0 < end < last for end in ends), ends
    spec = tmp_path / "spec.json"
    shape = {**options, "mappedFileSizeCommitLog": 16 << 20}
    spec.write_text(json.dumps({"options": shape, "messages": []}))
    for root in (copy, halfway):
        with OfflineStore(root) as view:
            wanted = {str(key): (q.min_offset, q.max_offset) for key, q in view.queues.items()}
            end = view.max_offset
            assert not view.damage.findings
        assert bounds(release.recover(root, spec)) == (end, wanted)


def wait_for(place: Path, writer: subprocess.Popen[str]) -> None:
    """Wait until a directory is there."""
    until = time.monotonic() + LIMIT_S
    while not place.exists():
        assert time.monotonic() < until, "the writer makes no store"
        assert writer.poll() is None, "the writer came to its end"
        with suppress(subprocess.TimeoutExpired):
            writer.wait(0.02)


def bounds(line: reference_store.Line) -> tuple[int, dict[str, tuple[int, int]]]:
    queues = {
        f"{queue['topic']}/{queue['queueId']}": (queue["minOffset"], queue["maxOffset"])
        for queue in line["queues"]
    }
    return line["commitLogMax"], queues
