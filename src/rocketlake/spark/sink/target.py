"""The target of a write: by its own options, or by those of a table in Spark's catalog."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import StructType

from rocketlake.errors import ConfigError, StoreError
from rocketlake.spark.catalog_table import CREATE_EXAMPLE, kept_table
from rocketlake.spark.sink.columns import COLUMN_NAMES
from rocketlake.spark.sink.options import known_options

_MARKER_COLUMN = "queue_offset"
"""Never null in a row that was read: tells rows of another table from rows of an INSERT."""


class Target(Struct, frozen=True, kw_only=True):
    """The columns that are written, and the options of the write."""

    options: Mapping[str, str]
    columns: StructType
    store_made: tuple[str, ...] = ()
    """Columns of a table that the store assigns; null in every row."""


def target_of(options: Mapping[str, str], schema: StructType) -> Target:
    """Return the target of a write.

    Raises:
        ConfigError: neither the write nor the columns name a store, or a table cannot be written.
    """
    if "path" in options:
        return Target(options=options, columns=schema)
    kept = kept_table(schema)
    if kept is None:
        raise ConfigError(
            'option path is missing: .option("path", "data/store"). In SQL name the columns, INSERT'
            " INTO t (body, keys) SELECT …: Spark passes options only with the table's own columns;"
            f" and create the table before it is written, {CREATE_EXAMPLE}, not AS SELECT"
        )
    if kept.options.get("table", "messages") != "messages":
        raise ConfigError(
            f"a table with the option table = {kept.options['table']} is only read; INSERT INTO a"
            " table of messages"
        )
    if _MARKER_COLUMN not in kept.columns:
        raise ConfigError(
            f"the table has no column {_MARKER_COLUMN}, which tells rows of an INSERT from rows of"
            f" other tables; create it with {_MARKER_COLUMN} or with all columns: {CREATE_EXAMPLE}"
        )
    return Target(
        options={**known_options(kept.options), **options},
        columns=StructType([field for field in schema.fields if field.name in COLUMN_NAMES]),
        store_made=tuple(name for name in schema.names if name not in COLUMN_NAMES),
    )


def message_rows(
    batches: Iterator[pa.RecordBatch], store_made: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Leave out the columns that the store assigns.

    Raises:
        StoreError: one of them has a value.
    """
    if not store_made:
        yield from batches
        return
    for batch in batches:
        for name in store_made:
            if batch.column(name).null_count < batch.num_rows:
                raise StoreError(
                    f"column {name} has a value, but the store assigns it: name the columns to"
                    " write, INSERT INTO t (topic, body, keys, tags, properties) SELECT …; nothing"
                    " was written"
                )
        names = [name for name in batch.schema.names if name not in store_made]
        yield batch.select(names)
