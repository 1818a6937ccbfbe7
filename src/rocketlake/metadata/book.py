"""Book: a table in memory that can be changed, its version, and its file.

1. A book is loaded from its file, or from the copy beside it, and starts empty without either.
2. It is written in the dialect of the reference: fixed members in the order of their names, entries
   of a table in the order of the file, new ones after them.
3. Unknown members of a file are written as they were read.
4. A book whose entries name log positions flushes the log between its snapshot and its write.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Self

import msgspec
from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.errors import RocketLakeError, StoreClosedError
from rocketlake.files.json_file import write_table
from rocketlake.files.ops import FileOps
from rocketlake.format import java_json
from rocketlake.format.java_json import JsonObject, JsonValue
from rocketlake.metadata import table
from rocketlake.metadata.table import DataVersion

VERSION_NAME: Final = "dataVersion"


class TableLocation(Struct, frozen=True):
    """Where a table is stored, and in which dialect."""

    ops: FileOps
    clock: Clock
    config_dir: Path
    is_4x: bool = False
    """Write as 4.x: members that 5.x added only where the file has them."""
    flush_log: Callable[[], None] = lambda: None
    """Brings every record appended so far to the disk, or raises; the default is for a log that
    this process does not append to."""


class Book(ABC):
    """A table that can be changed, and its file.

    Thread-safety: any thread may call anything. `_lock` guards what is in memory and is never held
    while a file is written; `_writing` lets one thread write at a time.

    Durability: a change is on the disk when `persist` has returned. A crash before leaves the table
    as it was written last. A table that `speaks_of_log` names no record that is not on the disk.
    """

    file_name: ClassVar[str]
    speaks_of_log: ClassVar[bool] = False
    """Whether entries name positions of records, such as queue offsets that were consumed."""

    def __init__(self, location: TableLocation, members: JsonObject) -> None:
        self._clock = location.clock
        self._ops = location.ops
        self._is_4x = location.is_4x
        self._flush_log = location.flush_log
        self.path = location.config_dir / self.file_name
        self._members = members  # as read; unknown members are written again
        self._version = table.decode_version(members) or DataVersion(0, location.clock.now_ms())
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._changes = 0
        self._written_changes = 0
        self._is_closed = False
        self._is_ended = False  # the last write was tried

    @classmethod
    def load(cls, location: TableLocation) -> Self:
        """Read the table, or its backup; an empty one if there is neither.

        Raises:
            StoreError: Neither of the files that are there can be used.
        """
        read = partial(cls, location)
        path = location.config_dir / cls.file_name
        loaded = table.load(path, read, None, ops=location.ops)
        return read({}) if loaded is None else loaded

    @property
    def version(self) -> DataVersion:
        """How often and when the table was changed."""
        return self._version

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes that are not in the file."""
        return self._changes != self._written_changes

    def persist(self) -> bool:
        """Write the table if it was changed; tell whether it was.

        Raises:
            FileAccessError: it cannot be written; the old file stays and the book stays dirty.
            StoreClosedError: the book was closed, whether or not it was changed.
            StorePoisonedError: the log cannot be flushed; the old file stays.
        """
        with self._writing:
            self._require_open()
            return self._write()

    def close(self) -> None:
        """Write the table if it was changed; from now on it is neither changed nor written.

        A second call does nothing, unless the first one was interrupted.

        Raises:
            FileAccessError: it cannot be written; the old file stays, and the book is closed.
        """
        with self._writing:
            # Order: no change may come between the last write and the end.
            with self._lock:
                self._is_closed = True
            if self._is_ended:
                return
            try:
                self._write()
            except RocketLakeError:
                # Why: the store is closed all the same, and another process may own the file then.
                self._is_ended = True
                raise
            self._is_ended = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.path} belongs to a store that is closed")

    def _write(self) -> bool:
        """Write the table if it was changed; tell whether it was; `_writing` is held."""
        with self._lock:
            if not self.is_dirty:
                return False
            changes = self._changes
            members = merge(self._members, self._encode())
        if self.speaks_of_log:
            # Order: snapshot, log, table. Records that the snapshot names were appended
            # before it was taken, so this flush covers them. With the flush first, a commit
            # between the two would name a record that a power cut can still lose.
            self._flush_log()
        write_table(self._ops, self.path, self._dump(members))
        self._written_changes = changes
        return True

    @abstractmethod
    def _encode(self) -> JsonObject:
        """Return the known members of the file, as they are now; the lock is held."""

    @property
    def _has_version(self) -> bool:
        """Whether the file has a version; some tables of 4.x have none."""
        return not self._is_4x or VERSION_NAME in self._members

    def _dump(self, members: JsonObject) -> bytes:
        return java_json.dumps(members, pretty=True)

    def _encode_version(self) -> JsonObject:
        old = table.get_object(self._members, VERSION_NAME)
        return merge(old, encode_version(self._version, is_4x=self._is_4x))

    def _changed(self) -> None:
        """Note a change that does not count as a version; the lock is held.

        Raises:
            StoreClosedError: the book was closed; the change would be lost.
        """
        self._require_open()
        self._changes += 1

    def _next_version(self) -> None:
        """Note a change; the lock is held.

        Raises:
            StoreClosedError: the book was closed; the change would be lost.
        """
        self._require_open()
        self._changes += 1
        # Compat: as DataVersion#nextVersion; the state version is 0 outside of controller mode.
        self._version = DataVersion(self._version.counter + 1, self._clock.now_ms(), 0)


def merge(old: Mapping[str | int, JsonValue], new: JsonObject) -> JsonObject:
    """Return the members of both, new ones in place of old, as fastjson orders those of a class."""
    return dict(sorted({**old, **new}.items(), key=lambda member: str(member[0])))


def encode_version(version: DataVersion, *, is_4x: bool) -> JsonObject:
    """Return the JSON of a version."""
    members: JsonObject = {"counter": version.counter, "timestamp": version.timestamp}
    return members if is_4x else merge(members, {"stateVersion": version.state_version})


def encode_entry(value: Struct, old: JsonObject, later_members: frozenset[str]) -> JsonObject:
    """Return the JSON of an entry, with the unknown members of its old one.

    `later_members` are left out where they are empty or have their default, and were not there.
    """
    plain: JsonObject = msgspec.to_builtins(value, str_keys=True)
    defaults = _defaults(type(value))
    new: JsonObject = {
        name: member
        for name, member in plain.items()
        if member is not None
        and not (name in later_members and name not in old and member == defaults.get(str(name)))
    }
    return merge(old, new)


def _defaults(kind: type[Struct]) -> dict[str, JsonValue]:
    """Return the defaults of the members, by their names in the file."""
    found: dict[str, JsonValue] = {}
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            found[field.encode_name] = msgspec.to_builtins(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.encode_name] = msgspec.to_builtins(field.default_factory())
    return found
