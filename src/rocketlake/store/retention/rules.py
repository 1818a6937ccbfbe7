"""Decisions: how full is too full, when to delete, which file is next. Pure functions.

Compat: CleanCommitLogService of DefaultMessageStore 5.3.3. The rules for free bytes, and the two
switches that turn the others off, are ours.
"""

from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, Self

from msgspec import Struct

from rocketlake.files.ops import DiskUsage
from rocketlake.store.options import StoreOptions

HOUR_MS: Final = 3_600_000
NEVER: Final = -1
"""No time at which something is planned."""

_HOURS_AHEAD: Final = 49  # a day and a day, and one for a clock that is set


class DiskLevel(IntEnum):
    """What the space on a disk means for files."""

    OK = 0
    """Expired files are deleted, at the hours set for it."""
    CROWDED = 1
    """Expired files are deleted at any hour."""
    CLEANING = 2
    """Unexpired files are deleted too, where options allow it."""


class Limits(Struct, frozen=True, kw_only=True):
    """What the options say."""

    reserved_ms: int
    hours: frozenset[int]
    max_used: float = 0.75
    clean_used: float = 0.85
    refuse_used: float = 0.90
    clean_free: int = 0
    refuse_free: int = 0
    uses_ratio: bool = True
    is_automatic: bool = True
    cleans_forcibly: bool = True
    sharers: int = 1
    clean_share: float = 0.8

    @classmethod
    def of(cls, options: StoreOptions) -> Self:
        """Take them from the options of a store."""
        return cls(
            reserved_ms=options.file_reserved_time * HOUR_MS,
            hours=options.delete_hours,
            max_used=options.disk_max_used_space_ratio / 100,
            clean_used=options.disk_space_clean_forcibly_ratio / 100,
            refuse_used=options.disk_space_warning_level_ratio / 100,
            clean_free=_clean_free(options),
            refuse_free=options.disk_free_refuse_bytes,
            uses_ratio=options.disk_ratio_enable,
            is_automatic=options.auto_delete_enable,
            cleans_forcibly=options.clean_file_forcibly_enable,
            sharers=options.replicas_per_disk_partition,
            clean_share=options.logical_disk_space_clean_forcibly_threshold,
        )

    @property
    def resume_free(self) -> int:
        """How many bytes must be free before puts are taken again."""
        # Why: what cleaning stops at must be enough. Without it, a quarter more than where they are
        # refused, or they would come and go with each file.
        return self.clean_free or self.refuse_free + self.refuse_free // 4


def _clean_free(options: StoreOptions) -> int:
    """Return where cleaning begins: not below where puts are refused, which it would not end."""
    clean_free = options.disk_free_clean_bytes
    return max(clean_free, options.disk_free_refuse_bytes) if clean_free else 0


class Decision(Struct, frozen=True):
    """Whether files are deleted now, whether also unexpired ones, and why."""

    deletes: bool
    is_forced: bool = False
    why: str = ""


# --- how full ------------------------------------------------------------------------------------


def judge(usage: DiskUsage | None, limits: Limits) -> DiskLevel:
    """Tell what the space on a disk means for files; None: its usage is not known."""
    if usage is None:
        # Compat: a ratio below 0, which stands for an error, lets expired files go.
        return DiskLevel.CROWDED if limits.uses_ratio else DiskLevel.OK
    return max(_judge_ratio(usage.ratio, limits), _judge_free(usage.free, limits))


def _judge_ratio(ratio: float, limits: Limits) -> DiskLevel:
    if not limits.uses_ratio:
        return DiskLevel.OK
    if ratio > min(limits.clean_used, limits.refuse_used):
        return DiskLevel.CLEANING
    # Compat: a store that shares a disk is judged by its share instead (`judge_share`).
    is_crowded = ratio > limits.max_used and limits.sharers <= 1
    return DiskLevel.CROWDED if is_crowded else DiskLevel.OK


def _judge_free(free: int, limits: Limits) -> DiskLevel:
    if free < limits.clean_free:
        return DiskLevel.CLEANING
    # Why: refusing is not deleting. Without a limit for cleaning only expired files are deleted.
    return DiskLevel.CROWDED if free < limits.refuse_free else DiskLevel.OK


def judge_share(own_bytes: int, total: int, limits: Limits) -> DiskLevel:
    """Tell how much a store has of its share of a disk [replicasPerDiskPartition]."""
    if limits.sharers <= 1 or not limits.uses_ratio or total <= 0:
        return DiskLevel.OK
    part = own_bytes * limits.sharers / total
    if part > limits.clean_share:
        return DiskLevel.CLEANING
    return DiskLevel.CROWDED if part > limits.max_used else DiskLevel.OK


def bytes_to_free(usage: DiskUsage | None, limits: Limits) -> int:
    """Return how many bytes to free before deletion of unexpired files ends; 0 if none."""
    if usage is None:
        return 0
    over = limits.clean_free - usage.free
    if limits.uses_ratio:
        percent = round(min(limits.clean_used, limits.refuse_used) * 100)
        over = max(over, usage.used - (usage.used + usage.free) * percent // 100)
    return max(over, 0)


def is_critical(usage: DiskUsage | None, limits: Limits) -> bool:
    """Tell whether a disk is so full that puts are refused."""
    if usage is None:
        return False
    is_too_full = limits.uses_ratio and usage.ratio > limits.refuse_used
    return is_too_full or usage.free < limits.refuse_free


def is_refusing(usage: DiskUsage | None, limits: Limits, *, before: bool) -> bool:
    """Tell whether puts are refused; a refusal lasts until there is clearly more space."""
    if usage is None:
        return before  # not known: keep the state
    is_still_full = limits.uses_ratio and usage.ratio > limits.clean_used
    is_still_full |= usage.free < limits.resume_free
    return is_critical(usage, limits) or (before and is_still_full)


# --- when ----------------------------------------------------------------------------------------


def decide(now_ms: int, level: DiskLevel, limits: Limits, *, is_asked: bool = False) -> Decision:
    """Decide what a round deletes."""
    is_automatic = limits.is_automatic
    is_forced = is_automatic and limits.cleans_forcibly and level >= DiskLevel.CLEANING
    if is_automatic and level >= DiskLevel.CROWDED:
        return Decision(deletes=True, is_forced=is_forced, why="the disk is full")
    if is_automatic and local_hour(now_ms) in limits.hours:
        return Decision(deletes=True, why="it is the hour")
    return Decision(deletes=is_asked, why="on request" if is_asked else "")


def local_hour(now_ms: int) -> int:
    """Return the hour of the day in local time."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).astimezone().hour


def next_deletion(now_ms: int, changed_ms: int, level: DiskLevel, limits: Limits) -> int:
    """Return when a file that was changed at a time is deleted; NEVER if that is not automatic.

    The next look is at most an interval later.
    """
    if not limits.is_automatic:
        return NEVER
    if level >= DiskLevel.CLEANING and limits.cleans_forcibly:
        return now_ms
    expires = max(now_ms, changed_ms + limits.reserved_ms)
    return expires if level >= DiskLevel.CROWDED else _next_hour(expires, limits.hours)


def _next_hour(at_ms: int, hours: frozenset[int]) -> int:
    """Return the first time from then on that is in one of some hours of the day."""
    if local_hour(at_ms) in hours:
        return at_ms
    # Time zones begin at quarters of an hour, so that an hour here need not begin with one of UTC.
    quarter_ms = HOUR_MS // 4
    begin = at_ms - at_ms % quarter_ms
    for step in range(1, 4 * _HOURS_AHEAD):
        if local_hour(begin + step * quarter_ms) in hours:
            return begin + step * quarter_ms
    return NEVER
