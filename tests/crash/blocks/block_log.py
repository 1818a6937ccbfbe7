"""The log of a block device: every write with its bytes, and every flush, in their order.

The process behind the device appends; the lab reads it when the device is gone. A counter in a file
beside it says how many entries there are, so that another process can stamp what it does.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from msgspec import Struct

SECTOR = 512
_HEAD = struct.Struct("<qI")
_FLUSH = -1


class Write(Struct, frozen=True):
    """Bytes that the file system wrote. They may be lost until the next flush."""

    offset: int
    data: bytes


class Flush(Struct, frozen=True):
    """All writes before it are durable when the next entry comes."""


Entry = Write | Flush


class BlockLogWriter:
    """Appends entries. An entry is counted when it is in the file."""

    def __init__(self, place: Path) -> None:
        self._file = (place / "blocks.log").open("wb", buffering=0)
        counter = place / "blocks.count"
        counter.write_bytes(bytes(mmap.PAGESIZE))
        with counter.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)  # noqa: TID251 - no store
        # Why a view: it stores all eight bytes at once; `pack_into` writes zeros first.
        self._counter = memoryview(mapped).cast("q")

    def write(self, offset: int, data: bytes) -> None:
        self._append(_HEAD.pack(offset, len(data)) + data)

    def flush(self) -> None:
        self._append(_HEAD.pack(_FLUSH, 0))

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._counter[0] += 1

    def close(self) -> None:
        self._file.close()


class BlockCounter:
    """How many entries a log has by now, for other processes."""

    def __init__(self, place: Path) -> None:
        with (place / "blocks.count").open("rb") as file:
            mapped = mmap.mmap(  # noqa: TID251 - no store
                file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ
            )
        self._counter = memoryview(mapped).cast("q")

    def now(self) -> int:
        """Return the number of entries that the device had been given when this was called."""
        return self._counter[0]


def read_block_log(place: Path) -> list[Entry]:
    """Read the entries of a log that is complete."""
    return [*_entries((place / "blocks.log").read_bytes())]


def _entries(data: bytes) -> Iterator[Entry]:
    at = 0
    while at < len(data):
        offset, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield Flush() if offset == _FLUSH else Write(offset, data[at : at + size])
        at += size


class Disk:
    """The content of a device, in pieces; what was never written is zero."""

    _PIECE = 1 << 16

    def __init__(self, shared: dict[int, bytearray] | None = None) -> None:
        self._shared = shared or {}
        """Pieces of the disk that this one is a fork of."""
        self._pieces: dict[int, bytearray] = {}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Take the content of an image file."""
        disk = cls()
        with path.open("rb") as file:
            at = 0
            while data := file.read(cls._PIECE):
                if data.strip(b"\0"):
                    disk.write(at, data)
                at += len(data)
        return disk

    def write(self, offset: int, data: bytes) -> None:
        done = 0
        while done < len(data):
            number, start = divmod(offset + done, self._PIECE)
            piece = self._own(number)
            part = data[done : done + self._PIECE - start]
            piece[start : start + len(part)] = part
            done += len(part)

    def fork(self) -> "Disk":
        """Return a disk with the same content, good until this one is written to."""
        return Disk({**self._shared, **self._pieces})

    def _own(self, number: int) -> bytearray:
        piece = self._pieces.get(number)
        if piece is None:
            piece = bytearray(self._shared.get(number, bytes(self._PIECE)))
            self._pieces[number] = piece
        return piece

    def save(self, path: Path, size: int) -> None:
        """Make an image file; pieces that were never written are holes."""
        with path.open("wb", buffering=0) as file:
            file.truncate(size)
            for number, piece in {**self._shared, **self._pieces}.items():
                file.seek(number * self._PIECE)
                file.write(piece)
