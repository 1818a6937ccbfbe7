"""The read-only view of a store directory, live or not; all that tools and Spark read through.

Spark imports nothing else for reading (`spark-facade` in pyproject.toml).
"""

from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.deleted_topics import load as load_deleted_topics
from rocketlake.store.disk.damage import Damage, Finding, Loss
from rocketlake.store.disk.file_shape import find_shape
from rocketlake.store.disk.index import IndexView, KeyQuery
from rocketlake.store.disk.log import (
    MISSING,
    Chunk,
    LogView,
    Readers,
    Stop,
    is_record_at,
    store_timestamp,
)
from rocketlake.store.disk.log_dirs import named_paths, readable_dirs
from rocketlake.store.disk.owed_units import PLACE_DTYPE, Places
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.disk.rocksdb_queues import RocksDbQueue
from rocketlake.store.disk.traits import refuse_rocksdb, refuse_rocksdb_queues
from rocketlake.store.offline.gaps import Gap, walk_past
from rocketlake.store.offline.log_sync import LogSync
from rocketlake.store.offline.past_damage import PastDamageStore
from rocketlake.store.offline.times import Boundary, time_lookup
from rocketlake.store.offline.view import Batch, OfflineStore
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN, UnitKind, Units

__all__ = [
    "BATCHED",
    "MISSING",
    "NO_TOPICS",
    "PLACE_DTYPE",
    "PLAIN",
    "Batch",
    "Boundary",
    "Chunk",
    "Damage",
    "DeletedTopics",
    "Finding",
    "Gap",
    "IndexView",
    "KeyQuery",
    "LogSync",
    "LogView",
    "Loss",
    "OfflineStore",
    "PastDamageStore",
    "Places",
    "QueueView",
    "Readers",
    "RocksDbQueue",
    "Stop",
    "UnitKind",
    "Units",
    "find_shape",
    "is_record_at",
    "load_deleted_topics",
    "named_paths",
    "readable_dirs",
    "refuse_rocksdb",
    "refuse_rocksdb_queues",
    "store_timestamp",
    "time_lookup",
    "walk_past",
]
