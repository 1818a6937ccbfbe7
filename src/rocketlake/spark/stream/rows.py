"""The handler's rows, one by one on executors: which failed, and how far each queue was read."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, Row

from rocketlake.errors import ConfigError
from rocketlake.model import properties as names
from rocketlake.spark.stream.journal import Offsets

log = logging.getLogger(__name__)

NEEDED: Final = ("topic", "queue_id", "queue_offset", "physical_offset")
"""Columns that consuming itself needs."""

SCHEMA: Final = (
    "topic string, queue_id int, next_offset bigint, physical_offset bigint, delay_level int,"
    " error string"
)
_ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("next_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("delay_level", pa.int32()),
        ("error", pa.string()),
    ]
)
_ERROR_MAX: Final = 500
_TOLD_MAX: Final = 20


class RetryLater(Exception):  # noqa: N818 - it is raised to say what to do
    """Raised by a handler of rows: this message failed, and is retried after a delay level.

    0 lets RocketMQ's rule choose the level; below 0 sends the message to the dead letters.
    """

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(delay_level)
        self.delay_level = delay_level


class Outcome(Struct, frozen=True):
    """The result of a batch."""

    failed: dict[int, int]
    """Delay level of each failed message by its physical offset."""
    next: Offsets
    """Where each queue continues."""


class EachRow:
    """Calls a function for every row of Arrow batches; pickled to executors.

    Without a function it only reports how far each queue was read.
    """

    def __init__(self, function: Callable[[Row], object] | None, retry_topic: str) -> None:
        self._function = function
        self._retry_topic = retry_topic

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the failures, and finally how far each queue was read."""
        ends: dict[tuple[str, int], int] = {}
        for batch in batches:
            for topic, queue_id, last in _last_offsets(batch):
                ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), last + 1)
            if self._function is not None:
                failures = list(self._failures(batch))
                if failures:
                    yield pa.RecordBatch.from_pylist(failures, schema=_ARROW)
        found = [
            {"topic": topic, "queue_id": queue_id, "next_offset": end}
            for (topic, queue_id), end in ends.items()
        ]
        yield pa.RecordBatch.from_pylist(found, schema=_ARROW)

    def _failures(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        assert self._function is not None
        for members in batch.to_pylist():
            failure = self._try(Row(**self._shown(members)))
            if failure is not None:
                level, error = failure
                yield {
                    "physical_offset": members["physical_offset"],
                    "delay_level": level,
                    "error": error[:_ERROR_MAX],
                }

    def _try(self, row: Row) -> tuple[int, str] | None:
        """Return the delay level and the error; None if the row succeeded."""
        assert self._function is not None
        try:
            answer = self._function(row)
        except RetryLater as later:
            return later.delay_level, f"RetryLater({later.delay_level})"
        except Exception as error:  # noqa: BLE001 - any error of the handler fails the message
            return 0, f"{type(error).__name__}: {error}"
        return (0, "returned False") if answer is False else None

    def _shown(self, members: dict[str, Any]) -> dict[str, Any]:
        """Return a row as the handler gets it: a retried message has the topic it came from."""
        if "properties" in members:
            members["properties"] = dict(members["properties"] or ())
            if members["topic"] == self._retry_topic:
                members["topic"] = members["properties"].get(names.RETRY_TOPIC, members["topic"])
        return members


def _last_offsets(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
    """Yield the highest offset of each queue in a batch."""
    grouped = pa.table(batch.select(list(NEEDED))).group_by(["topic", "queue_id"])
    found = grouped.aggregate([("queue_offset", "max")])
    columns = ("topic", "queue_id", "queue_offset_max")
    yield from zip(*(found.column(name).to_pylist() for name in columns), strict=True)


def run_rows(batch: DataFrame, each: EachRow) -> Outcome:
    """Run over all rows of a batch."""
    failed: dict[int, int] = {}
    ends: Offsets = {}
    for row in batch.mapInArrow(each, SCHEMA).collect():
        if row.next_offset is None:
            failed[row.physical_offset] = row.delay_level
            if len(failed) <= _TOLD_MAX:
                log.warning("message at %d failed: %s", row.physical_offset, row.error)
        else:
            queues = ends.setdefault(row.topic, {})
            queues[row.queue_id] = max(queues.get(row.queue_id, 0), row.next_offset)
    if len(failed) > _TOLD_MAX:
        log.warning("%d more messages of the batch failed", len(failed) - _TOLD_MAX)
    return Outcome(failed, ends)


def collect_failed(failed: DataFrame | None) -> dict[int, int]:
    """Return the delay level of each failed message, by the rows of a DataFrame.

    Raises:
        ConfigError: it is not a DataFrame of such rows.
    """
    if failed is None:
        return {}
    if not hasattr(failed, "columns") or "physical_offset" not in failed.columns:
        what = getattr(failed, "columns", type(failed).__name__)
        raise ConfigError(
            f"the batch function returned {what}: wanted the failed rows with their column"
            " physical_offset, or None if there are none"
        )
    has_level = "delay_level" in failed.columns
    chosen = failed.select("physical_offset", *(["delay_level"] if has_level else []))
    return {row[0]: (row[1] or 0) if has_level else 0 for row in chosen.collect()}
