"""The columns that a row may have, and their types."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from rocketlake.errors import ConfigError
from rocketlake.spark.name_hints import unknown_column
from rocketlake.spark.sink.kafka_columns import KAFKA_NAMES

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_TEXTS: Final = (BinaryType, StringType)


class _Column(Struct, frozen=True):
    """The types that a column may have."""

    words: str
    is_of_type: Callable[[DataType], bool]


def _is(*kinds: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, kinds)


def _is_keys(kind: DataType) -> bool:
    is_list = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    return is_list or isinstance(kind, StringType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    kinds = [type(field.dataType) for field in kind.elementType.fields]
    names = kind.elementType.fieldNames()
    return names == ["key", "value"] and kinds[0] is StringType and kinds[1] in _TEXTS


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and all(
        isinstance(part, StringType) for part in (kind.keyType, kind.valueType)
    )


_COLUMNS: Final = {
    "body": _Column("binary or string", _is(BinaryType, StringType)),
    "topic": _Column("string", _is(StringType)),
    "keys": _Column("array<string>, or a string with blanks between keys", _is_keys),
    "tags": _Column("string", _is(StringType)),
    "properties": _Column("map<string,string>", _is_map),
    "queue_id": _Column("int", _is(*_WHOLE)),
    "delay_level": _Column("int", _is(*_WHOLE)),
    "deliver_at": _Column("timestamp", _is(TimestampType)),
    "flag": _Column("int", _is(*_WHOLE)),
    "unique_key": _Column("string", _is(StringType)),
    "ordering_key": _Column("string", _is(StringType)),
    "value": _Column("binary or string", _is(BinaryType, StringType)),
    "key": _Column("binary or string", _is(BinaryType, StringType)),
    "headers": _Column("array<struct<key:string,value:binary>>", _is_headers),
    "partition": _Column("int", _is(*_WHOLE)),
}

COLUMN_NAMES: Final = tuple(_COLUMNS)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse a DataFrame whose columns are not those of messages.

    Raises:
        ConfigError: names the column, what is wrong and the way out.
    """
    seen = set()
    for field in schema.fields:
        name = field.name
        column = _COLUMNS.get(name)
        if column is None:
            raise ConfigError(
                f"{name!r} is not a message column: {unknown_column(name, _COLUMNS)}; select"
                " those, or put the value into the map `properties` or into `body`"
            )
        if name in seen:
            raise ConfigError(f"column {name!r} appears twice; select one of them")
        if not column.is_of_type(field.dataType):
            raise ConfigError(
                f"column {name!r} is {field.dataType.simpleString()}; wanted {column.words}:"
                " cast it"
            )
        seen.add(name)
    for name, twin in KAFKA_NAMES.items():
        if name in seen and twin in seen:
            raise ConfigError(
                f"column {name!r} is Kafka's name for {twin!r}, and both are given; select one"
            )
    seen.update(twin for name, twin in KAFKA_NAMES.items() if name in seen)
    if "body" not in seen:
        given = ", ".join(schema.fieldNames()) or "none"
        raise ConfigError(f"there is no column 'body' (given: {given}); a message needs one")
    if "topic" not in seen and topic is None:
        raise ConfigError("no topic is given: add a column 'topic', or .option(\"topic\", ...)")
