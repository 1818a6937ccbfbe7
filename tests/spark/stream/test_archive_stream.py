"""A stream over an archive and its store: every message once, wherever it is by then."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import rocketlake
from rocketlake.errors import ConfigError, StoreError
from rocketlake.spark.jobs.archive.drop import drop_days
from rocketlake.spark.source import register
from spark.stream.stream_play import Play, finished, kept

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "jobs"))
from archive_parts import START_MS, GrowingStore, archive_here, in_order, read_here
from archive_upkeep_parts import SMALL, compact_here


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path / "broker-a", mapped_file_size_commit_log=32 << 10)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def everything(batches):
    return in_order(row for batch in batches for row in batch)


def expire(store: GrowingStore) -> None:
    with rocketlake.open_store(store.path, clock=store.clock, **store.options) as opened:
        assert opened.delete_expired(hours=0).files


def test_history_first_and_then_the_live_store(store: GrowingStore, target: Path) -> None:
    store.grow(700)
    archive_here(store.path, target)
    before = read_here(path=store.path, topic="orders")
    expire(store)
    store.grow(100)
    play = Play(store.path, archive=str(target), topic="orders", maxOffsetsPerTrigger="90")
    batches = play.drain()
    assert [len(batch) for batch in batches] == [90, 90, 90, 90, 40]
    assert [batch[0]["queue_offset"] for batch in batches[:1]] == [0]
    assert len(everything(batches)) == 400
    assert [row for row in everything(batches) if row in before] == before
    # What comes next, archived meanwhile or not.
    store.grow(20)
    assert len(play.step()) == 10
    store.grow(20)
    archive_here(store.path, target)
    expire(store)
    assert len(play.step()) == 10
    assert play.step() is None


def test_a_batch_is_the_same_when_its_messages_have_moved_to_the_archive(
    store: GrowingStore, target: Path
) -> None:
    """Planned from the store at first, and from the archive when it is read again."""
    store.grow(100)
    archive_here(store.path, target)
    store.grow(500)
    options = {"archive": str(target), "topicPattern": ".*", "maxOffsetsPerTrigger": "150"}
    play = Play(store.path, **options)
    batches = play.drain()
    assert len(batches) == 4
    archive_here(store.path, target, SMALL)
    expire(store)
    compact_here(target)
    again = Play(store.path, play.offsets, **options)
    for number, batch in enumerate(batches):
        assert in_order(again.again(number)) == in_order(batch)
    alone = {name: value for name, value in options.items() if name != "archive"}
    with pytest.raises(StoreError, match="data loss"):
        Play(store.path, play.offsets, **alone).again(0)
    # The store is gone for good: the checkpoint goes on with the archive alone.
    shutil.rmtree(store.path)
    options.pop("topicPattern")
    gone = Play("", play.offsets, topicPattern=".*", archive=str(target))
    gone.reader.stop()
    assert in_order(gone.again(1)) == in_order(batches[1])
    assert gone.step() is None


def test_a_query_that_fell_behind_its_store_goes_on_with_the_archive(
    store: GrowingStore, target: Path
) -> None:
    """A checkpoint without the option, and the same with it."""
    store.grow(200)
    play = Play(store.path, topic="orders", maxOffsetsPerTrigger="30")
    first = play.step()
    archive_here(store.path, target)
    whole = read_here(path=store.path, topic="orders")
    store.grow(500)
    archive_here(store.path, target)
    expire(store)
    with pytest.raises(StoreError, match="expired before they were read"):
        Play(store.path, play.offsets, topic="orders").step()
    rest = Play(store.path, play.offsets, topic="orders", archive=str(target)).drain()
    found = everything([first, *rest])
    assert len(found) == 350
    assert [row for row in found if row in whole] == whole


def test_new_runs_of_an_archive_are_the_stream_of_an_archive_alone(
    store: GrowingStore, target: Path
) -> None:
    store.grow(60)
    archive_here(store.path, target)
    play = Play("", archive=str(target), topicPattern=".*")
    batches = [play.step()]
    assert play.step() is None
    for _ in range(3):
        store.grow(40, ["orders", "payments", "refunds"])
        assert play.step() is None, "what is not archived is not read"
        archive_here(store.path, target)
        batches.append(play.step())
        assert play.step() is None
    assert everything(batches) == read_here(path=store.path, topicPattern=".*")
    assert [len(batch) for batch in batches] == [60, 40, 40, 40]
    compact_here(target)
    assert play.step() is None


@pytest.mark.parametrize("limit", [{"maxBytesPerTrigger": "2k"}, {"maxOffsetsPerTrigger": "7"}])
def test_limits_hold_across_the_seam(store: GrowingStore, target: Path, limit: dict) -> None:
    store.grow(100)
    archive_here(store.path, target)
    store.grow(40)
    play = Play(store.path, archive=str(target), topic="orders", **limit)
    batches = play.drain()
    assert everything(batches) == read_here(path=store.path, topic="orders")
    assert len(batches) >= 3
    sizes = [sum(row["store_size"] for row in batch) for batch in batches]
    assert max(sizes) <= 3 << 10 if "maxBytesPerTrigger" in limit else max(map(len, batches)) <= 7


@pytest.mark.parametrize("seconds", [0, 1, 300, 599, 640, 700, 730])
def test_a_start_by_time_is_found_in_archive_or_store(
    store: GrowingStore, target: Path, seconds: int
) -> None:
    store.grow(650)
    archive_here(store.path, target, SMALL)
    store.grow(50)
    archive_here(store.path, target, SMALL)
    store.grow(40)
    start = str(START_MS + seconds * 1000)
    options = {"topic": "orders", "startingTimestamp": start}
    wanted = read_here(path=store.path, **options)
    found = Play(store.path, archive=str(target), **options).drain()
    assert everything(found) == wanted
    late = {**options, "startingTimestamp": str(START_MS + 10_000_000)}
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy"):
        Play(store.path, archive=str(target), **late).step()
    late["startingOffsetsByTimestampStrategy"] = "latest"
    play = Play(store.path, archive=str(target), **late)
    assert play.step() == []  # it pins where the query begins
    store.grow(6)
    assert len(play.step()) == 3


def test_starting_offsets_reach_into_the_archive(store: GrowingStore, target: Path) -> None:
    store.grow(100)
    archive_here(store.path, target)
    store.grow(20)
    offsets = json.dumps({"orders": {"0": 3, "1": -2, "2": -1}})
    options = {"topic": "orders", "queueIds": "0-2", "startingOffsets": offsets}
    rows = everything(Play(store.path, archive=str(target), **options).drain())
    assert rows == read_here(path=store.path, **options)
    latest = Play(store.path, archive=str(target), topic="orders", startingOffsets="latest")
    assert latest.step() == []
    store.grow(4)
    assert len(latest.step()) == 2


def test_filters_and_columns(store: GrowingStore, target: Path) -> None:
    store.grow(100)
    archive_here(store.path, target)
    store.grow(50)
    options = {"topic": "orders", "tags": "red || blue", "sql": "n < 130"}
    found = Play(
        store.path, columns=["queue_id", "queue_offset", "topic"], archive=str(target), **options
    ).drain()
    wanted = read_here(path=store.path, **options)
    places = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in wanted]
    rows = [row for batch in found for row in batch]
    assert sorted((r["topic"], r["queue_id"], r["queue_offset"]) for r in rows) == places


def test_a_clock_that_was_set_back(store: GrowingStore, target: Path) -> None:
    """Files of two days have the same stretch of a queue; each message still comes once."""
    for jump in (0, -400_000, 300_000, -500_000):
        store.clock.advance_ms(jump)
        store.grow(330)
        archive_here(store.path, target, SMALL)
    whole = read_here(path=store.path, topic="orders")
    options = {"archive": str(target), "topic": "orders", "maxOffsetsPerTrigger": "37"}
    assert everything(Play(store.path, **options).drain()) == whole
    play = Play("", **options)
    first = play.step()
    compact_here(target)
    assert everything([first, *play.drain()]) == whole
    sized = {**options, "maxBytesPerTrigger": "3k"}
    sized.pop("maxOffsetsPerTrigger")
    assert everything(Play("", **sized).drain()) == whole
    drop_days(target, "2026-01-01")
    late = [row for row in whole if f"{row['store_timestamp']:%Y-%m-%d}" == "2026-01-01"]
    assert 0 < len(late) < len(whole)
    assert read_here(archive=target, topic="orders") == late
    assert everything(Play("", **options).drain()) == late
    store.grow(20)
    archive_here(store.path, target)
    assert len(read_here(archive=target, topic="orders")) == len(late) + 10


def test_what_is_in_neither_is_a_loss(store: GrowingStore, target: Path) -> None:
    store.grow(100, ["orders"])
    archive_here(store.path, target)
    store.grow(600, ["orders"])
    expire(store)
    options = {"archive": str(target), "topic": "orders"}
    with pytest.raises(StoreError, match="expired before they were archived"):
        Play(store.path, **options).step()
    rows = everything(Play(store.path, failOnDataLoss="false", **options).drain())
    assert rows == read_here(path=store.path, failOnDataLoss="false", **options)
    assert 100 < len(rows) < 700


def test_dropped_days_are_a_loss_for_who_has_not_read_them(
    store: GrowingStore, target: Path
) -> None:
    store.grow(1000)
    archive_here(store.path, target)
    options = {"archive": str(target), "topic": "orders", "maxOffsetsPerTrigger": "40"}
    play = Play("", **options)
    play.step()
    drop_days(target, "2026-01-01")
    with pytest.raises(StoreError, match="data loss"):
        play.step()
    rest = Play("", play.offsets, failOnDataLoss="false", **options).drain()
    assert everything(rest) == read_here(archive=target, topic="orders")
    fresh = Play("", **options)
    assert everything(fresh.drain()) == everything(rest)
    assert kept(fresh.reader.initialOffset()) != kept(play.reader.initialOffset())


def test_bad_input_names_the_way_out(store: GrowingStore, target: Path) -> None:
    with pytest.raises(StoreError, match=r"has no _manifest\.json"):
        Play("", archive=str(target), topic="orders").step()
    store.grow(10)
    archive_here(store.path, target)
    for options, text in (
        ({}, "needs a topic"),
        ({"topic": "order"}, "did you mean 'orders'"),
        ({"topic": "orders", "rawBody": "true"}, "rawBody does not go with archive"),
        ({"topic": "orders", "group": "g"}, "give path beside archive"),
        ({"topic": "orders", "key": "k1"}, "option key is for batches"),
        ({"topic": "orders", "path": f"other={store.path}"}, "knows the store .* as 'broker-a'"),
    ):
        given = {"archive": str(target), **options}
        with pytest.raises(ConfigError, match=text):
            Play(given.pop("path", ""), **given).step()


def test_on_spark_over_restarts(spark, store: GrowingStore, target: Path, tmp_path: Path) -> None:
    """Files written by a query that is stopped and started while messages move to the archive."""
    register(spark)
    store.grow(300)
    archive_here(store.path, target)
    options = {"path": str(store.path), "archive": str(target), "topic": "orders"}

    def start():
        stream = spark.readStream.format("rocketlake").options(**options, maxOffsetsPerTrigger="60")
        writer = stream.load().select("queue_id", "queue_offset", "body").writeStream
        return (
            writer.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )

    finished(start)
    for _ in range(2):
        store.grow(300)
        archive_here(store.path, target, SMALL)
        expire(store)
        compact_here(target)
        store.grow(20)
        finished(start)
    rows = spark.read.parquet(str(tmp_path / "table"))
    assert rows.count() == rows.distinct().count() == 470
