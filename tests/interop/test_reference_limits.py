"""Where we refuse what RocketMQ takes: what becomes of it there."""

import json
from pathlib import Path

import pytest
from reference_store import ReferenceStore

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

OPTIONS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


@pytest.mark.parametrize(
    ("version", "topic"),
    [("4.9.7", "é" * 70), ("4.6.0", "é" * 70), ("5.3.3", "%RETRY%" + "é" * 100)],
)
def test_topic_whose_length_is_written_as_a_negative_byte_ends_the_log(
    tmp_path: Path, version: str, topic: str
):
    spec, store, copy = tmp_path / "spec.json", tmp_path / "store", tmp_path / "copy"
    messages = [
        {"topic": "a", "queueId": 0, "body": "one"},
        {"topic": topic, "queueId": 0, "body": "two"},
        {"topic": "a", "queueId": 0, "body": "three"},
    ]
    spec.write_text(json.dumps({"options": OPTIONS, "messages": messages}))
    release = ReferenceStore(version)
    assert [line["status"] for line in release.write(spec, store)] == ["PUT_OK"] * 3
    store.rename(copy)
    answer = release.dump([copy], spec)[copy]
    assert not answer.loads or len(answer.messages) == 1
