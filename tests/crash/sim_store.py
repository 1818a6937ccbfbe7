"""The store of the crash laboratory: small files, several ways to bring them to the disk."""

from functools import cache
from pathlib import Path

from sim_disk import SimDisk

from rocketlake.files.ops import FileOps
from rocketlake.store.assembly import Base
from rocketlake.store.disk.log_dirs import open_dirs
from rocketlake.store.message_store import MessageStore
from rocketlake.store.options import StoreOptions
from support.engine import Catalog
from support.manual_clock import ManualClock

ROOT = Path("/store")
SIZES: dict[str, object] = {
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 5 * 20,
    "max_hash_slot_num": 4,
    "max_index_num": 12,
    "recover_concurrently": False,  # so that a recorded run is always the same
}
MODES: dict[str, dict[str, object]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {},
    "buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
    "checksums": {"enabled_append_prop_crc": True, "force_verify_prop_crc": True},
}
EXACT = frozenset({"checksums"})
"""Where a checksum covers whole records."""


@cache
def options_of(mode: str) -> StoreOptions:
    """Return the options of a way to flush; reading them takes longer than a recovery."""
    return StoreOptions.from_source(None, **SIZES, **MODES[mode])


def open_on(
    disk: SimDisk | FileOps, clock: ManualClock, mode: str, root: Path = ROOT
) -> MessageStore:
    """Open a store on a disk; the caller closes it."""
    directory, paths = open_dirs(disk, root, None)
    base = Base(directory, paths, options_of(mode), clock, Catalog())
    return MessageStore(base).start()
