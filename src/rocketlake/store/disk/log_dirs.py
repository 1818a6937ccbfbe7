"""The directories of the commit log: those that options name, or those of the store."""

from pathlib import Path

from rocketlake.errors import StoreNotFoundError
from rocketlake.files.local_path import absolute_path
from rocketlake.files.mapped_file_queue import QueuePaths
from rocketlake.files.ops import FileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.store.disk.traits import refuse_rocksdb

_SEPARATOR = ","


def named_paths(writable: str | None, read_only: str | None, root: Path) -> QueuePaths | None:
    """Return the directories that storePathCommitLog and readOnlyCommitLogStorePaths name.

    None if they name none. `{store}` in a path stands for the store.
    """
    # Compat: MultiPathMappedFileQueue compares paths as texts, where `a` and `a/` are two. And a
    # read-only path is read there only if storePathCommitLog has a comma; here it always is, since
    # leaving it out would hide messages.
    paths = _split(writable, root), _split(read_only, root)
    if not any(paths):
        return None
    return QueuePaths(paths[0] or (root / names.COMMIT_LOG,), paths[1])


def readable_dirs(writable: str | None, read_only: str | None, root: Path) -> tuple[Path, ...]:
    """Return all directories that the two options name, for a view; empty if they name none."""
    paths = named_paths(writable, read_only, root)
    return () if paths is None else (*paths.writable, *paths.read_only)


def open_dirs(ops: FileOps, root: Path, paths: QueuePaths | None) -> tuple[StoreDir, QueuePaths]:
    """Make the directories that are missing; without paths, take those that the store has.

    Raises:
        StoreNotFoundError: there are queues, but no directory of a log.
        StoreError: queues or tables are in RocksDB; nothing was changed.
        FileAccessError: a directory cannot be made.
    """
    if paths is None:
        directory = StoreDir.make(ops, root)
        refuse_rocksdb(directory)
        paths = QueuePaths(directory.log_dirs)
        _refuse_queues_alone(directory, paths)
        return directory, paths
    found = tuple(path for path in paths.read_only if ops.stat(path) is not None)
    ops.mkdirs(root)
    refuse_rocksdb(StoreDir(ops, root))
    _refuse_queues_alone(StoreDir(ops, root), paths)
    both = tuple(dict.fromkeys((*paths.writable, *found)))
    return StoreDir.make(ops, root, both), paths


def _split(text: str | None, root: Path) -> tuple[Path, ...]:
    parts = (part.strip() for part in (text or "").split(_SEPARATOR))
    named = (absolute_path(part.replace("{store}", str(root))) for part in parts if part)
    return tuple(dict.fromkeys(named))


def _refuse_queues_alone(directory: StoreDir, paths: QueuePaths) -> None:
    """Refuse to take queues for those of an empty log, which recovery would destroy.

    Why: the log's disk may not be mounted, or a caller forgot to name its directories.
    """
    ops = directory.ops
    named = (*paths.writable, *paths.read_only)
    families = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE)
    if any(ops.stat(path) is not None for path in named):
        return
    if any(ops.entries(directory.path(family)) for family in families):
        raise StoreNotFoundError(
            f"{directory.root} has queues, but no commit log at "
            f"{', '.join(map(str, named))}: name its directories (storePathCommitLog), mount"
            f" their disk, or make the directory to begin a new log without those messages. The log"
            f" of a broker with enableDLegerCommitLog is DLedger's, which RocketLake does not read"
        )
