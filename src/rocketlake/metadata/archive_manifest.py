"""The manifest of an archive: what was archived, up to where, and in which files.

1. `_manifest.json` is the truth: a file that is not in it does not belong to the archive.
2. It is replaced as a whole, at once. A reader keeps the one it has read.
3. A file grows: it may be replaced by one of the same name that holds all its messages, and more
   behind them. Whoever has read an older manifest takes only the queue offsets that one names.
4. A file that was committed but has not its name yet is found under `staged`.
5. A file that was dropped, or merged into another one, is found below `_retired` under its old path
   until its time is over: by readers that have read an older manifest.

It needs neither Arrow nor Spark: a store that keeps what is not yet archived reads it too.
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
    """Up to where a queue is archived."""

    broker: str
    topic: str
    queue_id: int
    first_offset: int
    """The first queue offset that was looked for; a drop moves it to the first that is left."""
    next_offset: int
    """The first one that is not archived yet."""
    last_physical_offset: int = -1
    """Where the last archived record lies in the log; it tells a queue from a later one."""


class ArchivedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file; times are milliseconds since 1970."""

    path: str
    """Below the directory of the archive."""
    broker: str
    topic: str
    date: str
    """Of the store time, UTC."""
    queues: dict[int, tuple[int, int]]
    """First queue offset, and the one behind the last, by queue."""
    rows: int
    bytes: int
    log_bytes: int
    """What the messages take in the log."""
    min_store_time: int
    max_store_time: int
    min_born_time: int
    max_born_time: int
    sha256: str
    run: int
    staged: str | None = None
    """Where it lies until it gets its name."""


class Gap(Struct, frozen=True, kw_only=True):
    """Messages that expired before they were archived: from an offset, up to another."""

    broker: str
    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    run: int


class RunNote(Struct, frozen=True, kw_only=True):
    """What a run has done."""

    run: int
    at: str
    rows: int
    bytes: int
    files: int
    left_out: int = 0
    """Messages that could not be read, or that the queue has no record of."""
    job: str = "archive"
    """What the run did: archive, compact or drop; the latter two add no message."""


class RetiredFile(Struct, frozen=True, kw_only=True):
    """A file that is no longer part of the archive, kept for readers of older manifests."""

    path: str
    """The name it had; it is kept below `_retired` under the same."""
    until: int
    """When it is deleted (ms since 1970): by the first run after that."""


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
    """A run into a table format that was begun; whether the table has it must be looked up."""

    run: int
    ends: tuple[QueueEnd, ...]
    gaps: tuple[Gap, ...] = ()
    at: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The whole manifest; see the module."""

    version: int = VERSION
    archive: str
    """A name that no other archive has."""
    format: str = PARQUET
    run: int = 0
    covers: tuple[str, ...] = ()
    """Topics, or patterns of topics, that runs were asked for."""
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
        """Tell whether the archive is to have a topic."""
        return any(wants_topic(pattern, topic) for pattern in self.covers)


def wants_topic(pattern: str, topic: str) -> bool:
    """Tell whether a topic is meant; patterns do not mean the broker's own topics.

    The messages of a light queue are those of other topics: it is never meant.
    """
    if is_lmq(topic):
        return False
    return topic == pattern or (not is_system_topic(topic) and fnmatchcase(topic, pattern))


def load_manifest(ops: FileOps, directory: Path) -> Manifest | None:
    """Read the manifest of an archive; None if there is none.

    Raises:
        StoreError: it cannot be read, or a later version has written it.
    """
    path = directory / MANIFEST
    data = read_whole(ops, path)
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"{path} is no manifest of an archive ({error}); name the directory that"
            " `rocketlake archive` wrote, or restore the file"
        ) from error
    if found.version > VERSION:
        raise StoreError(
            f"{path} was written by a later version (manifest {found.version}; this one reads"
            f" {VERSION}): update rocketlake"
        )
    return found


def write_manifest(ops: FileOps, directory: Path, manifest: Manifest, step: str) -> None:
    """Put a manifest in the place of the old one, at once.

    Durability: when this returns it is on the disk; a crash before leaves the old or the new one.
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
    """Return the directory that a text means; `file:` may stand before it.

    Raises:
        ConfigError: it is none of this machine's, or nothing is named.
    """
    if not os.fspath(text).strip():
        raise ConfigError("the directory of the archive is not named")
    return absolute_path(text)


def partition_path(topic: str, date: str) -> str:
    """Return the directory of a topic's day, spelled as Spark and Hive spell it."""
    name = f"topic={_UNSAFE.sub(lambda found: f'%{ord(found[0]):02X}', topic)}"
    if len(name.encode()) > _NAME_MAX:
        # A file system has no room for it; the manifest has the whole topic.
        name = f"{name[:_KEPT]}~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"
    return f"{name}/date={date}"
