"""Config tables that RocketMQ keeps in RocksDB, in the form of its JSON files.

    config/topics, config/subscriptionGroups, config/consumerOffsets
            one database per table: family `default`, and `kvDataVersion` for the version
    config/metadata
            one for all (useSingleRocksDBForAllConfigs): families `topic`, `subscriptionGroup`,
            `consumerOffset`, each with one named `...Version`
    config/rdb
            one for all (configManagerVersion=v2): every key is 1, i16 table, i8 kind, name

In the first two a family `forbidden` belongs to the groups. Keys are names, values JSON; in `rdb` a
value starts with the byte 1 for JSON, and offsets are plain numbers.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.errors import RocksDbError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.rocksdb import Database, is_database
from rocketlake.format import java_json
from rocketlake.format.java_json import JsonObject, JsonValue

_VERSION_KEY: Final = b"kvDataVersionKey"
_FORBIDDEN: Final = "forbidden"
_SINGLE: Final = "metadata"
_V2: Final = "rdb"
_V2_TABLE: Final = 1
_V2_VERSION: Final = 1
_V2_DATA: Final = 2
_V2_JSON: Final = 1


class _Kind(Struct, frozen=True):
    """One table: the member of its JSON file, and its place in RocksDB."""

    member: str
    directory: str
    family: str
    v2_table: int


_KINDS: Final = {
    "topics.json": _Kind("topicConfigTable", "topics", "topic", 3),
    "subscriptionGroup.json": _Kind(
        "subscriptionGroupTable", "subscriptionGroups", "subscriptionGroup", 4
    ),
    "consumerOffset.json": _Kind("offsetTable", "consumerOffsets", "consumerOffset", 1),
}

TABLES: Final = tuple(_KINDS)
"""The names of the JSON files whose tables may be in RocksDB."""


def place_of(path: Path, ops: FileOps | None = None) -> Path | None:
    """Return the database that replaces the JSON file of this path; None without one.

    Compat: a broker that finds both uses the database, after importing a newer file.
    """
    kind = _KINDS.get(path.name)
    if kind is None:
        return None
    ops = ops or PosixFileOps()
    for name in (_V2, _SINGLE, kind.directory):
        if is_database(ops, path.parent / name):
            return path.parent / name
    return None


def load_members(path: Path, ops: FileOps | None = None) -> JsonObject | None:
    """Return the members that the JSON file would have; None if the table is not in RocksDB.

    Raises:
        RocksDbMissingError: the extra is not installed.
        RocksDbError: the database, or an entry of it, cannot be read.
    """
    place = place_of(path, ops)
    if place is None:
        return None
    kind = _KINDS[path.name]
    with Database(ops or PosixFileOps(), place) as database:
        try:
            return _members(database, kind, place.name)
        except (ValueError, struct.error) as error:
            raise RocksDbError(f"{place}: {error}") from error


def _members(database: Database, kind: _Kind, name: str) -> JsonObject:
    if name == _V2:
        return _v2_members(database, kind)
    is_single = name == _SINGLE
    family = kind.family if is_single else "default"
    versions = f"{kind.family}Version" if is_single else "kvDataVersion"
    version = database.get(versions, _VERSION_KEY)
    is_offsets = kind.member == "offsetTable"
    table: JsonObject = {}
    for key, value in database.items(family):
        entry = _object(key, value)
        table[key.decode()] = _offsets(entry) if is_offsets else entry
    members: JsonObject = {}
    if version is not None:
        members["dataVersion"] = _object(_VERSION_KEY, version)
    members[kind.member] = table
    if kind.family == "subscriptionGroup":
        members["forbiddenTable"] = {
            key.decode(): _object(key, value) for key, value in database.items(_FORBIDDEN)
        }
    return members


def _offsets(entry: JsonObject) -> JsonObject:
    """Return offsets by queue; RocksDB has quoted queue ids, the JSON file plain ones."""
    queues = entry.get("offsetTable")
    if not isinstance(queues, dict):
        raise ValueError("an entry of consumer offsets has no offsetTable")  # noqa: TRY004 - bad content
    return {int(queue_id): offset for queue_id, offset in queues.items()}


def _v2_members(database: Database, kind: _Kind) -> JsonObject:
    add: Callable[[JsonObject, bytes, bytes], None]
    add = _add_v2_offset if kind.member == "offsetTable" else _add_v2_entry
    table: JsonObject = {}
    for key, value in _v2_items(database, kind.v2_table, _V2_DATA):
        add(table, key, value)
    members: JsonObject = {kind.member: table}
    for _, value in _v2_items(database, kind.v2_table, _V2_VERSION):
        state, timestamp, counter = struct.unpack(">qqq", value)
        version: JsonObject = {"counter": counter, "stateVersion": state, "timestamp": timestamp}
        members = {"dataVersion": version, **members}
    if kind.family == "subscriptionGroup":
        members["forbiddenTable"] = {}
    return members


def _v2_items(database: Database, table: int, kind: int) -> Iterator[tuple[bytes, bytes]]:
    begin = struct.pack(">bhb", _V2_TABLE, table, kind)
    end = struct.pack(">bhb", _V2_TABLE, table, kind + 1)
    for key, value in database.items("default", begin, end):
        yield key[len(begin) :], value


def _add_v2_entry(table: JsonObject, key: bytes, value: bytes) -> None:
    if value[:1] != bytes([_V2_JSON]):
        raise ValueError(f"the entry {key!r} is not of JSON")
    name, rest = _v2_text(key)
    if rest:
        raise ValueError(f"the key {key!r} is not a name")
    table[name] = _object(key, value[1:])


def _add_v2_offset(table: JsonObject, key: bytes, value: bytes) -> None:
    """Take an entry whose key is group, 1, topic, 1, i32 queue id; i16 lengths before texts."""
    group, rest = _v2_text(key)
    topic, rest = _v2_text(rest[1:])
    (queue_id,) = struct.unpack(">xi", rest)
    (offset,) = struct.unpack(">q", value)
    queues = table.setdefault(f"{topic}@{group}", {})
    assert isinstance(queues, dict), "made here"
    queues[queue_id] = offset


def _v2_text(data: bytes) -> tuple[str, bytes]:
    size = int.from_bytes(data[:2], "big")
    if len(data) < 2 + size:
        raise ValueError(f"the key {data!r} ends too early")
    return data[2 : 2 + size].decode(), data[2 + size :]


def _object(key: bytes, value: bytes) -> dict[str | int, JsonValue]:
    try:
        found = java_json.loads(value)
    except ValueError as error:
        raise ValueError(f"the entry {key!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"the entry {key!r} is not a JSON object")  # noqa: TRY004 - bad content
    return found
