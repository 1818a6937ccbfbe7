"""RocketMQ opens what the Spark sink wrote and goes on; then the sink goes on, and RocketMQ again.

That rows are the bytes of puts is shown elsewhere; here nobody but RocketMQ says what they are.
"""

import json
import random
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from reference_store import VERSIONS, Answer, ReferenceStore

from support.sink_kit import Sink, assert_sound, stream

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

COMPAT = {"5.5.0": "5.5", "5.3.3": "5.3", "4.9.7": "4.9", "4.6.0": "4.6"}
SIZES = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
ROWS = 200


def made_rows(first: int) -> list[dict[str, Any]]:
    rng = random.Random(first)
    return [
        {
            "body": rng.randbytes(rng.choice((0, 1, 40, 3000))) + b"#%d" % number,
            "topic": rng.choice(("orders", "payments")),
            "keys": [f"k{number}", "all"][: rng.randrange(3)],
            "tags": rng.choice(("red", "grün", None)),
            "properties": {"n": str(number), "empty": ""} if number % 3 else None,
            "queue_id": rng.choice((None, 2)),
            "ordering_key": rng.choice((None, "a", "b")),
            "delay_level": 18 if number % 20 == 0 else None,
            "flag": number,
        }
        for number in range(first, first + ROWS)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_the_sink_are_messages_of_rocketmq(tmp_path: Path, version: str) -> None:
    path, release = tmp_path / "store", ReferenceStore(version)
    conf = {**SIZES, "compatVersion": COMPAT[version]}
    sink = Sink(path, options=json.dumps(conf))
    rows = made_rows(0)
    sink.write(stream(0), rows[:130], rows[130:])
    check(release, path, rows)

    more = [
        {"topic": topic, "queueId": queue, "body": f"by RocketMQ {topic} {queue}"}
        for topic in ("orders", "payments")
        for queue in range(4)
    ]
    spec = tmp_path / "more.json"
    spec.write_text(json.dumps({"options": SIZES, "messages": more}), encoding="utf-8")
    recovered, *answers = release.append(spec, path)
    assert recovered["load"]
    assert {answer["status"] for answer in answers} == {"PUT_OK"}

    again = made_rows(ROWS)
    sink.write(stream(1), again)
    check(release, path, rows + again, others={message["body"].encode() for message in more})
    assert_sound(path)


def check(
    release: ReferenceStore,
    path: Path,
    rows: list[dict[str, Any]],
    others: set[bytes] = frozenset(),  # type: ignore[assignment] # never changed
) -> None:
    """RocketMQ reads each row once, as it was, by its queue and by its keys."""
    spec, queries = path.with_name("spec.json"), path.with_name("queries.json")
    spec.write_text(json.dumps({"options": SIZES, "messages": []}), encoding="utf-8")
    keyed = [row for row in rows if row["keys"] and not row["delay_level"]]
    asked = [{"topic": row["topic"], "key": row["keys"][0]} for row in keyed]
    queries.write_text(json.dumps({"keys": asked}), encoding="utf-8")
    answer = release.dump([path], spec, queries)[path]
    assert answer.loads, answer.error
    assert answer.missing == []
    read = by_body(answer)
    assert len(read) == len(answer.messages)
    assert read.keys() - {row["body"] for row in rows} == others
    for row in rows:
        check_row(read[row["body"]], row)
    assert [len(line["found"]) for line in answer.keys] == [1] * len(keyed)


def check_row(line: dict[str, Any], row: dict[str, Any]) -> None:
    properties = line["properties"]
    assert line["flag"] == row["flag"]
    assert properties.get("TAGS") == row["tags"]
    assert properties.get("KEYS", "").split() == row["keys"]
    assert properties.get("n") == (row["properties"] or {}).get("n")
    if row["delay_level"]:
        assert (line["topic"], properties["REAL_TOPIC"]) == ("SCHEDULE_TOPIC_XXXX", row["topic"])
        assert line["queueId"] == row["delay_level"] - 1
    else:
        assert line["topic"] == row["topic"]
        assert line["queueId"] == row["queue_id"] or row["queue_id"] is None


def by_body(answer: Answer) -> dict[bytes, dict[str, Any]]:
    return {b64decode(line["body"]): line for line in answer.messages}
