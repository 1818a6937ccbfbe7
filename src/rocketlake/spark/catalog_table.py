"""Options of tables in Spark's catalog, stored in the metadata of their columns.

1. For `CREATE TABLE t USING rocketlake OPTIONS (...)` Spark asks the source for the columns, and
   passes the options among keys of its own. For `SELECT` and `INSERT` it passes the columns that
   the catalog has kept, and none of the options. So the columns carry the options.
2. Every column also carries a digest of the options and the names of all columns. Columns that come
   from several tables, or were added later, are recognised by it.
3. Spark passes the columns of the *query* to a write, where those fit the table by name and type:
   the metadata may be that of the table that the rows come from. A write therefore takes options
   from columns only if all columns of the table are there and those that a store makes itself are
   null in every row, which is so if Spark has added them: `INSERT INTO t (body, keys) SELECT ...`.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from pyspark.sql.types import StructField, StructType

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path, local_path
from rocketlake.spark.named_paths import split_name

OPTIONS_KEY: Final = "rocketlake.options"
DIGEST_KEY: Final = "rocketlake.digest"

_PREFIX: Final = "option."
_SELF_SUFFICIENT: Final = ("path", "paths", "archive")
_OF_SINK: Final = frozenset({"stagingpath", "locktimeout"})
"""Options that a table may have for its INSERTs and that a read does not know."""
CREATE_EXAMPLE: Final = (
    "CREATE TABLE t USING rocketlake OPTIONS (path '/data/store', topic 'orders')"
)


class KeptTable(Struct, frozen=True):
    """The options and columns of a table, as its columns carry them."""

    options: dict[str, str]
    columns: tuple[str, ...]


def options_of_create(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the user's options of a CREATE TABLE; None if Spark creates no table.

    Spark adds `provider`, `location`, `owner`, `external`, `comment` and the table's properties,
    and repeats each option with the prefix `option.`, the path aside.

    Raises:
        ConfigError: there is no path.
    """
    if options.get("provider", "").lower() != "rocketlake":
        return None
    given = {
        key.lower().removeprefix(_PREFIX): value
        for key, value in options.items()
        if key.lower().startswith(_PREFIX)
    }
    if not options.get("path", "").strip():
        raise ConfigError(
            "a table of the catalog needs the option path, several stores as path 'a=/x,b=/y': for"
            " a table without, Spark makes a directory in its warehouse, which DROP TABLE deletes;"
            " CREATE TEMPORARY VIEW takes paths and archive alone"
        )
    return {"path": _absolute(options["path"]), **_without(given, "path")}


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return columns that carry options."""
    text = msgspec.json.encode(dict(options), order="sorted").decode()
    digest = _digest(text, schema.names)
    comment = ", ".join(f"{key} {value}" for key, value in options.items())
    fields = []
    for number, field in enumerate(schema.fields):
        metadata = {DIGEST_KEY: digest}
        if number == 0:
            metadata |= {OPTIONS_KEY: text, "comment": f"rocketlake: {comment}"}
        fields.append(StructField(field.name, field.dataType, nullable=True, metadata=metadata))
    return StructType(fields)


def kept_table(schema: StructType) -> KeptTable | None:
    """Return what columns carry; None if they are not all columns of one table."""
    if not schema.fields:
        return None
    text = schema.fields[0].metadata.get(OPTIONS_KEY)
    if not isinstance(text, str):
        return None
    digest = _digest(text, schema.names)
    if any(field.metadata.get(DIGEST_KEY) != digest for field in schema.fields):
        return None
    return KeptTable(msgspec.json.decode(text, type=dict[str, str]), tuple(schema.names))


def options_of_read(
    options: Mapping[str, str], schema: StructType
) -> tuple[Mapping[str, str], StructType]:
    """Return the options and the plain columns of a read, which may be one of a table.

    Options of the read itself (`SELECT ... FROM t WITH (...)`) go before those of the table.

    Raises:
        ConfigError: neither the read nor the columns name a store.
    """
    plain = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    if any(options.get(name) is not None for name in _SELF_SUFFICIENT):
        return options, plain
    kept = kept_table(schema)
    if kept is None:
        raise ConfigError(
            'option "path" is missing: the directory of a store. Spark keeps options for tables'
            " whose columns come from the source: a table of the catalog is created without"
            f" columns and without AS SELECT ({CREATE_EXAMPLE}), and columns are not added later"
        )
    return {**without_sink(kept.options), **options}, plain


def without_sink(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table that a read knows."""
    return _without(options, *_OF_SINK)


def _without(options: Mapping[str, str], *names: str) -> dict[str, str]:
    return {key: value for key, value in options.items() if key not in names}


def _absolute(path: str) -> str:
    """Return the path of one store without Spark's `file:`, and independent of the directory.

    Raises:
        ConfigError: one of several stores has a relative path, or a `%` stands for two directories.
    """
    _refuse_escapes(path)
    if "," not in path and "=" not in path and "://" not in path:
        return str(absolute_path(path))
    for part in path.split(","):
        place = split_name(part)[1]
        if not place.startswith(("/", "file:/", "~")) and "://" not in place:
            raise ConfigError(
                f"option path = {path!r}: a table of the catalog outlives this directory; give"
                f" {place!r} as an absolute path"
            )
    return path


def _refuse_escapes(path: str) -> None:
    """Refuse a path whose `%20` may be itself or a blank.

    Why: Spark puts `file:` before an absolute path, and hands `/a%20b` over as it hands
    `file:///a%20b`. It leaves a path with a name alone.
    """
    first = path.partition(",")[0]
    if not first.lower().startswith("file:"):
        return
    literal = first[len("file:") :]
    meant = str(local_path(first))
    if meant != literal and "%" in literal:
        raise ConfigError(
            f"option path = {literal!r}: Spark does not tell a table of the catalog whether this is"
            f" {literal} or {meant}; write {meant!r} for the second, and for the first give the"
            f" store a name, which is its `broker` in reads: path 'a={literal}'"
        )


def _digest(text: str, names: list[str]) -> str:
    return hashlib.sha256("\0".join((text, *names)).encode()).hexdigest()[:16]
