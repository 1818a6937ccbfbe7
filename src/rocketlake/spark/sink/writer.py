"""The writers that Spark calls: `write` on executors, `commit` or `abort` once, elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import ConfigError
from rocketlake.files.ops import PosixFileOps
from rocketlake.spark.sink.columns import check_columns
from rocketlake.spark.sink.options import SinkOptions
from rocketlake.spark.sink.plan import WriteKey, WritePlan
from rocketlake.spark.sink.rows import RowEncoder
from rocketlake.spark.sink.staging import Footer, StagedFile, StageWriter
from rocketlake.spark.sink.target import Target, message_rows, target_of
from rocketlake.spark.worker_process import tune_worker

if TYPE_CHECKING:
    from rocketlake.spark.sink.committer import Committer

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What a task reports to the commit."""

    key: WriteKey
    partition: int
    file: StagedFile | None
    """None: the task had no rows."""


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of a batch.

    Raises:
        ConfigError: the options, the columns or the mode are invalid.
    """
    target = target_of(options, schema)
    return BatchSink(_plan(target, overwrite=overwrite), target.store_made)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Return the writer of a stream.

    Raises:
        ConfigError: the options, the columns or the mode are invalid.
    """
    target = target_of(options, schema)
    parsed = _plan(target, overwrite=overwrite)
    if parsed.options.write_id is not None:
        raise ConfigError("option writeId is for batch writes; a stream has its query and batch")
    return StreamSink(parsed, target.store_made)


def _plan(target: Target, *, overwrite: bool) -> WritePlan:
    if overwrite:
        raise ConfigError(
            'a store is only appended to, and mode is "overwrite" (or output mode "complete"): use'
            ' .mode("append"), or write to another topic'
        )
    parsed = SinkOptions.parse(target.options)
    check_columns(target.columns, parsed.topic)
    return WritePlan.make(parsed)


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, plan: WritePlan, store_made: Sequence[str] = ()) -> None:
        self._plan = plan
        self._store_made = store_made
        write_id = plan.options.write_id
        self._key = WriteKey("job", plan.run) if write_id is None else WriteKey("batch", write_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        rows = message_rows(iterator, self._store_made)
        return stage(self._plan, self._key, _context().partitionId(), rows)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append the rows of all tasks."""
        _committer(self._plan).commit(self._key, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the rows of all tasks, unless a commit has begun."""
        folder = self._plan.folder(self._key)
        _committer(self._plan).abort(_files(messages), folder)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each once."""

    def __init__(self, plan: WritePlan, store_made: Sequence[str] = ()) -> None:
        self._plan = plan
        self._store_made = store_made

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        context = _context()
        # Why: Spark tells only executors which query this is.
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise ConfigError(
                f"Spark passes neither {_QUERY} nor {_BATCH}: this task belongs to no stream"
            )
        key = WriteKey("stream", query, int(batch))
        rows = message_rows(iterator, self._store_made)
        return stage(self._plan, key, context.partitionId(), rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Append the rows of all tasks of a micro-batch."""
        keys = {message.key for message in messages if isinstance(message, StagedRows)}
        if not keys:
            return  # a batch without tasks
        if len(keys) > 1 or next(iter(keys)).batch != batchId:
            raise ConfigError(f"tasks of several batches are committed as {batchId}: {keys}")
        _committer(self._plan).commit(keys.pop(), _files(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Remove the rows of all tasks, unless a commit has begun."""
        _committer(self._plan).abort(_files(messages))


def stage(
    plan: WritePlan,
    key: WriteKey,
    partition: int,
    batches: Iterator[pa.RecordBatch],
    *,
    clock: Clock | None = None,
) -> StagedRows:
    """Check, encode and stage the rows of a task.

    Raises:
        BadRowError: a row is not a valid message; no staged file is left behind.
        FileAccessError: the staging path cannot be written.
    """
    tune_worker()
    encoder = RowEncoder(plan, partition, clock or SystemClock())
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return StagedRows(key, partition, None)
    with StageWriter(PosixFileOps(), Path(plan.folder(key)), partition) as writer:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            if batch.num_rows:
                writer.add(encoder.encode(batch), batch.num_rows)
            batch = next(batches, None)
        footer = Footer(
            partition=partition,
            rows=encoder.rows,
            shape=plan.shape,
            topics=encoder.uses,
            pieces=writer.pieces,
            body_max=encoder.body_max,
            record_max=encoder.record_max,
        )
        return StagedRows(key, partition, writer.finish(footer))


def _committer(plan: WritePlan) -> "Committer":
    # Why: executors only stage, and the engine takes longer to import than all else here.
    from rocketlake.spark.sink.committer import Committer  # noqa: PLC0415 - see above

    return Committer(plan.options)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return the staged files in the order of their partitions."""
    found = [m for m in messages if isinstance(m, StagedRows) and m.file is not None]
    found.sort(key=lambda message: message.partition)
    return [message.file for message in found if message.file is not None]


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError("rows are written by Spark tasks, and this process runs none")
    return context
