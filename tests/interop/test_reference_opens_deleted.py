"""RocketMQ opens a store with a topic that we deleted and made again, and reads the same."""

import json
from pathlib import Path

import pytest
from reference_store import ReferenceStore

from rocketlake.clock import SystemClock
from support.engine import open_engine, request

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

OPTIONS = {"mappedFileSizeCommitLog": 16384, "mappedFileSizeConsumeQueue": 400}


@pytest.mark.parametrize("version", ["5.5.0", "5.3.3", "4.9.7"])
def test_store_with_a_table_of_deleted_topics_is_read_the_same(tmp_path: Path, version: str):
    root = tmp_path / "store"
    with open_engine(root, SystemClock(), source=OPTIONS) as ours:
        for topic in ("T", "T", "Other"):
            ours.put(request(topic))
        ours.drop_topic("T")
        wanted = {("Other", 0, 0)}
        for _ in range(3):
            wanted.add(("T", 0, ours.put(request("T")).queue_offset))
    assert (root / "config" / "deletedTopics.json").exists()
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"options": OPTIONS, "messages": []}), encoding="utf-8")
    answer = ReferenceStore(version).dump([root], spec)[root]
    assert answer.loads, answer.error
    found = {(line["topic"], line["queueId"], line["queueOffset"]) for line in answer.messages}
    assert found == wanted
    assert (root / "config" / "deletedTopics.json").exists()
    with open_engine(root, SystemClock(), source=OPTIONS) as ours:
        assert ours.put(request("T")).queue_offset == 3
