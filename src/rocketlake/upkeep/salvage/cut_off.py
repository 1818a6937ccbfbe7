"""Good records behind the end of a log: what the next start would cut off.

A start ends the log at the first bad record. RocketLake saves what it cuts under `salvage/` first,
RocketMQ does not.
"""

from msgspec import Struct

from rocketlake.store.disk.damage import reason_text
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.salvage.raw_records import RawFile


class CutOff(Struct, frozen=True, kw_only=True):
    """Where a start would cut the log, and the good records that it would cut off."""

    path: str
    position: int
    """The bad record: a file, and a byte of it."""
    reason: str
    records: int
    bytes: int

    def __str__(self) -> str:
        plural = "" if self.records == 1 else "s"
        return (
            f"{self.path} at {self.position}: {self.reason}; {self.records} good record{plural}"
            f" ({self.bytes} bytes) behind it"
        )


def find_refused(view: OfflineStore) -> str | None:
    """Return which file of the log keeps a start from opening the store, by its size."""
    expected = view.log.file_size
    for file in view.log.files:
        if file.size != expected:
            return f"{file.path} has {file.size} bytes instead of {expected}"
    return None


def find_cut_off(view: OfflineStore) -> CutOff | None:
    """Return what the next start would cut off a log; None if that is no good record.

    Every byte behind the end is looked at.
    """
    tail = view.tail
    if tail.stop is None or not view.cuts_records:
        return None
    records = size = 0
    for file in view.log.files:
        end = file.base_offset + file.size
        if end <= tail.end_offset:
            continue
        for columns in RawFile(view.directory.ops, file.path, file.base_offset).records():
            places = columns["physical_offset"]
            is_behind = (places >= max(tail.end_offset, file.base_offset)) & (places < end)
            records += int(is_behind.sum())
            size += int(columns["size"][is_behind].sum())
    path, position = view.log.describe(tail.end_offset)
    return CutOff(
        path=str(path),
        position=position,
        reason=reason_text(tail.stop.reason),
        records=records,
        bytes=size,
    )
