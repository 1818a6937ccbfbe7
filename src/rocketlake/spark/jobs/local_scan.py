"""Reads a job's messages in this process, for plans that are not worth starting Spark.

The reader is the source's own, so that a plan made here and one made by Spark see the same.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from rocketlake.metadata.archive_manifest import archive_path
from rocketlake.spark.jobs.selection import Selection
from rocketlake.spark.reading.archive.planning import read_manifest
from rocketlake.spark.reading.batch_reader import make_reader
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.queue_spans import wanted_queues, wanted_spans
from rocketlake.spark.reading.stores import StoreSet
from rocketlake.spark.schema import MESSAGE_SCHEMA, arrow_schema

ROWS_MAX: Final = 1_000_000
"""About a second of one core; Spark needs several to start."""


def scan_here(
    selection: Selection, columns: Sequence[str], *, rows_max: int = ROWS_MAX
) -> pa.Table | None:
    """Return some columns of the messages; None if there may be more than `rows_max`.

    Raises:
        ConfigError: an option is wrong, or names what is not there.
        StoreError: something cannot be read.
    """
    given = selection.options()
    if _rows_at_most(SourceOptions.parse(given)) > rows_max:
        return None
    schema = StructType([MESSAGE_SCHEMA[name] for name in columns])
    reader = make_reader(given, schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, schema=arrow_schema(schema))


def _rows_at_most(options: SourceOptions) -> int:
    return sum(_counts(options))


def _counts(options: SourceOptions) -> Iterator[int]:
    """Yield how many messages there are at most, filters aside, in each queue or archived file."""
    if options.archive is not None:
        manifest = read_manifest(archive_path(options.archive))
        yield from (file.rows for file in manifest.files if options.wants_topic(file.topic))
    if not options.paths:
        return
    with StoreSet.open(options) as stores:
        for store in stores.stores.values():
            if options.archive is not None:  # its offsets may be those of the archive
                for key in wanted_queues(store, options):
                    queue = store.queues[key]
                    yield queue.max_offset - queue.min_offset
            else:
                for span in wanted_spans(store, options):
                    yield span.to_offset - span.from_offset
