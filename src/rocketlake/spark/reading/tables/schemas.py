"""The columns of each table."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketlake.spark.schema import MESSAGE_SCHEMA

_TEXT, _INT, _LONG = StringType(), IntegerType(), LongType()
_TIME, _FLAG = TimestampType(), BooleanType()


def _columns(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


LOG_SCHEMA: Final = StructType(
    [
        *MESSAGE_SCHEMA.fields,
        *_columns(
            ("body_crc", _INT),
            ("file", _TEXT),
            ("file_position", _LONG),
            ("stop_reason", _TEXT),
            ("stop_text", _TEXT),
            ("stop_size", _LONG),
        ).fields,
    ]
)
"""Every record of the log, and its gaps: `stop_reason` is why, `stop_size` how many bytes."""

QUEUE_SCHEMA: Final = _columns(
    ("topic", _TEXT),
    ("queue_id", _INT),
    ("queue_offset", _LONG),
    ("physical_offset", _LONG),
    ("size", _INT),
    ("tags_code", _LONG),
    ("batch_size", _INT),
    ("is_batch", _FLAG),
    ("is_owed", _FLAG),
    ("file", _TEXT),
    ("file_position", _LONG),
    ("broker", _TEXT),
)

INDEX_SCHEMA: Final = _columns(
    ("file", _TEXT),
    ("entry", _INT),
    ("slot", _INT),
    ("key_hash", _INT),
    ("physical_offset", _LONG),
    ("store_timestamp", _TIME),
    ("previous", _INT),
    ("is_newest", _FLAG),
    ("broker", _TEXT),
)

PROGRESS_SCHEMA: Final = _columns(
    ("group", _TEXT),
    ("topic", _TEXT),
    ("queue_id", _INT),
    ("committed_offset", _LONG),
    ("min_offset", _LONG),
    ("max_offset", _LONG),
    ("lag", _LONG),
    ("broker", _TEXT),
)

CHECKPOINT_SCHEMA: Final = _columns(
    ("physical_timestamp", _TIME),
    ("queue_timestamp", _TIME),
    ("index_timestamp", _TIME),
    ("is_clean", _FLAG),
    ("held_by", _INT),
    ("log_min_offset", _LONG),
    ("log_max_offset", _LONG),
    ("log_files", _INT),
    ("dispatched_offset", _LONG),
    ("owed_units", _LONG),
    ("queues", _INT),
    ("index_files", _INT),
    ("end_reason", _TEXT),
    ("damage", ArrayType(_TEXT)),
    ("variants", ArrayType(_TEXT)),
    ("broker", _TEXT),
)

DAMAGE_SCHEMA: Final = _columns(
    ("file", _TEXT),
    ("file_position", _LONG),
    ("physical_offset", _LONG),
    ("bytes", _LONG),
    ("reason", _TEXT),
    ("topic", _TEXT),
    ("queue_id", _INT),
    ("messages", _LONG),
    ("lost", ArrayType(_TEXT)),
    ("broker", _TEXT),
)
"""Damaged places, and the messages that are lost with them."""

_TABLES: Final = {
    "messages": MESSAGE_SCHEMA,
    "log": LOG_SCHEMA,
    "queue": QUEUE_SCHEMA,
    "index": INDEX_SCHEMA,
    "progress": PROGRESS_SCHEMA,
    "checkpoint": CHECKPOINT_SCHEMA,
    "damage": DAMAGE_SCHEMA,
}


def of_table(name: str) -> StructType:
    """Return the columns of a table."""
    return _TABLES[name]
