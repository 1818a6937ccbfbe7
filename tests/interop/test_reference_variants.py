"""Stores of RocketMQ with a DLedger log, compacted topics, tiered storage: named, never misread."""

import json
import socket
import subprocess

import pytest
from reference_store import REFERENCE, VERSIONS, ReferenceStore

import rocketlake
from rocketlake.errors import StoreError
from rocketlake.store.offline import OfflineStore
from support import command
from support.golden import snapshot

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

NEWER = [version for version in VERSIONS if version.startswith("5.")]
SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def write(version, tmp_path, spec):
    path, root = tmp_path / "spec.json", tmp_path / "store"
    path.write_text(json.dumps({**spec, "options": SMALL | spec["options"]}))
    lines = ReferenceStore(version).write(path, root)
    assert {line["status"] for line in lines} == {"PUT_OK"}
    return root


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.parametrize("version", [v for v in VERSIONS if v != "4.6.0"])
def test_log_of_dledger_is_named_and_left_alone(tmp_path, version):
    """`repair` offered to build its queues anew from the plain log, which is empty."""
    options = {
        "enableDLegerCommitLog": True,
        "dLegerGroup": "g",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{free_port()}",
    }
    messages = [{"topic": "T", "body": text, "keys": "k"} for text in ("a", "b")]
    # The one copy elects itself meanwhile.
    spec = {"options": options, "messages": [{"pause": 6000}, *messages]}
    root = write(version, tmp_path, spec)
    before = snapshot(root)
    with OfflineStore(root) as store:
        assert store.traits.variants == ["DLedger log"]
        assert list(store.damage.findings) == []
        assert store.max_offset == 0
    for name in ("info", "verify"):
        ran = command.run(name, root)
        assert ran.code == 0, ran.err
        assert "DLedger" in ran.err
        assert "damage" not in ran.err
    for arguments in (("repair", root, "--yes"), ("backup", root, tmp_path / "copy")):
        ran = command.run(*arguments)
        assert ran.code == 2
        assert "DLedger" in ran.err
    for more in ({}, {"dispatch": "external"}, {"store_path_commit_log": str(root / "commitlog")}):
        with pytest.raises(StoreError, match="keeps its log in DLedger"):
            rocketlake.open_store(root, **more)
    assert snapshot(root) == before


@pytest.mark.parametrize("version", NEWER)
def test_compacted_topic_is_named_and_whole(tmp_path, version):
    topics = [{"name": "C", "attributes": {"cleanup.policy": "COMPACTION"}}]
    sent = [("a1", "a"), ("a2", "a"), ("b1", "b")]
    messages = [{"topic": "C", "body": body, "keys": key} for body, key in sent]
    options = {"enableCompaction": True, "compactionScheduleInternal": 1000}
    spec = {"options": options, "topics": topics, "broker": True, "messages": messages}
    root = write(version, tmp_path, spec | {"settle": 2000})
    before = snapshot(root)
    assert (root / "compaction" / "compactionLog" / "C").is_dir()
    assert "also holds: compaction topics" in command.run("info", root).out
    assert command.run("verify", root).code == 0
    ran = command.run("backup", root, tmp_path / "copy")
    assert ran.code == 2
    assert "has compaction topics" in ran.err
    with rocketlake.open_store(root, read_only=True) as store:
        assert [m.body.decode() for m in store.get("C", 0, 0).messages] == ["a1", "a2", "b1"]
    assert snapshot(root) == before


@pytest.mark.parametrize("version", NEWER)
def test_tiered_storage_is_named_wherever_its_files_are(tmp_path, version):
    """The store itself has only the list of what was moved; nothing in it is called `tiered…`."""
    root, moved = tmp_path / "store", tmp_path / "elsewhere"
    ran = subprocess.run(
        [str(REFERENCE / "tiered" / "write"), version, str(root), str(moved), "5"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout.split() == ["PUT_OK"] * 5 + ["MOVED"]
    before = snapshot(root)
    with OfflineStore(root) as store:
        assert store.traits.variants == ["tiered storage"]
    shown = command.run("info", root)
    assert "what was moved to tiered storage is not read" in shown.err
    assert command.run("verify", root).code == 0
    refused = command.run("backup", root, tmp_path / "copy")
    assert refused.code == 2
    assert "has tiered storage" in refused.err
    with rocketlake.open_store(root, read_only=True) as store:
        assert [m.body for m in store.get("T", 0, 0).messages] == [b"body %d" % n for n in range(5)]
    assert snapshot(root) == before
