"""What all tables share: version, loading, and conversion from JSON."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rocketlake.errors import RocksDbMissingError, StoreError
from rocketlake.files.json_file import LoadedTable, load_table
from rocketlake.files.ops import FileOps
from rocketlake.format.java_json import JsonObject, JsonValue
from rocketlake.metadata import rocksdb_tables

log = logging.getLogger(__name__)

Value = TypeVar("Value")
Empty = TypeVar("Empty")


class DataVersion(Struct, frozen=True, rename="camel"):
    """How often and when the broker has changed a table; `state_version` is of 5.x."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0


def find(
    path: Path, decode: Callable[[JsonObject], Value], *, ops: FileOps | None = None
) -> LoadedTable[Value]:
    """Read a table from where the broker keeps it: RocksDB, or the file, or the copy beside that.

    Problems are in the result, never raised.
    """
    hidden = None
    try:
        members = rocksdb_tables.load_members(path, ops)
        if members is not None:
            return LoadedTable(decode(members), "database")
    except RocksDbMissingError as error:
        hidden = f"{rocksdb_tables.place_of(path, ops)}: {error}"
    except (StoreError, ValueError) as error:
        return LoadedTable(None, "missing", f"{path.name} is kept in RocksDB; {error}")
    loaded = load_table(path, decode, ops=ops)
    return loaded if hidden is None else replace(loaded, hidden=hidden)


def load(
    path: Path,
    decode: Callable[[JsonObject], Value],
    empty: Empty,
    *,
    ops: FileOps | None = None,
) -> Value | Empty:
    """Read a table, from RocksDB or its file or the copy of that.

    Returns `empty` if there is none, or the files are empty. Without the extra that reads RocksDB,
    the file is read even if a database exists.

    Raises:
        StoreError: Neither the file nor its backup can be used.
    """
    loaded = find(path, decode, ops=ops)
    if loaded.hidden is not None:
        log.warning("table in use was not read path=%s problem=%s", path, loaded.hidden)
    if loaded.value is None:
        if loaded.is_blank:
            # Compat: as in ConfigManager#load; a crash leaves such a file before there is a copy.
            log.warning("table is empty path=%s problem=%s", path, loaded.problem)
        elif loaded.problem is not None:
            raise StoreError(f"{path.parent}: {loaded.problem}")
        return empty
    if loaded.problem is not None:
        log.warning("table read from backup path=%s problem=%s", path, loaded.problem)
    return loaded.value


def decode_version(value: JsonObject) -> DataVersion | None:
    """Return the version of a table; None where 4.x writes none."""
    name = "dataVersion"
    if value.get(name) is None:
        return None
    return convert(get_object(value, name), DataVersion, name)


def get_object(value: JsonObject, name: str) -> JsonObject:
    """Return a member that is an object, without its nulls; an empty one if it is absent.

    Raises:
        ValueError: It is something else.
    """
    return _check_object(value.get(name), name)


def get_entries(value: JsonObject, name: str) -> Iterator[tuple[str, str, JsonObject]]:
    """Yield key, place and members of each object in a table; nulls are left out.

    Raises:
        ValueError: The table or an entry of it is something else.
    """
    for key, entry in get_object(value, name).items():
        where = f"{name}[{key!r}]"
        yield str(key), where, _check_object(entry, where)


def convert(value: JsonObject, kind: type[Value], where: str) -> Value:
    """Turn an object into a value.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `")
        member, in_key, of = place.removesuffix("`").partition("key` in `")
        member = f"{of[1:]} key" if in_key else member[1:]
        raise ValueError(f"{where}{member}: {reason}") from error


def _check_object(value: JsonValue, where: str) -> JsonObject:
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise ValueError(f"{where}: Expected `object`, got `{kind}`")  # noqa: TRY004 - bad content
    return {key: member for key, member in value.items() if member is not None}
