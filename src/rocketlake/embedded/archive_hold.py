"""ArchiveHold: keeps log files until an archive has their messages.

1. The manifest of the archive is read, never written, and read again only when it has changed.
2. Without a manifest, with one that cannot be read, or with one that has no queue of this store,
   every log file is kept.
3. Topics that the archive does not cover are not held.
"""

import logging
import os
from pathlib import Path

from rocketlake.errors import ConfigError
from rocketlake.files.ops import FileOps
from rocketlake.metadata.archive_manifest import (
    MANIFEST,
    Manifest,
    QueueEnd,
    archive_path,
    load_manifest,
)
from rocketlake.store.queue.queue_set import ConsumeQueueSet
from rocketlake.store.queue.unit_queue import UnitQueue

log = logging.getLogger(__name__)


class ArchiveHold:
    """Tells retention from which offset on the log is not archived yet.

    Thread-safety: any thread may ask.
    """

    def __init__(self, ops: FileOps, queues: ConsumeQueueSet, directory: Path, broker: str) -> None:
        self._ops = ops
        self._queues = queues
        self._directory = directory
        self._broker = broker
        self._seen: tuple[object, ...] | None = None
        self._manifest: Manifest | None = None
        self._warned = ""

    def __call__(self) -> int | None:
        """Return the log offset below which files may be deleted; None: all of them.

        Raises:
            StoreError: the manifest cannot be read; retention keeps everything then.
        """
        manifest = self._read()
        if manifest is None or not any(end.broker == self._broker for end in manifest.queues):
            self._warn(manifest)
            return 0
        self._warned = ""
        ends = manifest.ends()
        needed: int | None = None
        for key, queue in self._queues.items():
            if not manifest.wants(key.topic):
                continue
            end = ends.get((self._broker, key.topic, key.queue_id))
            found = _first_physical(queue, _reached(queue, end))
            if found is not None:
                needed = found if needed is None else min(needed, found)
        return needed

    def _read(self) -> Manifest | None:
        path = self._directory / MANIFEST
        entry = self._ops.stat(path)
        seen = None
        if entry is not None:
            seen = (entry.mtime_ms, entry.size, self._ops.identity(path))
        if seen is None or seen != self._seen:
            self._manifest = load_manifest(self._ops, self._directory)
            self._seen = seen
        return self._manifest

    def _warn(self, manifest: Manifest | None) -> None:
        if manifest is None:
            reason = "there is no manifest yet"
        else:
            names = ", ".join(sorted({end.broker for end in manifest.queues})) or "nothing"
            reason = f"it has {names}, and nothing of {self._broker!r}"
        if reason != self._warned:  # called every few seconds
            self._warned = reason
            log.warning(
                "no log file is deleted before it is archived archive=%s reason=%s",
                self._directory,
                reason,
            )


def _reached(queue: UnitQueue, end: QueueEnd | None) -> int:
    """Return the end of the archived part of a queue; 0 if the queue was recreated since."""
    if end is None or end.next_offset > queue.max_offset:
        return 0
    last = end.next_offset - 1
    if end.last_physical_offset < 0 or last < queue.min_offset:
        return end.next_offset
    units = queue.units(last, 1)
    is_same = len(units) and int(units["physical_offset"][0]) == end.last_physical_offset
    return end.next_offset if is_same else 0


def _first_physical(queue: UnitQueue, offset: int) -> int | None:
    """Return the log offset of the first message from a queue offset on; None without one."""
    # Order: the end first; messages that arrive meanwhile are after it.
    end = queue.max_offset
    offset = max(offset, queue.min_offset)
    if offset >= end:
        return None
    units = queue.units(offset, 1)
    # Why: a unit that cannot be read proves nothing, so everything is kept.
    return int(units["physical_offset"][0]) if len(units) else 0


def parse_archive(given: str | os.PathLike[str], root: Path) -> tuple[Path, str]:
    """Read `DIR` or `BROKER=DIR`; without a name the store has that of its directory, as in Spark.

    Raises:
        ConfigError: no directory is named.
    """
    text = os.fspath(given)
    broker, separator, directory = text.partition("=")
    if not separator or "/" in broker:
        broker, directory = "", text
    if not directory:
        raise ConfigError(
            f"keep_until_archived = {text!r}: wanted the directory of an archive, or BROKER=DIR"
        )
    return archive_path(directory), broker or root.name
