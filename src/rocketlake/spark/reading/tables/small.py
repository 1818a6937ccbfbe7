"""Tables `progress` and `checkpoint`: a few rows, made on the driver."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import StructType

from rocketlake.errors import StoreError
from rocketlake.format import names
from rocketlake.format.record import reason_text
from rocketlake.metadata import offsets, table
from rocketlake.model.queues import QueueKey
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import Partition
from rocketlake.spark.reading.stores import StoreRef
from rocketlake.spark.reading.tables.columns import to_batch
from rocketlake.spark.reading.tables.schemas import CHECKPOINT_SCHEMA, PROGRESS_SCHEMA
from rocketlake.spark.schema import arrow_schema
from rocketlake.store.offline import OfflineStore


class RowsPart(Struct, frozen=True, tag=True):
    """Rows that the driver has made, as an Arrow stream."""

    store: StoreRef
    stream: bytes


def plan_progress(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    """Return what groups have committed, beside the bounds of their queues.

    Raises:
        StoreError: the tables cannot be read.
    """
    config = store.directory.path(names.CONFIG)
    hidden = table.find(config / offsets.FILE_NAME, offsets.decode).hidden
    if hidden is not None:
        raise StoreError(f"{store.directory.root} keeps its progress in RocksDB: {hidden}")
    rows: list[dict[str, object]] = []
    for found in (offsets.load(config), offsets.load_light(config)):
        for progress in found.progress():
            for queue_id, committed in sorted(progress.offsets.items()):
                if not options.wants_queue(progress.topic, queue_id):
                    continue
                queue = store.queues.get(QueueKey(progress.topic, queue_id))
                rows.append(
                    {
                        "group": progress.group,
                        "topic": progress.topic,
                        "queue_id": queue_id,
                        "committed_offset": committed,
                        "min_offset": queue.min_offset if queue is not None else None,
                        "max_offset": queue.max_offset if queue is not None else None,
                        "lag": queue.max_offset - committed if queue is not None else None,
                        "broker": broker,
                    }
                )
    return [rows_part(StoreRef.of(broker, store), PROGRESS_SCHEMA, rows)] if rows else []


def plan_checkpoint(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    """Return the checkpoint of a store, and the state that the store is in."""
    _ = options
    page, tail = store.checkpoint, store.tail
    queues = store.queues.values()
    reason = tail.stop.reason if tail.stop is not None else None
    row: dict[str, object] = {
        "physical_timestamp": page.physical_timestamp or None,
        "queue_timestamp": page.queue_timestamp or None,
        "index_timestamp": page.index_timestamp or None,
        "is_clean": store.traits.is_clean,
        "held_by": store.traits.held_by,
        "log_min_offset": store.min_offset,
        "log_max_offset": store.max_offset,
        "log_files": len(store.log.files),
        "dispatched_offset": max((queue.max_physical_offset for queue in queues), default=-1),
        "owed_units": sum(len(queue.owed) for queue in queues),
        "queues": len(queues),
        "index_files": len(store.index_files),
        "end_reason": reason_text(reason) if reason is not None else None,
        "damage": [str(finding) for finding in store.damage.findings],
        "variants": store.traits.variants,
        "broker": broker,
    }
    return [rows_part(StoreRef.of(broker, store), CHECKPOINT_SCHEMA, [row])]


def read(part: RowsPart, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Hand out the rows, with the columns that are wanted."""
    wanted = arrow_schema(schema)
    with pa.ipc.open_stream(part.stream) as stream:
        for batch in stream:
            yield pa.RecordBatch.from_arrays(
                [batch.column(name) for name in wanted.names], schema=wanted
            )


def rows_part(ref: StoreRef, schema: StructType, rows: Sequence[dict[str, object]]) -> Partition:
    """Return a partition of rows that are made here."""
    wanted = arrow_schema(schema)
    columns = {name: [row[name] for row in rows] for name in wanted.names}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, wanted) as writer:
        writer.write_batch(to_batch(wanted, len(rows), columns))
    return Partition(RowsPart(ref, sink.getvalue().to_pybytes()))
