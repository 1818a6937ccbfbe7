"""Bytes of one file copied into another; what is zero stays a hole."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.files.ops import FileOps, Reader, Writer

_READ: Final = 4 << 20
_STEP: Final = 64 << 10  # zeros of this size are left out
_ZEROS: Final = bytes(_STEP)
PROBE: Final = 4096


class Copied(Struct, frozen=True):
    """Where a copy ends, the checksum of all bytes before, and how many were written."""

    end: int
    crc: int
    written: int


def copy_part(
    reader: Reader,
    writer: Writer,
    part: tuple[int, int],
    *,
    crc: int = 0,
    on_bytes: Callable[[int], None] | None = None,
) -> Copied:
    """Copy the bytes from one position to another; `crc` is that of the bytes before.

    They end early where the source does.
    """
    position, end = part
    written = 0
    while position < end:
        data = reader.read(position, min(_READ, end - position))
        if not data:
            break
        written += write_sparse(writer, position, data)
        crc = zlib.crc32(data, crc)
        position += len(data)
        if on_bytes is not None:
            on_bytes(len(data))
    return Copied(position, crc, written)


def write_sparse(writer: Writer, position: int, data: bytes) -> int:
    """Write bytes where they are not zero, in runs; return how many.

    The place must read as zeros before.
    """
    view = memoryview(data)
    begin = None
    written = 0
    for at in range(0, len(data), _STEP):
        piece = view[at : at + _STEP]
        is_zero = piece == _ZEROS[: len(piece)]
        if not is_zero and begin is None:
            begin = at
        elif is_zero and begin is not None:
            writer.write(position + begin, view[begin:at])
            written += at - begin
            begin = None
    if begin is not None:
        writer.write(position + begin, view[begin:])
        written += len(data) - begin
    return written


def checksum(ops: FileOps, path: Path, size: int) -> tuple[int, int]:
    """Return how many of a file's first bytes there are, and their checksum."""
    reader = ops.open_reader(path)
    try:
        position, crc = 0, 0
        while position < size and (data := reader.read(position, min(_READ, size - position))):
            crc = zlib.crc32(data, crc)
            position += len(data)
        return position, crc
    finally:
        reader.close()


def are_alike(one: Reader, other: Reader, covered: int, probe: int = PROBE) -> bool:
    """Tell by their first and last bytes whether two files are the same up to a position."""
    for begin in (0, max(covered - probe, 0)):
        size = min(probe, covered - begin)
        if one.read(begin, size) != other.read(begin, size):
            return False
    return True
