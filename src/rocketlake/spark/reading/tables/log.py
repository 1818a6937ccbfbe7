"""Table `log`: every record of the commit log, and a row with the reason for each gap."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from rocketlake.format.record import RecordColumns, StopReason, reason_text
from rocketlake.spark.reading.batches import BatchMaker
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import ROWS_MAX, LogPart, Partition
from rocketlake.spark.reading.planning import plan_log
from rocketlake.spark.reading.record_filter import LogFilter
from rocketlake.spark.reading.stores import ExecutorLog, StoreRef
from rocketlake.spark.schema import MESSAGE_SCHEMA, RAW_TIMES, arrow_schema
from rocketlake.store.offline import Chunk, Gap, OfflineStore, walk_past

_OF_MESSAGES = frozenset({*MESSAGE_SCHEMA.names, *RAW_TIMES.names})


def plan(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    """Return partitions that hold the whole log, and the reason of its end."""
    parts = plan_log(store, broker, options)
    tail = store.tail
    if not tail.stop_is_ordinary and options.ending.default < 0:
        # One of no length: it shows why the log ends where it does.
        parts.append(Partition(LogPart(StoreRef.of(broker, store), tail.end_offset, -1)))
    return parts


def read(part: LogPart, schema: StructType, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Read records and gaps, in the order of the log."""
    whole = arrow_schema(schema)
    own = pa.schema([field for field in whole if field.name in _OF_MESSAGES])
    if not len(own):
        own = arrow_schema(StructType([MESSAGE_SCHEMA["physical_offset"]]))
    broker = part.store.broker
    maker = BatchMaker(own, is_raw_body=options.raw_body, broker=broker, rows_max=ROWS_MAX)
    wanted = LogFilter(options, None)
    with ExecutorLog(part.store) as source:
        end = part.end if part.end >= 0 else source.log.limit
        for step in walk_past(source.log, part.begin, end, part.store.checks):
            if isinstance(step, Gap):
                yield _gap_batch(step, whole, broker)
                if part.end < 0:
                    return
            elif part.end < 0:
                return  # it was being written, and is a record now
            else:
                yield from _record_batches(step, whole, maker, wanted)


def _record_batches(
    step: Chunk, whole: pa.Schema, maker: BatchMaker, wanted: LogFilter
) -> Iterator[pa.RecordBatch]:
    columns = step.columns
    keep = wanted.records(columns)
    if keep is not None:
        columns = RecordColumns(columns.buffer, columns.rows[keep])
    if not len(columns):
        return
    begin = 0
    for batch in maker.batches(columns):
        rows = columns.rows[begin : begin + batch.num_rows]
        begin += batch.num_rows
        extra = {
            "body_crc": rows["body_crc"].astype(np.int32),
            "file_position": rows["physical_offset"] - step.file.base_offset,
        }
        arrays = []
        for field in whole:
            if field.name in _OF_MESSAGES:
                arrays.append(batch.column(field.name))
            elif field.name == "file":
                arrays.append(pa.array([str(step.file.path)] * batch.num_rows, field.type))
            elif field.name in extra:
                arrays.append(pa.array(np.ascontiguousarray(extra[field.name]), field.type))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=whole)


def _gap_batch(gap: Gap, whole: pa.Schema, broker: str) -> pa.RecordBatch:
    values: dict[str, object] = {
        "physical_offset": gap.physical_offset,
        "broker": broker,
        "file": str(gap.file.path),
        "file_position": gap.file_position,
        "stop_reason": StopReason(gap.reason).name,
        "stop_text": reason_text(gap.reason),
        "stop_size": gap.size,
    }
    arrays = [pa.array([values.get(field.name)], field.type) for field in whole]
    return pa.RecordBatch.from_arrays(arrays, schema=whole)
