"""The reader of a stream, as Spark calls it.

Spark makes one on the driver, which lives as long as the query and answers with offsets; others are
made for planning and pickled to executors, which only read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import read_partition
from rocketlake.spark.schema import subset
from rocketlake.spark.stream.offsets import BEHIND
from rocketlake.spark.stream.stream_driver import Limits, StreamDriver
from rocketlake.spark.stream.stream_options import StreamOptions


def make_stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream.

    Raises:
        ConfigError: options or schema are wrong.
    """
    parsed = SourceOptions.parse(options)
    return StreamReader(parsed, StreamOptions.parse(parsed), subset(schema, parsed.selectable))


# ruff: noqa: N802 - the names are Spark's
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads messages as they arrive: of topics through their queues, or the whole log."""

    def __init__(self, options: SourceOptions, stream: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._stream = stream
        self._schema = schema
        self._opened: StreamDriver | None = None

    @property
    def _driver(self) -> StreamDriver:
        # Why: opened late, since executors do not use it and it cannot be pickled.
        if self._opened is None:
            self._opened = StreamDriver(self._options, self._stream)
        return self._opened

    # --- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        return self._driver.encode(self._driver.initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        driver = self._driver
        return driver.encode(driver.latest(driver.decode(start), self._limits(limit)))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit of the options. Spark passes it back; `latestOffset` applies all."""
        stream = self._stream
        if stream.max_rows is not None:
            return ReadMaxRows(stream.max_rows)
        if stream.max_bytes is not None:
            return ReadMaxBytes(stream.max_bytes)
        return ReadAllAvailable() if stream.min_rows is None else ReadMinRows(stream.min_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the current ends, and then stop."""
        self._driver.hold_target()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends at the last refresh, and how far behind them the query is.

        Why here: Spark shows no other numbers of a Python source in the query's progress.
        """
        behind = self._driver.behind()
        members = self._driver.reported().encode(is_packing=self._stream.is_compact)
        return members if behind is None else {**members, BEHIND: behind.encode()}

    def _limits(self, limit: ReadLimit) -> Limits | None:
        """Return the limits of a batch; None if Spark wants everything."""
        if isinstance(limit, ReadAllAvailable):
            return None
        return Limits(self._stream.max_rows, self._stream.max_bytes)

    # --- batches -------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut a batch into parts."""
        return [*self._driver.plan(self._driver.decode(start), self._driver.decode(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part, on an executor."""
        if self._options.archive is not None:
            # Imported here: Arrow's Parquet takes as long to import as all else that a task needs.
            from rocketlake.spark.reading.archive.files import (  # noqa: PLC0415
                ArchivePartition,
                read_archived,
            )

            if isinstance(partition, ArchivePartition):
                return read_archived(partition, self._schema, self._options)
        return read_partition(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that everything up to an offset is done."""
        self._driver.note_commit(self._driver.decode(end))

    def stop(self) -> None:
        """Close the stores; Spark does not always call it."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
