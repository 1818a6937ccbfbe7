"""The queues of a store as the disk has them, in files or in RocksDB, before any rule applies."""

from pathlib import Path
from typing import Final

from rocketlake.errors import RocksDbError
from rocketlake.files.rocksdb import Database, is_database
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log import Readers
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.disk.rocksdb_queues import load_queues
from rocketlake.store.disk.stored_units import HELD_MAX
from rocketlake.store.options import ReadOptions
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN

_HELD_TOTAL: Final = 64 << 20  # bytes of units of small queues that are kept in memory


class DiskQueues:
    """Loads the queues of one store."""

    def __init__(
        self,
        directory: StoreDir,
        readers: Readers,
        options: ReadOptions,
        damage: Damage,
        *,
        passes_damage: bool = False,
    ) -> None:
        self._directory = directory
        self._readers = readers
        self._options = options
        self._damage = damage
        self._passes_damage = passes_damage

    def load_files(self, *, is_clean: bool) -> dict[QueueKey, QueueView]:
        """Load the queues that are files."""
        found: dict[QueueKey, QueueView] = {}
        left = _HELD_TOTAL
        options = self._options
        families = (
            (names.CONSUME_QUEUE, PLAIN, options.mapped_file_size_consume_queue),
            (names.BATCH_CONSUME_QUEUE, BATCHED, options.mapper_file_size_batch_consume_queue),
        )
        for family, kind, file_size in families:
            for place in self._directory.queue_dirs(family):
                key = QueueKey(place.topic, place.queue_id)
                files = self._directory.offset_files(place.path)
                # A file that was just made is empty, but only the last of several can be that.
                may_be_empty = [] if is_clean and len(files) == 1 else files[-1:]
                for file in files:
                    if not file.size and file not in may_be_empty:
                        self._damage.report(file.path, 0, f"the file of {key} is empty")
                files = [f for f in files if f.size]
                if not files and key in found:
                    continue
                view = QueueView(key, kind, self._readers, files, file_size=file_size)
                view.load(
                    self._damage,
                    is_clean=is_clean,
                    passes_damage=self._passes_damage,
                    held_max=min(HELD_MAX, left),
                )
                left -= view.held_size
                found[key] = view
        return found

    def open_rocksdb(self) -> Database:
        """Open the database that holds the queues.

        Raises:
            RocksDbMissingError: the extra is not installed.
            RocksDbError: there is no database that can be read.
        """
        return Database(self._directory.ops, self._database_path())

    def load_rocksdb(self, database: Database, log_min: int) -> dict[QueueKey, QueueView]:
        """Load the queues of a database, without units whose messages the log has lost.

        Raises:
            RocksDbError: the database is damaged.
        """
        return dict(load_queues(database, self._readers, log_min))

    def _database_path(self) -> Path:
        # Compat: with useSeparateStorePathForRocksdbCQ both may be there; the broker uses this one.
        for name in (names.ROCKSDB_QUEUES, names.CONSUME_QUEUE):
            path = self._directory.path(name)
            if is_database(self._directory.ops, path):
                return path
        raise RocksDbError(
            f"{self._directory.root}: the RocksDB database of the queues has no CURRENT"
        )
