"""The manifest of an archive: what was archived, up to which offsets, and in which files.

1. `_manifest.json` decides: a file that is not in it does not belong to the archive.
2. It is replaced atomically. A reader keeps the one it has read.
3. A file grows: it may be replaced by one of the same name that has all its messages and later
   ones. A reader with an older manifest takes only the queue offsets in that manifest.
4. A committed file that was not renamed yet is found under `staged`.
5. A file that was dropped, or merged into another one, is kept below `_retired` under its old path
   for a time, for readers with an older manifest.

It needs neither Arrow nor Spark: a store that keeps unarchived messages reads it, too.
"""

import hashlib
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from rocketlake import failpoint
from rocketlake.errors import ConfigError, StoreError
from rocketlake.files.local_path import absolute_path
from rocketlake.files.ops import FileOps
from rocketlake.files.whole_file import read_whole, write_whole
from rocketlake.model.topics import is_lmq, is_system_topic

MANIFEST: Final = "_manifest.json"
WORK: Final = "_work"
RETIRED: Final = "_retired"
PARQUET: Final = "parquet"
VERSION: Final = 1
RUNS_KEPT: Final = 100
"""And so many drops."""
_NAME_MAX: Final = 255
_KEPT: Final = 200  # characters of a name that is too long; topics are ASCII

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")


class QueueEnd(Struct, frozen=True, kw_only=True):
    """The archived end of a queue."""

    broker: str
    topic: str
    queue_id: int
    first_offset: int
    """The first queue offset of the first run; a drop moves it to the first that is left."""
    next_offset: int
    """The first one that is not archived yet."""
    last_physical_offset: int = -1
    """The log offset of the last archived record; it tells a queue from a later one of its name."""


class ArchivedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file; times are milliseconds since 1970."""

    path: str
    """Below the directory of the archive."""
    broker: str
    topic: str
    date: str
    """Of the store time, UTC."""
    queues: dict[int, tuple[int, int]]
    """First queue offset, and the one after the last, by queue."""
    rows: int
    bytes: int
    log_bytes: int
    """The size of the messages in the log."""
    min_store_time: int
    max_store_time: int
    min_born_time: int
    max_born_time: int
    sha256: str
    run: int
    footer_sha256: str = ""
    """Of the Parquet metadata at the end of the file; files of earlier releases have none."""
    staged: str | None = None
    """Its path until it is renamed."""


class Gap(Struct, frozen=True, kw_only=True):
    """Messages that expired before they were archived: a range of queue offsets."""

    broker: str
    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    run: int


class RunNote(Struct, frozen=True, kw_only=True):
    """The result of a run."""

    run: int
    at: str
    rows: int
    bytes: int
    files: int
    left_out: int = 0
    """Messages that could not be read, or have no record."""
    job: str = "archive"
    """archive, compact or drop; the latter two add no message."""


class RetiredFile(Struct, frozen=True, kw_only=True):
    """A file that is no longer part of the archive, kept for readers of older manifests."""

    path: str
    """Its old path, which it keeps below `_retired`."""
    until: int
    """The first run after this time (ms since 1970) deletes it."""


class DropNote(Struct, frozen=True, kw_only=True):
    """Days that were dropped."""

    run: int
    at: str
    before: str
    """The first day that was kept."""
    topics: tuple[str, ...]
    """Names, or patterns."""
    files: int
    rows: int
    bytes: int


class Pending(Struct, frozen=True, kw_only=True):
    """A started run into a table format; only the table tells whether it was committed."""

    run: int
    ends: tuple[QueueEnd, ...]
    gaps: tuple[Gap, ...] = ()
    at: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The whole manifest; see the module."""

    version: int = VERSION
    archive: str
    """A unique id."""
    format: str = PARQUET
    run: int = 0
    covers: tuple[str, ...] = ()
    """Topics, or patterns of topics, that were archived."""
    queues: tuple[QueueEnd, ...] = ()
    files: tuple[ArchivedFile, ...] = ()
    gaps: tuple[Gap, ...] = ()
    runs: tuple[RunNote, ...] = ()
    pending: Pending | None = None
    retired: tuple[RetiredFile, ...] = ()
    drops: tuple[DropNote, ...] = ()

    def ends(self) -> dict[tuple[str, str, int], QueueEnd]:
        """Return the queues by broker, topic and number."""
        return {(end.broker, end.topic, end.queue_id): end for end in self.queues}

    def wants(self, topic: str) -> bool:
        """Tell whether the archive covers a topic."""
        return any(wants_topic(pattern, topic) for pattern in self.covers)


def wants_topic(pattern: str, topic: str) -> bool:
    """Tell whether a pattern matches a topic; only a full name matches a system topic.

    The messages of a light queue are those of other topics: it never matches.
    """
    if is_lmq(topic):
        return False
    return topic == pattern or (not is_system_topic(topic) and fnmatchcase(topic, pattern))


def load_manifest(ops: FileOps, directory: Path) -> Manifest | None:
    """Read the manifest of an archive; None if there is none.

    Raises:
        StoreError: it cannot be read, or a later version wrote it.
    """
    path = directory / MANIFEST
    data = read_whole(ops, path)
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"{path} is not a manifest of an archive ({error}); name the directory that"
            " `rocketlake archive` wrote, or restore the file"
        ) from error
    if found.version > VERSION:
        raise StoreError(
            f"{path} was written by a later version (manifest {found.version}; this one reads"
            f" {VERSION}): update rocketlake"
        )
    return found


def write_manifest(ops: FileOps, directory: Path, manifest: Manifest, step: str) -> None:
    """Replace the manifest atomically.

    Durability: it is on the disk when this returns; a crash before leaves the old or the new one.
    """
    path = directory / MANIFEST
    fresh = path.with_name(path.name + ".tmp")
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    write_whole(ops, fresh, data)
    failpoint.hit(f"{step}.before")
    ops.rename(fresh, path)
    ops.sync_dir(directory)
    failpoint.hit(f"{step}.after")


def archive_path(text: str | os.PathLike[str]) -> Path:
    """Return the directory of a path, with or without `file:`.

    Raises:
        ConfigError: it is not on this machine, or empty.
    """
    if not os.fspath(text).strip():
        raise ConfigError("the directory of the archive is not named")
    return absolute_path(text)


def partition_path(topic: str, date: str) -> str:
    """Return the directory of a topic's day, spelled as Spark and Hive spell it."""
    name = f"topic={_UNSAFE.sub(lambda found: f'%{ord(found[0]):02X}', topic)}"
    if len(name.encode()) > _NAME_MAX:
        # Too long for a file name; the manifest has the whole topic.
        name = f"{name[:_KEPT]}~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"
    return f"{name}/date={date}"
