"""What Spark would read, without Spark: partitions are planned, pickled and read one by one."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from rocketlake.spark.schema import RAW_TIMES, arrow_schema
from rocketlake.spark.source import RocketLakeDataSource


def read_table(
    path: Path | str, columns: tuple[str, ...] | None = None, **options: Any
) -> pa.Table:
    """Read everything that options ask for, as the source does."""
    source, schema = make_source(path, columns, options)
    reader = source.reader(schema)
    return pa.Table.from_batches(
        [
            batch
            for partition in reader.partitions()
            for batch in pickle.loads(pickle.dumps(reader)).read(
                pickle.loads(pickle.dumps(partition))
            )
        ],
        schema=arrow_schema(schema),
    )


def read_rows(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    """Read rows in the order of the log."""
    rows: list[dict[str, Any]] = read_table(path, **options).to_pylist()
    return sorted(rows, key=lambda row: (row["broker"], row["physical_offset"]))


def make_source(
    path: Path | str, columns: tuple[str, ...] | None, options: Mapping[str, Any]
) -> tuple[RocketLakeDataSource, StructType]:
    """Make the source as Spark makes it, and the schema that it is asked for."""
    given = CaseInsensitiveDict()
    for name, value in {"path": path, **options}.items():
        given[name] = str(value)
    source = RocketLakeDataSource(given)
    schema = source.schema()
    if columns is not None:
        known = {field.name: field for field in (*schema.fields, *RAW_TIMES.fields)}
        schema = StructType([known[name] for name in columns])
    return source, schema
