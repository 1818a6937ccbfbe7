"""How far behind a stream is, where Spark shows it: messages, bytes, seconds."""

import json

import pytest

from rocketlake.spark.source import register
from rocketlake.spark.stream import lag as behind
from rocketlake.spark.stream.lag import Behind
from rocketlake.spark.stream.listener import LagListener, read_lag
from spark.stream.stream_play import Play, finished
from support.store_builder import BEGIN_MS, StoreBuilder

COUNT = 30


@pytest.fixture
def store(tmp_path):
    """Messages over three queues, a millisecond apart from BEGIN_MS + 1 on."""
    builder = StoreBuilder(tmp_path / "s")
    for number in range(COUNT):
        builder.record("T", number % 3, b"x" * (10 + number))
    builder.write()
    return tmp_path / "s"


def sizes(store):
    """Return the size of each record, in the order of the log."""
    rows = [row for rows in Play(store, topic="T").drain() for row in rows]
    return [row["store_size"] for row in sorted(rows, key=lambda row: row["physical_offset"])]


def reported(play):
    return play.reader.reportLatestOffset().get("behind")


def test_each_batch_says_what_is_left_behind_it(store, monkeypatch):
    play = Play(store, topic="T", maxOffsetsPerTrigger="12")
    monkeypatch.setattr(play.reader._driver._clock, "now_ms", lambda: BEGIN_MS + 5000)
    size = sizes(store)
    assert reported(play) is None  # before the first look
    for read in (12, 24, COUNT):
        play.step()
        age = (5000 - (read + 1)) / 1000 if read < COUNT else 0.0
        wanted = {"rows": COUNT - read, "bytes": sum(size[read:]), "seconds": age}
        assert reported(play) == wanted
    assert play.step() is None
    assert reported(play) == {"rows": 0, "bytes": 0, "seconds": 0.0}


def test_bytes_of_much_are_reckoned_from_both_ends(store, monkeypatch):
    monkeypatch.setattr(behind, "_UNITS", 2)
    monkeypatch.setattr(behind, "_QUEUES_MAX", 2)
    play = Play(store, topic="T", maxOffsetsPerTrigger="3")
    play.step()
    found = reported(play)
    assert found["rows"] == COUNT - 3
    assert found["bytes"] == pytest.approx(sum(sizes(store)[3:]), rel=0.02)


def test_whole_log_is_behind_by_bytes(store, monkeypatch):
    play = Play(store, maxOffsetsPerTrigger="10")
    monkeypatch.setattr(play.reader._driver._clock, "now_ms", lambda: BEGIN_MS + 5000)
    play.step()
    assert reported(play) == {"rows": None, "bytes": sum(sizes(store)[10:]), "seconds": 4.989}


def test_what_expired_is_not_behind(store):
    play = Play(store, topic="T", startingOffsets="latest")
    play.step()
    assert reported(play) == {"rows": 0, "bytes": 0, "seconds": 0.0}


def test_progress_of_a_query_has_it(spark, store, tmp_path):
    register(spark)
    seen = []
    listener = LagListener(seen.append)
    spark.streams.addListener(listener)
    options = {"path": str(store), "topic": "T", "maxOffsetsPerTrigger": "24"}

    def start():
        stream = spark.readStream.format("rocketlake").options(**options).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(availableNow=True).start()

    try:
        query = finished(start)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert [found.behind.rows for found in seen] == [6, 0]
    assert seen[0].behind.bytes == sum(sizes(store)[24:])
    assert seen[0].behind.seconds > 60  # the store is of 2023
    assert "lag 6, " in str(seen[0])
    shown = json.loads(query.lastProgress.sources[0].latestOffset)["behind"]
    assert shown == {"rows": 0, "bytes": 0, "seconds": 0.0}
    assert read_lag(query.lastProgress).behind == Behind(0, 0, 0.0)
