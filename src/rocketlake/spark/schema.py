"""The columns of a message, for Spark and for Arrow, from one definition.

Batches must have exactly the Arrow schema that Spark derives from its own: `arrow_schema` asks
Spark for it, so that there is nothing to keep equal by hand.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketlake.errors import ConfigError
from rocketlake.spark.name_hints import unknown_column

_COLUMNS: Final[tuple[tuple[str, DataType], ...]] = (
    ("topic", StringType()),
    ("queue_id", IntegerType()),
    ("queue_offset", LongType()),
    ("physical_offset", LongType()),
    ("store_timestamp", TimestampType()),
    ("born_timestamp", TimestampType()),
    ("msg_id", StringType()),
    ("unique_key", StringType()),
    ("keys", ArrayType(StringType())),
    ("tags", StringType()),
    ("body", BinaryType()),
    ("properties", MapType(StringType(), StringType())),
    ("flag", IntegerType()),
    ("sys_flag", IntegerType()),
    ("reconsume_times", IntegerType()),
    ("born_host", StringType()),
    ("store_host", StringType()),
    ("prepared_transaction_offset", LongType()),
    ("store_size", IntegerType()),
    ("broker", StringType()),
)

MESSAGE_SCHEMA: Final = StructType([StructField(name, kind) for name, kind in _COLUMNS])
"""Every column of a message, in order. All are nullable, as Spark requires of a source."""


RAW_TIMES: Final = StructType(
    [StructField(name, LongType()) for name in ("store_timestamp_ms", "born_timestamp_ms")]
)
"""The numbers behind the times of records; no table has them unless a schema names them."""


def subset(given: StructType, whole: StructType) -> StructType:
    """Check a schema that a user gave against the whole one: any columns, in any order.

    Raises:
        ConfigError: a column does not exist or has another type.
    """
    types = {field.name: field.dataType for field in whole.fields}
    for field in given.fields:
        kind = types.get(field.name)
        if kind is None:
            raise ConfigError(
                f"schema: there is no column {field.name!r}; {unknown_column(field.name, types)}"
            )
        if kind != field.dataType:
            raise ConfigError(
                f"schema: column {field.name!r} is {kind.simpleString()}, not"
                f" {field.dataType.simpleString()}; cast it after load()"
            )
    return given


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark requires of batches."""
    return to_arrow_schema(schema, timezone="UTC")
