"""Rows through the sink are, byte for byte, the same messages put one by one at the same time."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

import rocketlake
from rocketlake.clock import SystemClock
from rocketlake.embedded.bulk_store import open_bulk
from rocketlake.spark.sink.row_errors import row_message
from support.manual_clock import ManualClock
from support.sink_kit import TYPES, Sink, assert_sound, stream
from support.store_bytes import bytes_of

NOW = SystemClock().now_ms()  # a message that is due far in the past would be delivered at once
SMALL = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 20,
    "maxIndexNum": 80,
    "diskRatioEnable": False,
}
CASES = {
    "usual": {},
    "small files": SMALL,
    "record checksums": {**SMALL, "enabledAppendPropCRC": True},
    "4.9": {**SMALL, "compatVersion": "4.9"},
    "IPv6": {**SMALL, "storeHost": "[::1]:10911"},
    "light queues": {**SMALL, "enableLmq": True, "enableMultiDispatch": True},
    "write buffers": {**SMALL, "transientStorePoolEnable": True, "transientStorePoolSize": 2},
}


def random_row(rng: random.Random, number: int, *, has_timer: bool) -> dict[str, object]:
    """Return a row with any columns, seldom those that make it a special one."""
    row: dict[str, object] = {
        "body": rng.randbytes(rng.choice((0, 1, 20, 300))),
        "topic": rng.choice(("orders", "payments", "t" * 127, None)),
        "queue_id": rng.choice((None, None, 0, 3)),
    }
    choices = {
        "keys": lambda: rng.choice(([f"k{number}"], ["a", "b", "c"], [])),
        "tags": lambda: rng.choice(("red", "blue", "", "grün")),
        "flag": lambda: rng.randrange(-5, 5),
        "unique_key": lambda: f"U{number}",
        "ordering_key": lambda: f"o{number % 5}",
        "properties": lambda: dict(
            rng.sample(
                [
                    *(("a", "1"), ("b", "x" * 50), ("KEYS", "mine"), ("TAGS", "own")),
                    *(("UNIQ_KEY", "W"), ("é", "ü"), ("empty", ""), ("none", None)),
                ],
                rng.randrange(4),
            )
        ),
    }
    for name, choose in choices.items():
        if rng.random() < 0.4:
            row[name] = choose()
    if rng.random() < 0.1:
        row["delay_level"] = rng.randrange(4)
    if has_timer and rng.random() < 0.05:
        row["deliver_at"] = (NOW + rng.randrange(-90_000, 90_000)) * 1000
    if rng.random() < 0.05:
        odd = {"WAIT": "false", "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "DELAY": "2"}
        name = rng.choice(sorted(odd))
        row["properties"] = {name: odd[name], "z": "1"}
    return row


def put_all(path: Path, conf: dict[str, object], rows: list[dict[str, object]]) -> None:
    """Put rows one by one, each into the queue whose turn it is; nothing is delivered meanwhile."""
    with open_bulk(path, conf, clock=ManualClock(NOW)) as door:
        for topic in {row.get("topic") or "orders" for row in rows}:
            # Why: the turns of a topic begin anew when its first message has made it.
            if door.store.topic(topic) is None:
                door.store.create_topic(topic)
        for row in rows:
            values = {name: pa.array([value], TYPES[name]) for name, value in row.items()}
            message = row_message(values, 0, "orders")
            assert door.store.put(message, row.get("queue_id")).is_ok


@pytest.mark.parametrize("case", CASES)
def test_rows_are_the_same_bytes_as_puts(tmp_path: Path, case: str) -> None:
    rng = random.Random(case)
    conf = CASES[case]
    rows = [random_row(rng, n, has_timer=case != "4.9") for n in range(240)]
    parts = [rows[:100], rows[100:101], rows[101:]]
    sink = Sink(tmp_path / "sink", ManualClock(NOW), options=json.dumps(conf))
    assert sink.write(stream(0), *parts) == len(rows)
    put_all(tmp_path / "put", conf, rows)
    ours, theirs = (
        bytes_of(tmp_path / name, [tmp_path / name / "commitlog"]) for name in ("sink", "put")
    )
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert_sound(tmp_path / "sink")


@pytest.mark.parametrize("file_size", [1_500_000, 64 << 20])
def test_rows_larger_than_the_window_they_are_sealed_in(tmp_path: Path, file_size: int) -> None:
    rng = random.Random(file_size)
    sizes = [700_000, *[rng.choice((10, 40_000, 200_000, 524_000)) for _ in range(40)], 900_000]
    rows = [{"body": bytes([n]) * size} for n, size in enumerate(sizes)]
    conf = {"mappedFileSizeCommitLog": file_size}
    Sink(tmp_path / "sink", ManualClock(NOW), options=json.dumps(conf)).write(stream(0), rows)
    put_all(tmp_path / "put", conf, rows)
    ours, theirs = (
        bytes_of(tmp_path / name, [tmp_path / name / "commitlog"]) for name in ("sink", "put")
    )
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    assert_sound(tmp_path / "sink")


def test_rows_of_batch_topics_and_plug_ins_are_put_one_by_one(tmp_path: Path) -> None:
    rows = [{"body": b"%d" % n, "tags": "t", "ordering_key": f"{n}"} for n in range(50)]
    conf = {"messageStorePlugIn": "sink_plug_in.Upper"}
    for name in ("sink", "put"):
        with rocketlake.open_store(tmp_path / name) as store:
            store.create_topic("orders", 3, attributes={"queue.type": "BatchCQ"})
    sink = Sink(tmp_path / "sink", ManualClock(NOW), options=json.dumps(conf))
    sink.write(stream(0), rows)
    put_all(tmp_path / "put", conf, rows)
    ours, theirs = (
        bytes_of(tmp_path / name, [tmp_path / name / "commitlog"]) for name in ("sink", "put")
    )
    assert ours == theirs
    assert any(b"SEEN" in data for data in ours.values())


def test_keys_may_be_one_text(tmp_path: Path) -> None:
    rows = [{"body": b"1", "keys": text} for text in ("a", " a  b ", "", None, "c d")]
    Sink(tmp_path / "s").write(stream(0), rows, keys=pa.string())
    with rocketlake.open_store(tmp_path / "s") as store:
        found = [m for queue in range(4) for m in store.get("orders", queue, 0).messages]
        keys = [m.keys for m in sorted(found, key=lambda m: m.physical_offset)]
        assert keys == [["a"], ["a", "b"], [], [], ["c", "d"]]
        assert len(store.query("orders", "b")) == 1
