"""Disks: looks at how full the directories of a store are."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from rocketlake.errors import RocketLakeError
from rocketlake.files.ops import DiskUsage, FileOps
from rocketlake.store.retention.rules import DiskLevel, Limits, is_critical, judge, judge_share


class Place(Struct, frozen=True):
    """A directory, and its disk; None: it could not be looked at."""

    path: Path
    usage: DiskUsage | None
    level: DiskLevel
    is_critical: bool = False

    @property
    def fullness(self) -> tuple[bool, DiskLevel, float]:
        """What to compare disks by."""
        return self.is_critical, self.level, -1.0 if self.usage is None else self.usage.ratio


class DiskLook(Struct, frozen=True):
    """How full the disks of a store were at one moment."""

    log: tuple[Place, ...]
    queues: Place
    share: DiskLevel
    """How much the store has of its share, where several share a disk."""

    @property
    def best(self) -> Place:
        """The directory of the log with the most space: it decides what happens to puts."""
        return min(self.log, key=lambda place: place.fullness)

    @property
    def level(self) -> DiskLevel:
        """How full the store's disks are."""
        return max(self.best.level, self.queues.level, self.share)

    @property
    def is_one_disk(self) -> bool:
        """Whether log and queues seem to be on the same disk."""
        return self.best.usage == self.queues.usage

    @property
    def full_paths(self) -> frozenset[Path]:
        """Directories of the log that get no new files while others can have them."""
        return frozenset(
            place.path
            for place in self.log
            if place.is_critical or place.level >= DiskLevel.CLEANING
        )


class Disks:
    """The disks of one store."""

    def __init__(
        self, ops: FileOps, log_paths: Sequence[Path], queue_path: Path, limits: Limits
    ) -> None:
        self._ops = ops
        self._log_paths = tuple(log_paths)
        self._queue_path = queue_path
        self._limits = limits

    def look(self, own_bytes: int) -> DiskLook:
        """Ask the machine; `own_bytes` are those that the store's files have."""
        log = tuple(self._look_at(path) for path in self._log_paths)
        queues = self._look_at(self._queue_path)
        total = max((place.usage.total for place in log if place.usage is not None), default=0)
        return DiskLook(log, queues, judge_share(own_bytes, total, self._limits))

    def _look_at(self, path: Path) -> Place:
        try:
            usage = self._ops.disk_usage(path)
        except RocketLakeError:
            return Place(path, None, judge(None, self._limits))
        limits = self._limits
        return Place(path, usage, judge(usage, limits), is_critical(usage, limits))
