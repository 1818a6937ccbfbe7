"""The Spark half of the demo: the store that was just written, as tables.

A stream goes through it into another store, its topics are archived, a profile is drawn, one
message is followed through every stage, and archive and store are queried as one table.
"""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import rocketlake
from rocketlake import Message, OfflineStore
from rocketlake.cli import screen
from rocketlake.spark.jobs import ArchiveReport, archive, profile
from rocketlake.spark.jobs.profile.page.document import render
from rocketlake.spark.session import command_session

KEY = "o-1000"
Step = Callable[[Console, str, str], None]

BY_REGION = """
SELECT properties['region'] AS region, tags, count(*) AS messages,
       sum(get_json_object(decode(body, 'UTF-8'), '$.amount')) AS amount
FROM orders GROUP BY ALL ORDER BY ALL"""

FOLLOW = f"""
SELECT l.topic, l.queue_id, l.queue_offset, l.physical_offset, l.store_size,
       u.tags_code AS unit_tags_code, u.physical_offset = l.physical_offset AS unit_points_here,
       i.file AS index_file, i.entry AS index_entry,
       p.group, p.committed_offset, l.queue_offset < p.committed_offset AS consumed
FROM log l
JOIN queue u ON (u.topic, u.queue_id, u.queue_offset) = (l.topic, l.queue_id, l.queue_offset)
JOIN index i ON i.physical_offset = l.physical_offset
LEFT JOIN progress p ON (p.topic, p.queue_id) = (l.topic, l.queue_id)
WHERE array_contains(l.keys, '{KEY}')"""


def run_pipeline(console: Console, step: Step, store: Path, data: Path) -> Path:
    """Show every stage of the pipeline on a store; return where the report is."""
    for name in ("archive", "big", "checkpoint"):
        shutil.rmtree(data / name, ignore_errors=True)
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    step(console, "Spark, in local mode", 'spark.read.format("rocketlake").option("path", …)')
    with command_session("local[2]", name="rocketlake demo", conf=conf) as spark:
        tables(spark, store)
        show(console, spark.sql(BY_REGION), "orders, a topic as a table")
        stream(console, step, spark, (store, data / "big", data / "checkpoint"))
        keep(console, step, spark, (store, data / "archive"))
        step(
            console, "A profile of the store", f"rocketlake profile {store.name} --out report.html"
        )
        report = data / "report.html"
        report.write_text(render(profile(spark, str(store))), encoding="utf-8")
        console.print(f"rates, sizes, latency, tags, keys and lag, with plots: {report}")
        step(console, "One message through all stages", "SELECT … FROM log JOIN queue JOIN index …")
        follow(console, spark.sql(FOLLOW))
        step(console, "History and present as one table", '… .option("archive", …).load()')
        join(console, spark, (store, data / "archive"))
    return report


def tables(spark: SparkSession, store: Path) -> None:
    """Make a view of a topic, and one of each stage."""
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING rocketlake OPTIONS (path '{store}',"
        " topic 'orders')"
    )
    for name in ("log", "queue", "index", "progress"):
        reader = spark.read.format("rocketlake").option("path", str(store))
        reader.option("table", name).load().createOrReplaceTempView(name)


def stream(
    console: Console, step: Step, spark: SparkSession, paths: tuple[Path, Path, Path]
) -> None:
    """Let a stream take what is worth more than 900 into a store of its own, exactly once."""
    store, target, checkpoint = paths
    step(console, "A stream, from a topic into another store", "readStream … writeStream …")
    source = spark.readStream.format("rocketlake").option("path", str(store))
    rows = source.option("topic", "payments").option("maxOffsetsPerTrigger", 30_000).load()
    big = rows.where("get_json_object(decode(body, 'UTF-8'), '$.amount') > 900")
    query = (
        big.selectExpr("'big-payments' AS topic", "body", "keys", "tags")
        .writeStream.format("rocketlake")
        .option("path", str(target))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    count = sum(progress.numInputRows for progress in query.recentProgress)
    batches = sum(1 for progress in query.recentProgress if progress.numInputRows)
    with OfflineStore(target) as written:
        stored = sum(queue.max_offset - queue.min_offset for queue in written.queues.values())
    console.print(f"{count:,} messages in {batches} batches; {stored:,} were worth more than 900")


def keep(console: Console, step: Step, spark: SparkSession, paths: tuple[Path, Path]) -> None:
    """Archive topics."""
    store, target = paths
    step(console, "Archived", f"rocketlake archive {store.name} {target.name}")
    report = archive(spark, store, target)
    assert isinstance(report, ArchiveReport)
    for line in report.lines():
        console.print(line)


def join(console: Console, spark: SparkSession, paths: tuple[Path, Path]) -> None:
    """Put some more, and query archive and store as one table."""
    store, target = paths
    with rocketlake.open_store(store) as opened:
        opened.put_batch([Message(topic="orders", body=b'{"amount": 1}') for _ in range(1000)])
    options = {"path": str(store), "topic": "orders", "archive": str(target)}
    whole = spark.read.format("rocketlake").options(**options).load()
    places = whole.select("queue_id", "queue_offset")
    archived = spark.read.parquet(str(target)).where("topic = 'orders'")
    console.print(
        f"1,000 more orders put; archived are {archived.count():,}, archive and store as one table"
        f" have {whole.count():,}, {places.distinct().count():,} of them distinct"
    )


def follow(console: Console, found: DataFrame) -> None:
    """Print each stage's view of one message."""
    for row in found.collect():
        for name, value in row.asDict().items():
            console.print(f"  {name:>18}  {value}")


def show(console: Console, rows: DataFrame, title: str) -> None:
    """Print a small result."""
    table = screen.table(title, *rows.columns)
    for row in rows.collect():
        table.add_row(*_texts(row))
    console.print(table)


def _texts(values: Iterable[object]) -> list[str]:
    return ["" if value is None else str(value) for value in values]
