"""Parts of tests of archives: a store that grows, archives made without Spark, rows to compare."""

from collections.abc import Iterable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import rocketlake
from rocketlake import Message
from rocketlake.spark.jobs.archive.parquet_file import StagedFile
from rocketlake.spark.jobs.archive.plan import ArchiveSettings, ArchiveTask, plan_archive
from rocketlake.spark.jobs.archive.report import ArchiveReport
from rocketlake.spark.jobs.archive.run import carry_out
from rocketlake.spark.jobs.archive.tasks import Writing, write_task
from rocketlake.spark.reading.batch_reader import make_reader
from rocketlake.spark.schema import MESSAGE_SCHEMA
from support.manual_clock import ManualClock

START_MS = 1_767_225_000_000  # 31 December 2025, ten minutes before midnight
AT = "2026-01-01T00:00:00+00:00"

Row = dict[str, Any]


class GrowingStore:
    """A store that is written in pieces, a second apart from message to message."""

    def __init__(self, path: Path, **options: object) -> None:
        self.path = path
        self.clock = ManualClock(START_MS)
        self.options = options
        self.count = 0

    def grow(self, count: int, topics: Sequence[str] = ("orders", "payments")) -> None:
        """Put messages and close the store."""
        with rocketlake.open_store(self.path, clock=self.clock, **self.options) as store:
            self.put(store, count, topics)

    def put(
        self, store: rocketlake.Store, count: int, topics: Sequence[str] = ("orders", "payments")
    ) -> None:
        """Put messages into the store while it is open."""
        for number in range(self.count, self.count + count):
            self.clock.advance_ms(1000)
            store.put(
                Message(
                    topic=topics[number % len(topics)],
                    body=b"body %d" % number,
                    tags=("red", "blue", None)[number % 3],
                    keys=[f"k{number}", f"group{number % 5}"],
                    properties={"n": str(number)},
                    flag=number % 2,
                )
            )
        self.count += count


def stage_here(writing: Writing, tasks: Sequence[ArchiveTask]) -> list[StagedFile]:
    """Write the files of a run in this process."""
    return [file for task in tasks for file in write_task(task, writing)]


def archive_here(
    store: str | Path, target: Path, settings: ArchiveSettings | None = None
) -> ArchiveReport:
    """Run an archive without Spark."""
    return carry_out(plan_archive(store, target, settings), stage_here, AT)


def read_here(**options: object) -> list[Row]:
    """Read messages as Spark would, without it."""
    given = {name: str(value) for name, value in options.items()}
    reader = make_reader(given, MESSAGE_SCHEMA)
    return in_order(
        row
        for part in reader.partitions()
        for batch in reader.read(part)  # type: ignore[union-attr]
        for row in batch.to_pylist()
    )


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by their places."""
    found = [{**row, **_plain(row)} for row in rows]
    return sorted(found, key=lambda r: (r["broker"], r["topic"], r["queue_id"], r["queue_offset"]))


def _plain(row: Row) -> Row:
    """Spell what Spark and Arrow hand over differently in one way."""
    times = ("store_timestamp", "born_timestamp")
    return {
        "properties": dict(row["properties"]),
        "body": bytes(row["body"]),
        **{name: row[name].replace(tzinfo=UTC) for name in times},
    }


def frame_rows(frame: DataFrame) -> list[Row]:
    """Collect a table of messages."""
    return in_order(row.asDict() for row in frame.collect())


def load(spark: SparkSession, **options: object) -> DataFrame:
    """Read a table of messages with Spark."""
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("rocketlake").options(**given).load()
