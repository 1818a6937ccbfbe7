"""Copies with file queues of stores that 5.5.0 keeps in RocksDB: RocketMQ goes on with them.

The sources are the golden stores of tests/golden/rocksdb, with what RocketMQ read from them there.
"""

import json
from base64 import b64decode

import pytest
from reference_store import VERSIONS, ReferenceStore

import rocketlake
from rocketlake import Message
from support import command
from support.golden import ROCKSDB_DATA, GoldenStores, snapshot

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

SIZES = (
    ("mappedFileSizeCommitLog", "mapped_file_size_commit_log"),
    ("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue"),
    ("maxHashSlotNum", "max_hash_slot_num"),
    ("maxIndexNum", "max_index_num"),
)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version.startswith("5.")])
@pytest.mark.parametrize("name", ["queues-expired", "queues-killed", "tables-v2"])
def test_copy_goes_from_hand_to_hand(tmp_path, name, version):
    golden = GoldenStores.copy(name, tmp_path / "in", ROCKSDB_DATA)
    before, copy = snapshot(golden.root), tmp_path / "copy"
    ran = command.run("rebuild", golden.root, "--to", copy)
    assert ran.code == 0, ran.err
    assert snapshot(golden.root) == before

    with rocketlake.open_store(copy) as store:
        options = {key: getattr(store.options, field) for key, field in SIZES}
        ours = store.put(Message(topic="T", body=b"ours"), queue_id=0)
    assert ours.queue_offset == golden.case.bounds["T", 0][1]

    spec = tmp_path / "spec.json"
    messages = [
        {"topic": "T", "queueId": 0, "body": "theirs"},
        {"topic": "Gone", "queueId": 0, "body": "theirs"},
    ]
    spec.write_text(json.dumps({"options": options, "messages": messages}))
    reference = ReferenceStore(version)
    loaded, first, second = reference.append(spec, copy)
    assert loaded["load"]
    assert first["logicsOffset"] == ours.queue_offset + 1
    assert second["logicsOffset"] == golden.case.bounds["Gone", 0][1]

    answer = reference.dump([copy], spec)[copy]
    assert answer.loads, answer.error
    read = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in answer.messages}
    for wanted in golden.case.messages:
        found = read.pop((wanted["topic"], wanted["queueId"], wanted["queueOffset"]))
        for member in ("physicalOffset", "storeSize", "body", "properties", "msgId"):
            assert found[member] == wanted[member]
    assert sorted(b64decode(m["body"]) for m in read.values()) == [b"ours", b"theirs", b"theirs"]
    mins = {(q["topic"], q["queueId"]): q["minOffset"] for q in answer.queues}
    assert mins == {key: low for key, (low, _) in golden.case.bounds.items()}

    with rocketlake.open_store(copy) as store:
        assert store.put(Message(topic="Gone", body=b"x"), queue_id=0).queue_offset == (
            second["logicsOffset"] + 1
        )
