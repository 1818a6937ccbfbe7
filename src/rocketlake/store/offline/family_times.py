"""FamilyTimes: whether queues of topics were made or deleted since their directories were read."""

from typing import Final

from msgspec import Struct

from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names

_TICK_MS: Final = 1000  # more than a file system's clock is coarse


class FamilyTimes(Struct, frozen=True):
    """When topics were last made or deleted, and when that was read."""

    changed_ms: tuple[int, ...]
    looked_ms: int

    @classmethod
    def look_at(cls, directory: StoreDir, now_ms: int) -> "FamilyTimes":
        """Return the times of the directories that hold those of the topics."""
        families = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE)
        found = (directory.ops.stat(directory.path(family)) for family in families)
        return cls(tuple(entry.mtime_ms for entry in found if entry is not None), now_ms)

    def is_surely(self, before: "FamilyTimes") -> bool:
        """Tell whether nothing changed since; what changed just before a look may change again."""
        newest = max(before.changed_ms, default=0)
        return self.changed_ms == before.changed_ms and newest + _TICK_MS < before.looked_ms
