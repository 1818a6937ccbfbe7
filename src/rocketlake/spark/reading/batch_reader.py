"""The reader of a batch: plans on the driver, reads on executors."""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rocketlake.spark.reading import pushdown
from rocketlake.spark.reading.keys import plan_key
from rocketlake.spark.reading.options import SourceOptions, Table
from rocketlake.spark.reading.partitions import (
    LogPart,
    Partition,
    PlacesPart,
    QueuePart,
    read_partition,
)
from rocketlake.spark.reading.planning import plan_log, plan_spans
from rocketlake.spark.reading.queue_spans import (
    check_bounds_order,
    check_topics,
    narrow,
    wanted_spans,
)
from rocketlake.spark.reading.stores import StoreSet
from rocketlake.spark.reading.tables import damage, index, log, queue, small
from rocketlake.spark.reading.terms import allows
from rocketlake.spark.schema import subset
from rocketlake.store.offline import OfflineStore

# ruff: noqa: PLC0415 - Arrow's Parquet takes as long to import as all else that a task needs


def make_reader(
    options: Mapping[str, str], schema: StructType, *, pushes_filters: bool = False
) -> DataSourceReader:
    """Return the reader of the table that the options ask for.

    Args:
        options: those of the read.
        schema: the columns that are wanted.
        pushes_filters: the reader is for one query, whose filters may leave rows out.

    Raises:
        ConfigError: options or schema are wrong.
    """
    parsed = SourceOptions.parse(options)
    check_bounds_order(parsed)
    wanted = subset(schema, parsed.selectable)
    takes_filters = pushes_filters and parsed.push_filters
    return (PushingReader if takes_filters else BatchReader)(parsed, wanted)


class BatchReader(DataSourceReader):
    """Reads messages, of topics through their queues or the whole log, or another table."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Open the stores, and cut what is selected into partitions.

        Raises:
            RocketLakeError: a store or a topic does not exist, or contradicts the options.
        """
        options = self._options
        if options.archive is not None:
            from rocketlake.spark.reading.archive.planning import plan_joined

            return plan_joined(options)
        parts: list[InputPartition] = []
        with StoreSet.open(options) as stores:
            check_topics(stores.stores, options, stores.empty_queues())
            for broker, store in stores.stores.items():
                if allows(options.terms, "broker", broker):
                    parts += plan(store, broker, options)
            if options.table in (Table.MESSAGES, Table.QUEUE):
                stores.check_damage()
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part, on an executor."""
        if self._options.archive is not None:
            from rocketlake.spark.reading.archive.files import ArchivePartition, read_archived

            if isinstance(partition, ArchivePartition):
                return read_archived(partition, self._schema, self._options)
        if not isinstance(partition, Partition):
            return iter(())  # Spark's own partition, where there is none
        return read_part(partition, self._schema, self._options)


class PushingReader(BatchReader):
    """The same for one query, whose filters the optimizer's rule pushes."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's
        """Take filters over; return those that Spark must evaluate."""
        self._options, left = pushdown.push(self._options, filters)
        return iter(left)


def plan(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    """Return the partitions of one store.

    Raises:
        RocketLakeError: what the options name does not exist.
    """
    planners: dict[Table, Callable[[OfflineStore, str, SourceOptions], list[Partition]]] = {
        Table.MESSAGES: _plan_messages,
        Table.LOG: log.plan,
        Table.QUEUE: _plan_units,
        Table.INDEX: index.plan,
        Table.PROGRESS: small.plan_progress,
        Table.CHECKPOINT: small.plan_checkpoint,
        Table.DAMAGE: damage.plan,
    }
    return planners[options.table](store, broker, options)


def _plan_messages(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    if not options.has_topic:
        return plan_log(store, broker, options)
    spans = narrow(store, wanted_spans(store, options), options)
    if options.key is not None or options.unique_key is not None:
        return plan_key(store, broker, spans, options)
    return plan_spans(store, broker, spans, options)


def _plan_units(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    return plan_spans(store, broker, wanted_spans(store, options), options)


def read_part(
    partition: Partition, schema: StructType, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Read one part of any table."""
    part = partition.part
    if isinstance(part, small.RowsPart):
        return small.read(part, schema)
    if isinstance(part, index.IndexPart):
        return index.read(part, schema)
    if isinstance(part, damage.DamagePart):
        return damage.read(part, schema)
    if options.table is Table.LOG and isinstance(part, LogPart):
        return log.read(part, schema, options)
    if options.table is Table.QUEUE and isinstance(part, QueuePart | PlacesPart):
        return queue.read(part, schema, options)
    return read_partition(partition, schema, options)
