"""Archives into a table of another format (Delta, Iceberg, …): Spark writes, the manifest counts.

| # | Step | After a kill |
| --- | --- | --- |
| 1 | the manifest says what is about to be written | the next run checks whether the table has it |
| 2 | Spark appends to the table: one commit of that format, marked with the run | the same |
| 3 | the manifest says that it was written | nothing to do |

A mark shows whether a table has a run (`table_marks`). Where there is none, because the format has
no marks or the table no longer lists the commit, the messages of the run are counted.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

import pyarrow as pa
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DateType, StructField, StructType

from rocketlake import failpoint
from rocketlake.errors import StoreError
from rocketlake.metadata.archive_manifest import Manifest, Pending, QueueEnd, write_manifest
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.plan import (
    ArchivePlan,
    ArchiveSettings,
    ArchiveTask,
    plan_archive,
)
from rocketlake.spark.jobs.archive.report import next_manifest
from rocketlake.spark.jobs.archive.table_marks import NAME_OPTION, TableMarks
from rocketlake.spark.progress import OnProgress, watching
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import read_partition
from rocketlake.spark.schema import MESSAGE_SCHEMA, arrow_schema

TABLE_SCHEMA: Final = StructType([*MESSAGE_SCHEMA.fields, StructField("date", DateType())])
ATOMIC: Final = frozenset({"delta", "hudi", "iceberg", "paimon"})
"""Formats in which a write is there as a whole or not at all."""


def run_table(
    spark: SparkSession,
    place: ArchiveDir,
    plan: ArchivePlan,
    *,
    at: str,
    on_progress: OnProgress | None = None,
) -> int:
    """Append what a plan has to the table; return how many messages that were."""
    if _has_table(spark, plan.settings, place):
        _check_unmarked(spark, plan)
    pending = Pending(run=plan.run, ends=plan.ends, gaps=plan.gaps, at=at)
    begun = structs.replace(plan.manifest, covers=plan.covers, pending=pending)
    write_manifest(place.ops, place.path, begun, "archive_commit")
    rows = 0
    failpoint.hit("archive_table.before")
    if plan.tasks:
        with watching(spark, on_progress):
            _append(frame_of(spark, plan), plan)
        found = _rows_of(spark, place, plan.settings, manifest=plan.manifest, run=pending)
        rows = found or 0
    failpoint.hit("archive_table.after")
    write_manifest(place.ops, place.path, next_manifest(plan, at, rows, {}), "archive_settle")
    return rows


def finish_pending(
    spark: SparkSession,
    place: ArchiveDir,
    *,
    manifest: Manifest,
    store: str,
    settings: ArchiveSettings,
) -> None:
    """Find out whether the table has what a killed run was about to write; write it if not.

    Raises:
        StoreError: it has a part of it, in a format whose writes are not whole or nothing.
    """
    pending = manifest.pending
    assert pending is not None, "there is nothing to finish"
    plan = plan_archive(store, place.path, settings, until=pending.ends)
    rows = None
    if _has_table(spark, settings, place):
        rows = _rows_of(spark, place, settings, manifest=manifest, run=pending)
    if rows is not None and settings.format not in ATOMIC and rows != plan.messages:
        raise StoreError(
            f"run {pending.run} was killed while it wrote to the table in {place.path}: {rows} of"
            f" {plan.messages} messages are there. The format {settings.format} has no commits:"
            " remove the files it left, or archive as parquet, delta or iceberg"
        )
    if rows is None:
        run_table(spark, place, plan, at=pending.at)
        return
    ended = structs.replace(plan, ends=pending.ends, gaps=pending.gaps)
    write_manifest(
        place.ops, place.path, next_manifest(ended, pending.at, rows, {}), "archive_settle"
    )


def frame_of(spark: SparkSession, plan: ArchivePlan) -> DataFrame:
    """Return the messages of a plan, with the date they were stored on."""
    tasks = list(plan.tasks)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(_reading(tasks, plan.source()), TABLE_SCHEMA)


def _reading(
    tasks: list[ArchiveTask], options: SourceOptions
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(TABLE_SCHEMA)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reads = (read_partition(p, MESSAGE_SCHEMA, options) for p in tasks[number].parts)
                for found in chain.from_iterable(reads):
                    dates = found["store_timestamp"].cast(pa.date32())
                    yield pa.RecordBatch.from_arrays([*found.columns, dates], schema=schema)

    return run


def _append(frame: DataFrame, plan: ArchivePlan) -> None:
    settings = plan.settings
    options = {k: v for k, v in settings.table_options.items() if k != NAME_OPTION}
    options |= _marks(frame.sparkSession, plan).options(plan.manifest.archive, plan.run)
    writer = frame.write.format(settings.format).mode("append").partitionBy("topic", "date")
    writer = writer.options(**options)
    name = settings.table_options.get(NAME_OPTION)
    if name is not None:
        writer.saveAsTable(name)
    else:
        writer.save(plan.target)


def _marks(spark: SparkSession, plan: ArchivePlan) -> TableMarks:
    settings = plan.settings
    return TableMarks(spark, settings.format, settings.table_options, plan.target)


def _check_unmarked(spark: SparkSession, plan: ArchivePlan) -> None:
    """Refuse to write a run that the table has: Delta would skip it, and other messages with it.

    Raises:
        StoreError: the table has it, so that the manifest is older than the table.
    """
    last = _marks(spark, plan).last(plan.manifest.archive)
    if last is not None and last.run >= plan.run:
        raise StoreError(
            f"the table has run {last.run} of this archive and the manifest in {plan.target} ends"
            f" at run {plan.run - 1}: it is an older copy; restore the newest one, or roll the"
            f" table back to run {plan.run - 1}"
        )


def _rows_of(
    spark: SparkSession,
    place: ArchiveDir,
    settings: ArchiveSettings,
    *,
    manifest: Manifest,
    run: Pending,
) -> int | None:
    """Return how many messages of a run the table has; None if it does not have the run."""
    marks = TableMarks(spark, settings.format, settings.table_options, str(place.path))
    mark = marks.find(manifest.archive, run.run)
    if mark is not None:
        return mark.rows
    return _count(_table(spark, settings, place), manifest, run.ends) or None


def _has_table(spark: SparkSession, settings: ArchiveSettings, place: ArchiveDir) -> bool:
    name = settings.table_options.get(NAME_OPTION)
    if name is not None:
        return spark.catalog.tableExists(name)
    ours = {"_manifest.json", "_manifest.json.tmp", "_work", "_retired", "_temporary"}
    return any(entry.name not in ours for entry in place.ops.entries(place.path))


def _table(spark: SparkSession, settings: ArchiveSettings, place: ArchiveDir) -> DataFrame:
    name = settings.table_options.get(NAME_OPTION)
    if name is not None:
        return spark.table(name)
    return spark.read.format(settings.format).load(str(place.path))


def _count(table: DataFrame, before: Manifest, ends: Iterable[QueueEnd]) -> int:
    """Count the messages of a run that a table has."""
    known = before.ends()
    ranges = []
    for end in ends:
        old = known.get((end.broker, end.topic, end.queue_id))
        first = old.next_offset if old is not None else end.first_offset
        ranges.append((end.broker, end.topic, end.queue_id, first, end.next_offset - 1))
    if not ranges:
        return 0
    # Why a join: there may be thousands of queues, too many for one condition.
    schema = "broker string, topic string, queue_id int, first bigint, last bigint"
    wanted = sf.broadcast(table.sparkSession.createDataFrame(ranges, schema))
    found = table.select("broker", sf.col("topic").cast("string"), "queue_id", "queue_offset")
    inside = sf.col("queue_offset").between(sf.col("first"), sf.col("last"))
    return found.join(wanted, ["broker", "topic", "queue_id"]).where(inside).count()
