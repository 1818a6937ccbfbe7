"""Where each file family lives in a store directory."""

from pathlib import Path
from typing import Self

from msgspec import Struct

from rocketlake.errors import StoreNotFoundError
from rocketlake.files.ops import Entry, FileOps
from rocketlake.format import names

_FAMILIES = frozenset(
    {
        names.COMMIT_LOG,
        names.CONSUME_QUEUE,
        names.BATCH_CONSUME_QUEUE,
        names.CONSUME_QUEUE_EXT,
        names.INDEX,
        names.CONFIG,
        names.TIMER_LOG,
        names.COMPACTION,
    }
)


class OffsetFile(Struct, frozen=True):
    """A file whose name is the offset of its first byte."""

    path: Path
    base_offset: int
    size: int
    mtime_ms: int


class QueueDir(Struct, frozen=True):
    """The directory of one queue."""

    topic: str
    queue_id: int
    path: Path


class StoreDir:
    """The paths of one store; looks, and writes nothing but missing directories, if asked."""

    def __init__(self, ops: FileOps, root: Path, log_dirs: tuple[Path, ...] = ()) -> None:
        """Check that the root is a directory; without `log_dirs` find the log's own.

        Raises:
            StoreNotFoundError: nothing is there, or it is no directory or not readable.
        """
        self.ops = ops
        self.root = root
        _require_dir(ops, root, "store")
        ops.entries(root)
        for path in log_dirs:
            _require_dir(ops, path, "commit log")
        self.log_dirs = log_dirs or self._find_log_dirs()

    @classmethod
    def make(cls, ops: FileOps, root: Path, log_dirs: tuple[Path, ...] = ()) -> Self:
        """Make the directories that are missing, and return their paths.

        Raises:
            FileAccessError: one cannot be made.
        """
        for path in (root, *log_dirs):
            ops.mkdirs(path)
        return cls(ops, root, log_dirs)

    def path(self, name: str) -> Path:
        """Return the path of a family or a single file."""
        return self.root / name

    def exists(self, name: str) -> bool:
        """Tell whether a family or a single file is there."""
        return self.ops.stat(self.root / name) is not None

    def is_store(self) -> bool:
        """Tell whether anything here looks like a store: a log, or one of the other families."""
        return any(self.ops.stat(path) is not None for path in self.log_dirs) or any(
            self.exists(name) for name in (*_FAMILIES - {names.CONFIG, names.INDEX}, names.ABORT)
        )

    def log_files(self) -> list[OffsetFile]:
        """List the commit log's files of all its directories, in the order of their names."""
        found = [file for path in self.log_dirs for file in self.offset_files(path)]
        return sorted(found, key=lambda file: (file.base_offset, str(file.path)))

    def offset_files(self, path: Path) -> list[OffsetFile]:
        """List the files of a directory whose names are offsets."""
        return [
            OffsetFile(entry.path, base, entry.size, entry.mtime_ms)
            for entry in self.ops.entries(path)
            if not entry.is_dir and (base := names.parse_offset_name(entry.name)) is not None
        ]

    def queue_dirs(self, family: str) -> list[QueueDir]:
        """List the queues of a family by topic and number; other directories are passed over."""
        found = [
            QueueDir(topic.name, int(queue.name), queue.path)
            for topic in self.ops.entries(self.root / family)
            if topic.is_dir
            for queue in self.ops.entries(topic.path)
            if queue.is_dir and _is_queue_id(queue.name)
        ]
        return sorted(found, key=lambda queue: (queue.topic, queue.queue_id))

    def index_files(self) -> list[Entry]:
        """List the index files, oldest first."""
        entries = self.ops.entries(self.root / names.INDEX)
        return [e for e in entries if not e.is_dir and names.is_index_name(e.name)]

    def read_small(self, name: str, size_max: int = 1 << 20) -> bytes | None:
        """Return the content of a small file; None if it is not there."""
        entry = self.ops.stat(self.root / name)
        if entry is None or entry.is_dir:
            return None
        reader = self.ops.open_reader(entry.path)
        try:
            return reader.read(0, min(entry.size, size_max))
        finally:
            reader.close()

    def _find_log_dirs(self) -> tuple[Path, ...]:
        """Take `commitlog`; if there is none, the directories that hold files named by offset."""
        usual = self.root / names.COMMIT_LOG
        if self.ops.stat(usual) is not None:
            return (usual,)
        found = [
            entry.path
            for entry in self.ops.entries(self.root)
            if entry.is_dir and entry.name not in _FAMILIES and self.offset_files(entry.path)
        ]
        return tuple(found) or (usual,)


def _require_dir(ops: FileOps, path: Path, what: str) -> None:
    entry = ops.stat(path)
    if entry is None:
        raise StoreNotFoundError(f"no {what} at {path}: there is no such directory")
    if not entry.is_dir:
        raise StoreNotFoundError(f"no {what} at {path}: it is a file, not a directory")


def _is_queue_id(name: str) -> bool:
    """Tell whether a directory is that of a queue; clients may number queues below 0, too."""
    digits = name.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(name)) == name
