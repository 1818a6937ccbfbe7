"""What kind of store a directory is: how it was stopped, which variants of the format it uses."""

import shlex

from msgspec import Struct

from rocketlake.errors import RocksDbError, StoreError
from rocketlake.files.rocksdb import Database
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model.topics import TIMER_TOPIC

_TABLES_VARIANT = "RocksDB config tables"
_DLEDGER = "DLedger log"
_TIERED = "tiered storage"
_TIERED_TABLE = "tieredStoreMetadata.json"
_TIMER_FAMILY = "timer"
_DLEDGER_PREFIX = "dledger"  # and the number of the broker among its copies
_ROCKSDB_MARKS = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")


class Traits(Struct, frozen=True, kw_only=True):
    """What names of files and the checkpoint show."""

    is_clean: bool
    held_by: int | None
    is_5x: bool
    is_5_5: bool
    """5.5, or this package with `compatVersion` 5.5, has written to it: its index has tags."""
    has_rocksdb_queues: bool
    variants: list[str]

    @property
    def has_rocksdb_tables(self) -> bool:
        """Whether topics, groups or progress are in RocksDB."""
        return _TABLES_VARIANT in self.variants

    @property
    def has_dledger_log(self) -> bool:
        """Whether records are in a log of DLedger, which is not read."""
        return _DLEDGER in self.variants

    @property
    def is_4x(self) -> bool:
        """Tell whether nothing shows a release of 5.x."""
        return not self.is_5x


def look_at(directory: StoreDir) -> Traits:
    """Read the names in a store, its checkpoint and the mark of a running store."""
    abort = directory.ops.stat(directory.path(names.ABORT))
    rocksdb = bool(_rocksdb_queues(directory))
    variants = list(_variants(directory, rocksdb=rocksdb))
    # Compat: 5.5 makes its database with every store; no other release has a sixth value.
    page = Checkpoint.decode(directory.read_small(names.CHECKPOINT) or b"")
    is_5_5 = _is_rocksdb(directory, names.ROCKSDB_MESSAGES) or page.queue_physical_offset > 0
    is_5x = (
        directory.exists(names.ABORT + names.BACKUP_SUFFIX)
        or (abort is not None and abort.size > 0)
        or bool(variants and set(variants) - {"consume queue extension", _DLEDGER})
        or is_5_5
    )
    return Traits(
        is_clean=abort is None,
        held_by=directory.ops.lock_holder(directory.path(names.LOCK)),
        is_5x=is_5x,
        is_5_5=is_5_5,
        has_rocksdb_queues=rocksdb,
        variants=variants,
    )


def refuse_rocksdb(directory: StoreDir) -> None:
    """Refuse to write to a store that keeps queues, tables or its timer's progress in RocksDB.

    Raises:
        StoreError: the store is of that kind; nothing was changed.
    """
    refuse_rocksdb_queues(directory)
    _refuse_rocksdb_timer(directory)


def refuse_rocksdb_queues(directory: StoreDir) -> None:
    """Refuse to write to a store that keeps queues or tables in RocksDB, or its log in DLedger.

    Why: topics in RocksDB have no queue files, so every queue would begin at offset 0 again, and
    RocketMQ would read the new messages in the places of the old ones. Queues of a log in DLedger
    point behind the end of the plain log, so that recovery would cut all of them.

    Raises:
        StoreError: the store is of that kind; nothing was changed.
    """
    _refuse_dledger(directory)
    queues = _rocksdb_queues(directory)
    found = [*queues, *_rocksdb_tables(directory)]
    if not found:
        return
    what = "consume queues" if queues else "topics, groups and progress"
    place = shlex.quote(str(directory.root))
    raise StoreError(
        f"{directory.root} keeps its {what} in RocksDB ({', '.join(found)}), which RocketLake does"
        " not write: messages put here would take the places of those that are there. Nothing was"
        " changed. The store can be read (read_only=True, rocketlake dump, rocketlake export), and"
        f" 'rocketlake rebuild {place} --to DIRECTORY' makes a copy that can be written,"
        " with queues and tables in files. Only a RocketMQ broker with the same settings can go on"
        " with the store itself"
    )


def _refuse_dledger(directory: StoreDir) -> None:
    found = [
        entry.name
        for entry in directory.ops.entries(directory.root)
        if entry.name.lower().startswith(_DLEDGER_PREFIX)
    ]
    if found:
        raise StoreError(
            f"{directory.root} keeps its log in DLedger ({', '.join(found)}), which RocketLake"
            " neither reads nor writes; its queues point into that log. Nothing was changed. Only a"
            " RocketMQ broker with enableDLegerCommitLog can go on with the store; its messages"
            " are read through the broker"
        )


def _refuse_rocksdb_timer(directory: StoreDir) -> None:
    """Refuse to write to a store whose timed messages RocksDB's timer may have delivered.

    Why: with timerRocksDBEnable the progress is in the database only. The timer's own checkpoint
    stays at 0, and every timed message of the queue would be delivered again.
    """
    queue = f"{names.CONSUME_QUEUE}/{TIMER_TOPIC}"
    if not _has_rocksdb_data(directory, names.ROCKSDB_MESSAGES) or not directory.exists(queue):
        return
    place = directory.path(names.ROCKSDB_MESSAGES)
    try:
        with Database(directory.ops, place) as database:
            if next(database.items(_TIMER_FAMILY), None) is None:
                return
        found = "holds how far they were delivered (timerRocksDBEnable)"
        way_out = ""
    except RocksDbError as error:
        found = f"may hold how far they were delivered (timerRocksDBEnable): {error}"
        way_out = (
            ". If no broker ever had timerRocksDBEnable, move"
            f" {names.ROCKSDB_MESSAGES} out of the store"
        )
    raise StoreError(
        f"{directory.root} has timed messages, and {names.ROCKSDB_MESSAGES} {found}. They could be"
        " delivered again. Nothing was changed. The store can be read (read_only=True, rocketlake"
        " dump, rocketlake export); only a RocketMQ broker with the same settings can go on with"
        f" it{way_out}"
    )


def _rocksdb_queues(directory: StoreDir) -> list[str]:
    """Return the directories that hold a database of queues."""
    # Compat: 5.5 has a directory of its own for it with useSeparateStorePathForRocksdbCQ.
    candidates = (names.CONSUME_QUEUE, names.ROCKSDB_QUEUES)
    return [name for name in candidates if _is_rocksdb(directory, name)]


def _rocksdb_tables(directory: StoreDir) -> list[str]:
    """Return the directories below `config` that hold a database of topics, groups or progress."""
    entries = directory.ops.entries(directory.path(names.CONFIG))
    found = [f"{names.CONFIG}/{entry.name}" for entry in entries if entry.is_dir]
    return [name for name in found if _is_rocksdb(directory, name)]


def _variants(directory: StoreDir, *, rocksdb: bool) -> list[str]:
    """Name what a store has beyond log, queues, index and tables."""
    found = ["RocksDB consume queues"] if rocksdb else []
    named = (
        (names.BATCH_CONSUME_QUEUE, "batch consume queues"),
        (names.CONSUME_QUEUE_EXT, "consume queue extension"),
        (names.TIMER_WHEEL, "timer wheel"),
        (names.TIMER_LOG, "timer log"),
        (names.COMPACTION, "compaction topics"),
        (names.EPOCHS, "controller mode"),
        # Compat: the files themselves are where tieredStoreFilePath says.
        (f"{names.CONFIG}/{_TIERED_TABLE}", _TIERED),
    )
    found += [text for name, text in named if _has_content(directory, name)]
    # Compat: 5.5 makes this database with every store, and leaves it empty by default.
    if _has_rocksdb_data(directory, names.ROCKSDB_MESSAGES):
        found.append("RocksDB message database")
    for entry in directory.ops.entries(directory.root):
        lowered = entry.name.lower()
        if lowered.startswith(_DLEDGER_PREFIX):
            found.append(_DLEDGER)
        elif lowered.startswith(("tieredstore", "tiered_")):
            found.append(_TIERED)
    if _rocksdb_tables(directory):
        found.append(_TABLES_VARIANT)
    return list(dict.fromkeys(found))


def _has_content(directory: StoreDir, name: str) -> bool:
    entry = directory.ops.stat(directory.path(name))
    if entry is None:
        return False
    return bool(directory.ops.entries(entry.path)) if entry.is_dir else entry.size > 0


def _has_rocksdb_data(directory: StoreDir, name: str) -> bool:
    """Tell whether a database has tables, or a log that is not empty."""
    entries = [e for e in directory.ops.entries(directory.path(name)) if not e.is_dir]
    return any(e.size and e.name.endswith((".sst", ".log")) for e in entries)


def _is_rocksdb(directory: StoreDir, name: str) -> bool:
    found = [e.name for e in directory.ops.entries(directory.path(name)) if not e.is_dir]
    return any(entry.startswith(_ROCKSDB_MARKS) or entry.endswith(".sst") for entry in found)
