"""Where the log goes on behind a record that is bad."""

from collections.abc import Iterator
from typing import Final

from rocketlake.format import layout
from rocketlake.format.record import StopReason
from rocketlake.model import flags

BAD_REASONS: Final = (
    StopReason.TORN,
    StopReason.BAD_MAGIC,
    StopReason.BAD_SIZE,
    StopReason.BAD_CRC,
    StopReason.BAD_OFFSET,
)
HEAD_SIZE: Final = layout.RECORD_PHYSICAL_OFFSET_AT + 8


def claimed_size(data: bytes | bytearray | memoryview, position: int = 0) -> int:
    """Return what the size field of a record says."""
    return int.from_bytes(data[position : position + 4], "big", signed=True)


def size_to_pass(data: memoryview, place: int, reason: StopReason) -> int:
    """Return the size of the bad record at the beginning of data; 0 if it is unknown.

    Its size field, or else the sum of its lengths, is believed where it leads to a record that
    claims the place where it is, to the filler of the file, or to the end of the data. `place` is
    the offset of the first byte.
    """
    # Compat: as ReputMessageService#doReput, which reads on behind the lengths and counts by the
    # size field, wherever that leads, but only if nothing else is wrong.
    for size in sizes_told(data, reason):
        head = bytes(data[size : size + HEAD_SIZE])
        if is_begin(head, place + size) or (not head and reason is not StopReason.TORN):
            return size
    return 0


def sizes_told(data: bytes | bytearray | memoryview, reason: StopReason) -> Iterator[int]:
    """Yield the sizes that the readable fields of a bad record imply."""
    if reason not in BAD_REASONS:
        return
    for size in (claimed_size(data), _sum_of_lengths(data)):
        if layout.RECORD_MIN_SIZE <= size <= len(data):
            yield size


def _sum_of_lengths(data: bytes | bytearray | memoryview) -> int:
    """Return the size that the lengths inside a record add up to; 0 if one is beyond the data."""
    sys_flag = int.from_bytes(data[36:40], "big")
    hosts = sum(20 if sys_flag & bit else 8 for bit in (flags.BORN_HOST_V6, flags.STORE_HOST_V6))
    is_v2 = int.from_bytes(data[4:8], "big", signed=True) == layout.MAGIC_V2
    end = layout.RECORD_BORN_HOST_AT + hosts + 8 + 4 + 8
    for width in (4, 2 if is_v2 else 1, 2):
        length = int.from_bytes(data[end : end + width], "big")
        end += width + length
        if end > len(data):
            return 0
    return end


def is_begin(head: bytes, place: int) -> bool:
    """Tell whether bytes begin like the record of a place, or like the filler of a file."""
    magic = int.from_bytes(head[4:8], "big", signed=True)
    if magic == layout.MAGIC_BLANK:
        return True
    at = layout.RECORD_PHYSICAL_OFFSET_AT
    in_place = int.from_bytes(head[at : at + 8], "big", signed=True) == place
    return len(head) >= HEAD_SIZE and in_place and magic in (layout.MAGIC_V1, layout.MAGIC_V2)
