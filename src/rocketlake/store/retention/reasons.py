"""The text of a refusal: which disk, how full it is, and what will free space."""

from pathlib import Path

from msgspec import Struct

from rocketlake.files.ops import DiskUsage
from rocketlake.model.size_text import size_text
from rocketlake.model.time_text import time_text
from rocketlake.store.retention.rules import NEVER, Limits


class Outlook(Struct, frozen=True, kw_only=True):
    """What the store itself could free, and when."""

    deletable: int
    """How many files may be deleted once they are old enough."""
    file_size: int
    next_ms: int
    """When the first of them goes; NEVER: not by itself."""
    now_ms: int
    look_s: float
    """The interval between two looks at the disks."""
    kept_from: int | None = None
    """Holders keep files from this offset of the log on; None: they keep none."""


def refusal(path: Path, usage: DiskUsage, limits: Limits, outlook: Outlook) -> str:
    """Say why puts are refused, and what ends it."""
    return (
        f"the disk of {path} is {round(usage.ratio * 100)} % full: {size_text(usage.used)} used, "
        f"{size_text(usage.free)} free; {_limit(usage, limits)}. {_way_out(limits, outlook)}"
    )


def _limit(usage: DiskUsage, limits: Limits) -> str:
    parts = []
    if limits.uses_ratio and usage.ratio > limits.clean_used:
        parts.append(
            f"puts are refused above {round(limits.refuse_used * 100)} %"
            f" until it is {round(limits.clean_used * 100)} %"
        )
    if usage.free < limits.resume_free:
        parts.append(
            f"puts are refused with less than {size_text(limits.refuse_free)} free"
            f" until {size_text(limits.resume_free)} are"
        )
    return ", and ".join(parts)


def _way_out(limits: Limits, outlook: Outlook) -> str:
    count, size = outlook.deletable, size_text(outlook.deletable * outlook.file_size)
    if not count and outlook.kept_from is not None:
        return (
            f"Every log file is held back from offset {outlook.kept_from} on: free space elsewhere"
            " on this disk, or release them (retention.release)"
        )
    if not count:
        return "No log file can be deleted: the last one stays; free space elsewhere on this disk"
    if outlook.next_ms == NEVER:
        return (
            f"This store deletes nothing by itself (autoDeleteEnable): delete_expired(hours=0)"
            f" removes up to {count} log files, {size}, and the messages in them, consumed or not;"
            f" or free space elsewhere on this disk"
        )
    if outlook.next_ms <= outlook.now_ms:
        return (
            f"Log files are being deleted, up to {count}, {size}; the next look is within"
            f" {outlook.look_s:g} s"
        )
    way = "" if limits.cleans_forcibly else "; cleanFileForciblyEnable would let it go now"
    return (
        f"The oldest of {count} log files, {size_text(outlook.file_size)}, goes at"
        f" {time_text(outlook.next_ms, 60_000)}{way}"
    )
