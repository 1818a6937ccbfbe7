"""The archive job in a real session."""

from pathlib import Path

import pytest
from archive_parts import START_MS, GrowingStore, frame_rows, load, read_here
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import rocketlake
from rocketlake import failpoint
from rocketlake.errors import StoreError
from rocketlake.spark.jobs import ArchivePlan, ArchiveReport, ArchiveSettings, archive, plan_archive
from rocketlake.spark.jobs.archive.run import run_archive
from rocketlake.spark.optimizer.column_pruning import enable_column_pruning
from rocketlake.spark.schema import MESSAGE_SCHEMA


def test_archive_while_a_program_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Two runs and a live tail, put in between and during a run, are the whole topic."""
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(900)
    plan = archive(spark, store.path, target, dry_run=True)
    assert isinstance(plan, ArchivePlan)
    assert plan.messages == 900
    assert not target.exists()
    told: list[tuple[int, int]] = []
    with rocketlake.open_store(store.path, clock=store.clock) as opened:
        first = archive(
            spark, store.path, target, on_progress=lambda done, of: told.append((done, of))
        )
        assert isinstance(first, ArchiveReport)
        assert first.rows == 900
        assert told[-1][0] == told[-1][1] > 0
        store.put(opened, 200)
        # During a run: when executors have written, and nothing is decided yet.
        with failpoint.switched_on("archive_stage.after", lambda: store.put(opened, 50)):
            second = archive(spark, store.path, target)
        assert isinstance(second, ArchiveReport)
        assert second.rows == 200
        assert second.rewritten == second.files == 2
        joined = load(spark, path=store.path, archive=target, topicPattern=".*")
        assert frame_rows(joined) == read_here(path=store.path, topicPattern=".*")
        counted = joined.where(sf.col("queue_offset") >= 100).groupBy("topic").count()
        assert counted.agg(sf.sum("count")).first()[0] == 1150 - 800  # type: ignore[index]
    plain = spark.read.parquet(str(target))
    assert plain.where("date = '2025-12-31' AND topic = 'orders'").count() == 300
    names = [field.name for field in MESSAGE_SCHEMA.fields]
    archived = read_here(archive=target, topicPattern=".*")
    assert frame_rows(plain.select(*names)) == archived
    assert len(archived) == 1100


def test_a_failed_run_leaves_nothing_and_the_next_cleans_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(100)

    def fail() -> None:
        raise OSError("the driver lost its disk")

    with failpoint.switched_on("archive_commit.before", fail), pytest.raises(OSError, match="lost"):
        archive(spark, store.path, target)
    left = list((target / "_work").rglob("*.parquet"))
    assert left
    assert not (target / "_manifest.json").exists()
    plan = plan_archive(store.path, target)
    report = archive(spark, store.path, target)
    assert isinstance(report, ArchiveReport)
    assert (report.rows, report.left_out) == (100, 0)
    assert not any(path.exists() for path in left)
    with pytest.raises(StoreError, match="another run was faster"):
        run_archive(spark, plan)
    again = archive(spark, store.path, target)
    assert list(again.lines()) == [f"nothing new for {target}"]


def test_a_table_of_another_format(spark: SparkSession, tmp_path: Path) -> None:
    """Killed before and after the write of the table, it has each message once all the same."""
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "table"
    settings = ArchiveSettings(format="orc", topics=("orders",))
    store.grow(100)

    def fail() -> None:
        raise OSError("killed")

    for point, count in (("archive_table.before", 60), ("archive_table.after", 40)):
        with failpoint.switched_on(point, fail), pytest.raises(OSError, match="killed"):
            archive(spark, store.path, target, settings=settings)
        store.grow(count)
    report = archive(spark, store.path, target, settings=settings)
    assert isinstance(report, ArchiveReport)
    assert report.rows == 50  # the run that was killed is finished first
    found = spark.read.orc(str(target))
    assert found.select("queue_id", "queue_offset").distinct().count() == found.count() == 100
    assert {str(row.date) for row in found.select("date").distinct().collect()} == {"2025-12-31"}
    with pytest.raises(StoreError, match="in the format orc, which only Spark reads"):
        read_here(archive=target, topic="orders")
    with pytest.raises(StoreError, match="format orc, not parquet"):
        archive(spark, store.path, target)


def test_filters_reach_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(1200)
    archive(spark, store.path, target)
    own = spark.newSession()
    enable_column_pruning(own)
    frame = load(own, archive=target, topicPattern=".*")
    moment = sf.timestamp_millis(sf.lit(START_MS + 1_000_000))
    wanted = (sf.col("store_timestamp") >= moment) & (sf.col("topic") == "orders")
    rows = frame.where(wanted & (sf.col("queue_id") == 1)).collect()
    every = read_here(path=store.path, topic="orders", queueIds="1")
    late = [r for r in every if r["store_timestamp"].timestamp() * 1000 >= START_MS + 1_000_000]
    assert sorted(r.queue_offset for r in rows) == [r["queue_offset"] for r in late]
