"""A copy with queues and tables in files, of a store that keeps them in RocksDB.

Queues are made from the copied log, as a start makes queues that are lost. What the log cannot tell
is done here: where queues continue whose messages have all expired, and which topics were deleted.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rocketlake.clock import Clock
from rocketlake.errors import RocksDbError
from rocketlake.files.ops import FileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import java_json, names
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.metadata import rocksdb_tables
from rocketlake.metadata.book import VERSION_NAME, encode_version, merge
from rocketlake.metadata.table import DataVersion
from rocketlake.store.offline import OfflineStore
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.queue_set import ConsumeQueueSet, QueueShape


def read_tables(ops: FileOps, config: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the tables that are in RocksDB, as the files that a broker has for them.

    Raises:
        RocksDbMissingError: the extra is not installed.
        RocksDbError: a database cannot be read.
    """
    for name in rocksdb_tables.TABLES:
        members = rocksdb_tables.load_members(config / name, ops)
        if members is not None:
            # Compat: the table of progress has no version in RocksDB, which its file has.
            version = encode_version(DataVersion(), is_4x=False)
            whole = merge({VERSION_NAME: version}, members)
            yield name, java_json.dumps(whole, pretty=True)


def require_readable(view: OfflineStore) -> None:
    """Refuse a source whose queues in RocksDB cannot be read.

    Raises:
        RocksDbError: they cannot.
    """
    _ = view.queues
    if view.rocksdb_problem is not None:
        raise RocksDbError(
            f"{view.directory.root} keeps its consume queues in RocksDB, and cannot be copied:"
            f" {view.rocksdb_problem}"
        )


def begin_expired_queues(
    view: OfflineStore, directory: StoreDir, clock: Clock, shape: QueueShape
) -> None:
    """Make the queues whose messages have all expired, so that their numbering continues.

    Each gets one unit, in the last place, for a message that the log has lost.
    """
    wanted = {
        key: queue.max_offset
        for key, queue in view.queues.items()
        if not queue.total and queue.max_offset > 0
    }
    if not wanted or view.min_offset <= 0:
        return
    queues = ConsumeQueueSet(directory, clock, shape)
    try:
        queues.load(is_clean=False)
        queues.recover()
        unit = np.array([(view.min_offset - 1, 1, 0)], UNIT_DTYPE)
        for key, end in wanted.items():
            queue = queues.get_or_create(key)
            if isinstance(queue, ConsumeQueue) and queue.max_offset < end:
                queue.put(unit, np.array([end - 1], np.int64))
        queues.flush(0)
    finally:
        queues.close()


def drop_deleted_topics(view: OfflineStore, ops: FileOps, target: Path) -> list[str]:
    """Remove queues of topics that the source does not have any more; return those topics."""
    held = {key.topic for key in view.queues}
    dropped = []
    for family in (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE):
        for topic in ops.entries(target / family):
            if topic.is_dir and topic.name not in held:
                _remove(ops, topic.path)
                dropped.append(topic.name)
    return sorted(dropped)


def _remove(ops: FileOps, topic: Path) -> None:
    for queue in ops.entries(topic):
        for file in ops.entries(queue.path):
            ops.unlink(file.path)
        ops.rmdir(queue.path)
    ops.rmdir(topic)
    ops.sync_dir(topic.parent)
