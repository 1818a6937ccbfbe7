"""Read-only view of a store directory, live or not; the one door for tools and Spark."""

from rocketlake.store.disk.damage import Damage, Finding
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.disk.log import Chunk, Stop
from rocketlake.store.offline.times import Boundary
from rocketlake.store.offline.view import Batch, OfflineStore

__all__ = ["Batch", "Boundary", "Chunk", "Damage", "Finding", "KeyQuery", "OfflineStore", "Stop"]
