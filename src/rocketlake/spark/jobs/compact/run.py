"""Runs a compaction: the newest message of each key, into a new store or a table."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from rocketlake.errors import ConfigError
from rocketlake.files.ops import PosixFileOps
from rocketlake.spark.jobs.compact.plan import (
    PLACE,
    CompactPlan,
    columns,
    kept_places,
    keyed_rows,
    odd_lines,
    plan_compact,
)
from rocketlake.spark.jobs.compact.settings import STORE, CompactSettings
from rocketlake.spark.jobs.replay.rows import as_messages, fits
from rocketlake.spark.jobs.selection import Selection
from rocketlake.spark.progress import OnProgress, watching

_SOURCE = ("store_timestamp", "broker", "source", "source_queue", "queue_offset")


class CompactReport(Struct, frozen=True, kw_only=True):
    """What a compaction has done."""

    target: str
    settings: CompactSettings
    id: str
    messages: int
    kept: int
    keyless: int
    tombstones: int | None
    too_large: int = 0
    """Messages that were not written: no record has room for their properties."""

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        written = self.kept - self.too_large
        yield f"{written} of {self.messages} messages written to {self.target}"
        if self.too_large:
            yield f"{self.too_large} messages have properties too large to write and are left out"
        yield from odd_lines(self.settings, self.keyless, self.tombstones)


def compact(
    spark: SparkSession,
    selection: Selection,
    target: str | Path,
    *,
    settings: CompactSettings | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> CompactPlan | CompactReport:
    """Write the newest message of each key of a topic to a new store, or as a table.

    With `dry_run` nothing is written, and the plan is returned.

    Raises:
        ConfigError: an option is wrong, or the target has something already.
        StoreError: something cannot be read or written.
    """
    plan = plan_compact(spark, selection, target, settings)
    return plan if dry_run else run_compact(spark, plan, on_progress=on_progress)


def run_compact(
    spark: SparkSession, plan: CompactPlan, *, on_progress: OnProgress | None = None
) -> CompactReport:
    """Do what a plan says.

    Raises:
        ConfigError: the target has something already.
        StoreError: something cannot be read or written.
    """
    settings = plan.settings
    _check_new(plan)
    # Why: bodies are read again, and only those that stay are moved between machines.
    keyed = keyed_rows(plan.selection.load(spark, columns(settings)), settings)
    places = kept_places(keyed, settings)
    frame = plan.selection.load(spark).join(places, list(PLACE), "left_semi")
    too_large = 0
    with watching(spark, on_progress):
        if settings.to == STORE:
            too_large = _write_store(frame, plan)
        else:
            _write_table(frame, plan)
    return CompactReport(
        target=plan.target,
        settings=plan.settings,
        id=plan.id,
        messages=plan.messages,
        kept=plan.kept,
        keyless=plan.keyless,
        tombstones=plan.tombstones,
        too_large=too_large,
    )


def _check_new(plan: CompactPlan) -> None:
    """Refuse a directory that has something: what was there would not be compacted."""
    names = [entry.name for entry in PosixFileOps().entries(Path(plan.target))]
    is_repeat = plan.settings.to == STORE and plan.settings.id is not None
    if names and not is_repeat:
        raise ConfigError(
            f"{plan.target} is not empty (it has {names[0]!r}); a compaction goes into a new"
            " directory, or, with an id, on where the same one was killed"
        )


def _write_store(frame: DataFrame, plan: CompactPlan) -> int:
    """Write the messages to a store; return how many no record has room for."""
    counted = Observation()
    frame = frame.observe(counted, sf.count_if(~fits()).alias("too_large")).where(fits())
    topic = plan.settings.to_topic
    target = sf.col("topic") if topic is None else sf.lit(topic)
    rows = as_messages(frame, target, sf.col("queue_id"))
    queue = ("broker", "source", "source_queue")
    ordered = rows.repartition(*queue).sortWithinPartitions(*queue, "queue_offset")
    options = {
        "path": plan.target,
        "writeId": f"compact-{plan.id}",
        **plan.settings.sink_options,
    }
    ordered.drop(*_SOURCE).write.format("rocketlake").mode("append").options(**options).save()
    return int(counted.get["too_large"])


def _write_table(frame: DataFrame, plan: CompactPlan) -> None:
    settings = plan.settings
    writer = frame.write.format(settings.to).mode("append").options(**settings.table_options)
    writer.save(plan.target)
