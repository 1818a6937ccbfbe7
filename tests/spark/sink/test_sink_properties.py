"""Reserved properties with odd values: a row is refused before anything is written, or appended."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketlake
from rocketlake.clock import SystemClock
from rocketlake.files.ops import PosixFileOps
from rocketlake.model import properties as names
from rocketlake.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketlake.spark.sink.append import Append
from rocketlake.spark.sink.marks import MarkFiles
from rocketlake.spark.sink.rows import BadRowError, RowEncoder
from support.sink_kit import Sink, assert_sound, batch_of, bodies, staged_files, stream

Row = dict[str, Any]

RESERVED = sorted(
    value for name, value in vars(names).items() if name.isupper() and "SEPARATOR" not in name
)
ODD = (
    *("", "0", "1", "-1", "5", "+5", "007", "99", "abc", "1.5", " 3", "true", "false", "٣"),
    *("99999999999999", str(1 << 63), str(SystemClock().now_ms() + 3_600_000)),
    *("%LMQ%a,%LMQ%b", "%LMQ%a,,", "%LMQ%a/b", "orders", ",", "%LMQ%" + "x" * 300, "a" * 32_700),
)
LIGHT = {"enableLmq": True, "enableMultiDispatch": True}
STORES: dict[str, dict[str, Any]] = {
    "5.5": {},
    "light queues": LIGHT,
    "no timer": {"timerWheelEnable": False},
    "4.9": {"compatVersion": "4.9"},
    "4.9 with light queues": {"compatVersion": "4.9", **LIGHT},
    "4.6": {"compatVersion": "4.6"},
    "crc": {"enabledAppendPropCRC": True},
    "version 2": {"autoMessageVersionOnTopicLen": True},
}
TOPICS = ("orders", SCHEDULE_TOPIC, TIMER_TOPIC)


def sink_of(path: Path, options: dict[str, Any]) -> Sink:
    with rocketlake.open_store(path, options) as store:
        store.create_topic("orders", 4)
    return Sink(path, options=json.dumps(options))


def odd_rows() -> list[Row]:
    return [
        {
            "body": f"{name}={value[:40]}/{len(value)}".encode(),
            "properties": {name: value},
        }
        for name in RESERVED
        for value in ODD
    ]


def split(sink: Sink, rows: list[Row]) -> tuple[list[Row], dict[bytes, str]]:
    """Return the rows that can be staged, and for each other one why it cannot."""
    encoder = RowEncoder(sink.plan, 0, SystemClock())
    taken, refused = [], {}
    for row in rows:
        try:
            encoder.encode(batch_of([row]))
            taken.append(row)
        except BadRowError as error:
            refused[row["body"]] = str(error)
    return taken, refused


def appended(path: Path) -> Counter[bytes]:
    """Return how often each body is in the store, delayed or not."""
    return sum((bodies(path, topic) for topic in TOPICS), Counter())


@pytest.mark.parametrize("options", STORES.values(), ids=STORES)
def test_what_can_be_staged_can_be_appended(tmp_path: Path, options: dict[str, Any]) -> None:
    sink = sink_of(tmp_path / "s", options)
    taken, refused = split(sink, odd_rows())
    assert len(taken) > len(ODD) * len(RESERVED) // 2
    assert refused
    for words in refused.values():
        assert words.startswith("column properties")
        assert "of partition 0" in words
        assert words.endswith("Nothing was written")
    assert sink.write(stream(0), taken) == len(taken)
    assert appended(tmp_path / "s") == Counter(row["body"] for row in taken)
    assert_sound(tmp_path / "s")


@pytest.mark.parametrize("options", STORES.values(), ids=STORES)
def test_commit_that_was_killed_knows_such_rows_again(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    sink = sink_of(tmp_path / "s", options)
    taken, _ = split(sink, odd_rows())
    files = sink.stage(stream(0), taken)
    committer = sink.committer
    with committer._open() as store:
        mark = committer._start(store, stream(0), files)
        marks = MarkFiles(PosixFileOps(), tmp_path / "s")
        Append(store, PosixFileOps(), marks, mark).run(is_new=True)
    assert committer.finish_pending() == 1
    assert set(appended(tmp_path / "s").values()) == {1}


@pytest.mark.parametrize("seed", range(2))
def test_several_odd_values_in_one_row(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sink = sink_of(tmp_path / "s", LIGHT)
    soon = SystemClock().now_ms() * 1000 + 60_000_000
    rows: list[Row] = [
        {
            "body": b"%d" % number,
            "properties": {rng.choice(RESERVED): rng.choice(ODD) for _ in range(rng.randrange(4))},
            "delay_level": rng.choice((None, 0, 1, 18)),
            "deliver_at": rng.choice((None, None, 0, soon)),
            "queue_id": rng.choice((None, 3)),
            "ordering_key": rng.choice((None, "k")),
            "keys": ["k"] * rng.randrange(3),
        }
        for number in range(600)
    ]
    taken, _ = split(sink, rows)
    assert len(taken) > 100
    assert sink.write(stream(0), taken) == len(taken)
    assert appended(tmp_path / "s") == Counter(row["body"] for row in taken)


BAD = [
    ({"DELAY": "abc"}, "DELAY is 'abc', not a number"),
    ({"TIMER_DELAY_SEC": "abc"}, "TIMER_DELAY_SEC is 'abc': the time to deliver is not a number"),
    ({"TIMER_DELIVER_MS": "x"}, "TIMER_DELIVER_MS is 'x'"),
    ({"TIMER_DELIVER_MS": "99999999999999"}, "more than timerMaxDelaySec allows"),
    ({"INNER_NUM": "5"}, "INNER_NUM without the flag"),
    ({"TIMER_DELAY_SEC": "9", "TIMER_DEL_UNIQKEY": "u"}, "takes a timed message back"),
    ({"DELAY": "1", "a": "b" * 32_740}, "properties of 327"),
]


@pytest.mark.parametrize(("bad", "words"), BAD, ids=[words for _, words in BAD])
def test_row_the_store_would_refuse_is_named_when_it_is_staged(
    tmp_path: Path, bad: dict[str, str], words: str
) -> None:
    sink = Sink(tmp_path / "s")
    good = [{"body": b"%d" % n, "keys": [str(n)]} for n in range(5)]
    with pytest.raises(BadRowError) as caught:
        sink.write(stream(0), [*good, {"body": b"bad", "keys": ["k"], "properties": bad}, *good])
    text = str(caught.value)
    assert words in text
    assert "row 5 of partition 0 (keys=['k'])" in text
    assert staged_files(tmp_path / "s") == []
    assert sink.write(stream(0), good) == 5


@pytest.mark.parametrize("options", STORES.values(), ids=STORES)
def test_topic_that_is_too_long_for_the_release_is_named(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    sink = sink_of(tmp_path / "s", options)
    rows = [
        {"body": b"%d" % size, "topic": prefix + "t" * size}
        for prefix in ("", "%RETRY%", "%DLQ%", "%LMQ%")
        for size in (100, 120, 127, 128, 200, 248, 255, 300)
    ]
    taken, refused = split(sink, rows)
    assert taken
    assert all(words.startswith("column topic") for words in refused.values())
    assert sink.write(stream(0), taken) == len(taken)
