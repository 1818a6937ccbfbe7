"""What kind of store a directory is: how it was stopped, which variants of the format it uses."""

from msgspec import Struct

from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names

_ROCKSDB_MARKS = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")


class Traits(Struct, frozen=True, kw_only=True):
    """What can be told from names alone."""

    is_clean: bool
    held_by: int | None
    is_5x: bool
    has_rocksdb_queues: bool
    variants: list[str]

    @property
    def is_4x(self) -> bool:
        """Tell whether nothing shows a release of 5.x."""
        return not self.is_5x


def look_at(directory: StoreDir) -> Traits:
    """Look at a store's names; nothing is opened but the mark of a running store."""
    abort = directory.ops.stat(directory.path(names.ABORT))
    rocksdb = _is_rocksdb(directory, names.CONSUME_QUEUE)
    variants = list(_variants(directory, rocksdb=rocksdb))
    is_5x = (
        directory.exists(names.ABORT + names.BACKUP_SUFFIX)
        or (abort is not None and abort.size > 0)
        or bool(variants and set(variants) - {"consume queue extension", "DLedger log"})
    )
    return Traits(
        is_clean=abort is None,
        held_by=directory.ops.lock_holder(directory.path(names.LOCK)),
        is_5x=is_5x,
        has_rocksdb_queues=rocksdb,
        variants=variants,
    )


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
        ("rocksdbstore", "RocksDB consume queues"),
        ("combined-consumequeue", "RocksDB consume queues"),
    )
    found += [text for name, text in named if _has_content(directory, name)]
    for entry in directory.ops.entries(directory.root):
        lowered = entry.name.lower()
        if lowered.startswith("dledger"):
            found.append("DLedger log")
        elif lowered.startswith(("tieredstore", "tiered_")):
            found.append("tiered storage")
    for entry in directory.ops.entries(directory.path(names.CONFIG)):
        if entry.is_dir and _is_rocksdb(directory, f"{names.CONFIG}/{entry.name}"):
            found.append("RocksDB config tables")
    return list(dict.fromkeys(found))


def _has_content(directory: StoreDir, name: str) -> bool:
    entry = directory.ops.stat(directory.path(name))
    if entry is None:
        return False
    return bool(directory.ops.entries(entry.path)) if entry.is_dir else entry.size > 0


def _is_rocksdb(directory: StoreDir, name: str) -> bool:
    found = [e.name for e in directory.ops.entries(directory.path(name)) if not e.is_dir]
    return any(entry.startswith(_ROCKSDB_MARKS) or entry.endswith(".sst") for entry in found)
