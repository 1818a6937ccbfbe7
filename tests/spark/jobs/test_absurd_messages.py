"""No job is stopped by one message: odd times, sizes and bytes, through every job and table."""

import shutil
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from rocketlake.spark import jobs
from rocketlake.spark.jobs.archive.tasks import FILE_SCHEMA, completed
from rocketlake.spark.jobs.selection import Selection
from rocketlake.spark.pipelines.samples import sample_topic
from rocketlake.spark.reading.partitions import read_partition
from rocketlake.spark.schema import MESSAGE_SCHEMA, arrow_schema
from rocketlake.store.offline import OfflineStore
from support.absurd_store import AbsurdStore
from support.command import run
from support.spark_reading import read_table

RAW = ("queue_offset", "store_timestamp_ms", "born_timestamp_ms")
FILE_ARROW = arrow_schema(FILE_SCHEMA)
NO_CALENDAR = 5  # of the times
ODD_TIMES = 2 * NO_CALENDAR


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> AbsurdStore:
    return AbsurdStore(tmp_path_factory.mktemp("odd") / "store")


def raw_of(odd: AbsurdStore, **options: object) -> dict[int, tuple[int, int]]:
    table = read_table(options.pop("path", odd.root), ("topic", *RAW), **options)
    rows = table.filter(pc.equal(table["topic"], "T")).to_pylist()
    known = {message.queue_offset for message in odd.odd}
    return {
        row["queue_offset"]: (row["store_timestamp_ms"], row["born_timestamp_ms"])
        for row in rows
        if row["queue_offset"] in known
    }


@pytest.mark.parametrize("options", [{"topic": "T"}, {}, {"topic": "T", "minPartitions": 5}])
def test_times_that_no_calendar_has_are_null_beside_their_numbers(odd, options) -> None:
    table = read_table(odd.root, **options)
    table = table.filter(pc.equal(table["topic"], "T"))
    assert table.num_rows == odd.count
    assert table["born_timestamp"].null_count == NO_CALENDAR
    assert table["store_timestamp"].null_count == NO_CALENDAR
    wanted = {message.queue_offset: (message.stored, message.born) for message in odd.odd}
    assert raw_of(odd, **options) == wanted
    sizes = Counter(len(body) for body in table["body"].to_pylist())
    assert sizes == Counter(m.body_size for m in odd.odd) + Counter({5: odd.count - len(odd.odd)})


@pytest.mark.parametrize("name", ["log", "queue", "index", "progress", "checkpoint"])
def test_every_table_is_read(odd, name) -> None:
    assert read_table(odd.root, table=name).num_rows in {
        0,
        1,
        odd.count,
        odd.count + 1,
        odd.count + 3,
    }


def test_an_archive_has_every_message_and_the_numbers(odd, spark: SparkSession, tmp_path) -> None:
    report = jobs.archive(spark, odd.root, tmp_path / "a")
    assert (report.left_out, report.odd_times) == (0, ODD_TIMES)
    assert f"{ODD_TIMES} messages have a time outside of the years 1 to 9999" in "\n".join(
        report.lines()
    )
    archived = {"topic": "T", "archive": tmp_path / "a"}
    assert raw_of(odd, **archived) == raw_of(odd, topic="T")
    again = jobs.archive(spark, odd.root, tmp_path / "a")
    assert again.rows == 0
    frame = spark.read.parquet(str(tmp_path / "a")).where("topic = 'T'")
    lost = frame.where("born_timestamp IS NULL AND born_timestamp_ms IS NULL").count()
    assert (frame.count(), lost) == (odd.count, 0)
    limits = {"startingTimestamp": "9999-01-01", "startingOffsetsByTimestampStrategy": "latest"}
    assert read_table(odd.root, RAW, **archived, **limits).num_rows == 0


def test_a_file_of_an_earlier_release_is_grown(odd, tmp_path) -> None:
    settings = jobs.ArchiveSettings(topics=("T",))
    plan = jobs.plan_archive(odd.root, tmp_path / "a", settings)
    (part, *_) = plan.tasks[0].parts
    batches = list(read_partition(part, MESSAGE_SCHEMA, plan.source()))
    old = [completed(batch.drop_columns(["topic"]), FILE_ARROW) for batch in batches]
    assert {batch["born_timestamp_ms"].null_count == batch.num_rows for batch in old} == {True}


def test_verify_rebuild_and_dispatch(odd, spark: SparkSession, tmp_path) -> None:
    kinds = jobs.verify(spark, odd.root).summary.kinds
    assert set(kinds) <= {"records", "index", "not queued", "topics"}, kinds
    for name in ("r", "d"):
        shutil.copytree(odd.root, tmp_path / name)
    rebuilt = jobs.rebuild(spark, tmp_path / "r")
    assert (rebuilt.records, rebuilt.bad_parts) == (odd.count + odd.in_log_only, 0)
    assert raw_of(odd, path=tmp_path / "r", topic="T") == raw_of(odd, topic="T")
    jobs.dispatch(spark, tmp_path / "d")
    assert raw_of(odd, path=tmp_path / "d", topic="T") == raw_of(odd, topic="T")


def test_profile_counts_them(odd, spark: SparkSession) -> None:
    profile = jobs.profile(spark, str(odd.root))
    assert profile.summary.messages == odd.count + odd.in_log_only
    assert any(note.startswith(f"{ODD_TIMES} messages have a time") for note in profile.notes)


def test_compact_and_replay_write_every_message(odd, spark: SparkSession, tmp_path) -> None:
    selection = Selection(path=str(odd.root), topic="T")
    settings = jobs.CompactSettings(by="property:none", keeps_keyless=True)
    compacted = jobs.compact(spark, selection, tmp_path / "c", settings=settings)
    replayed = jobs.replay(spark, selection, tmp_path / "r")
    assert (compacted.kept, compacted.too_large) == (odd.count, 0)
    assert (replayed.messages, replayed.left_out) == (odd.count, 0)
    wanted = bodies(odd.root)
    assert bodies(tmp_path / "c") == wanted == bodies(tmp_path / "r")


def bodies(root: Path) -> Counter:
    return Counter(read_table(root, ("body",), topic="T")["body"].to_pylist())


def test_a_stream_reads_them(odd, spark: SparkSession, tmp_path) -> None:
    frame = spark.readStream.format("rocketlake").options(path=str(odd.root), topic="T")
    limited = frame.option("maxOffsetsPerTrigger", "10").load()
    written = limited.withColumn("size", sf.length("body")).drop("body").writeStream
    query = (
        written.format("parquet")
        .options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "cp"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.count() == odd.count
    assert found.where("born_timestamp IS NULL").count() == NO_CALENDAR


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_an_export_has_every_message(odd, tmp_path, kind) -> None:
    out = tmp_path / f"x.{kind}"
    ran = run("export", str(odd.root), str(out), "--topic", "T")
    assert ran.code == 0, ran.err
    assert (f"{ODD_TIMES} messages have a time" in ran.err) == (kind == "parquet")
    if kind == "parquet":
        rows = pq.read_table(out).to_pylist()
        assert sum(row["born_timestamp"] is None for row in rows) == NO_CALENDAR
    else:
        rows = out.read_bytes().splitlines()[kind == "csv" :]
    assert len(rows) == odd.count


def test_a_pipeline_looks_at_them(odd) -> None:
    with OfflineStore(odd.root) as store:
        assert sample_topic(store, "T").looked_at == odd.count
