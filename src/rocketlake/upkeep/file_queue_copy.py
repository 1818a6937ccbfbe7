"""A store with queues and tables in files, made from one that keeps them in RocksDB.

It is made as a backup is, and is a store of its own from then on: without a manifest, so that no
later backup continues it. The source is only read.
"""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.backup import manifest as manifests
from rocketlake.upkeep.backup.copier import Backup, BackupReport, Listener


class FileQueueCopy(Backup):
    """Copies one store into a store of its own."""

    noun = "copy"
    can_prune = False


def plan_copy(view: OfflineStore, target: Path) -> Iterator[str]:
    """Say in words what a copy will do.

    Raises:
        StoreError: the store has its queues and tables in files.
    """
    _require_rocksdb(view)
    size = view.max_offset - view.min_offset
    yield f"copy {size} bytes of log to {target}"
    topics = {key.topic for key in view.queues}
    yield f"make files of {len(view.queues)} queues of {len(topics)} topics"
    yield "write topics, groups and progress as JSON files"
    yield f"leave {view.directory.root} as it is"


def copy_with_file_queues(
    open_source: Callable[[], OfflineStore],
    target: Path,
    listener: Listener,
    *,
    ops: FileOps | None = None,
) -> BackupReport:
    """Make the copy in a directory that is empty or not there, or continue one that was begun.

    Raises:
        RocksDbMissingError: the extra that reads RocksDB is not installed.
        StoreError: the store has no queues or tables in RocksDB, the directory holds something
            else, or files cannot be read or written.
    """
    ops = ops or PosixFileOps()
    with open_source() as view:
        _require_rocksdb(view)
        source = view.directory.root
    begun = manifests.load(ops, target)
    if begun is not None and begun.state != "copying":
        raise StoreError(f"{target} is a backup; name a directory that is empty or not there")
    report = FileQueueCopy(source, open_source, target, listener, ops=ops).run()
    ops.unlink(target / manifests.NAME)
    ops.sync_dir(target)
    return report


def _require_rocksdb(view: OfflineStore) -> None:
    if not (view.traits.has_rocksdb_queues or view.traits.has_rocksdb_tables):
        root = view.directory.root
        place = shlex.quote(str(root))
        raise StoreError(
            f"{root} has its queues and tables in files: 'rocketlake rebuild {place}' makes them"
            f" anew in their place, 'rocketlake backup {place} DIRECTORY' copies them"
        )
