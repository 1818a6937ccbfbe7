"""SQL92 subscriptions and their bits go from RocketMQ to us and back."""

import json
from pathlib import Path

import pytest
from reference_store import ReferenceStore

import rocketlake
from rocketlake.filters.message_filter import SqlMessageFilter
from rocketlake.metadata import filters

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

OPTIONS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "mappedFileSizeConsumeQueueExt": 4096,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "enableConsumeQueueExt": True,
    "enableCalcFilterBitMap": True,
}
EXPRESSION = "a > 30"


def spec(path: Path, values: range) -> Path:
    messages = [
        {"topic": "T", "queueId": 0, "body": str(value), "properties": {"a": str(value)}}
        for value in values
    ]
    subscription = {"topic": "T", "group": "g", "expression": EXPRESSION}
    # The pause: a subscription says nothing of messages of its own millisecond.
    content = {"options": OPTIONS, "filters": [subscription], "messages": [{"pause": 5}, *messages]}
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_bits_of_rocketmq_and_ours_are_used_as_one(tmp_path, monkeypatch, version):
    release, store = ReferenceStore(version), tmp_path / "store"
    release.write(spec(tmp_path / "first.json", range(60)), store)
    before = filters.load(store / "config").get("T", "g")
    evaluated = []
    matches = SqlMessageFilter.matches

    def spy(self, message):
        evaluated.append(int(message.body))
        return matches(self, message)

    monkeypatch.setattr(SqlMessageFilter, "matches", spy)
    with rocketlake.open_store(store, OPTIONS, compat_version=version[:3]) as ours:
        for value in range(60, 100):
            body = str(value % 50).encode()
            ours.put(rocketlake.Message(topic="T", body=body, properties={"a": body.decode()}), 0)
        with ours.consumer("g", "T", sql=EXPRESSION, timeout=0) as consumer:
            found = [int(message.body) for message in consumer]
        after = ours._filters.book.get("T", "g")
    wanted = [value for value in [*range(60), *(v % 50 for v in range(60, 100))] if value > 30]
    assert found == evaluated == wanted
    assert (after.born_time, after.bloom_filter_data) == (
        before.born_time,
        before.bloom_filter_data,
    )

    # RocketMQ enters the same subscription into the same bits, and puts more.
    release.append(spec(tmp_path / "more.json", range(25, 35)), store)
    again = filters.load(store / "config").get("T", "g")
    assert again.bloom_filter_data == before.bloom_filter_data
    evaluated.clear()
    with (
        rocketlake.open_store(store, OPTIONS, compat_version=version[:3]) as ours,
        ours.consumer("g", "T", sql=EXPRESSION, timeout=0) as consumer,
    ):
        assert [int(message.body) for message in consumer] == [31, 32, 33, 34]
    assert evaluated == [31, 32, 33, 34]
