"""FileOps and PosixFileOps; alone in touching os and mmap.

Readers use `pread`, never a map: a file that another process cuts short then gives a short read,
where a map would end the process with SIGBUS.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol

from msgspec import Struct

from rocketlake.errors import StoreNotFoundError


class Entry(Struct, frozen=True):
    """What a directory holds under one name."""

    path: Path
    is_dir: bool
    size: int
    mtime_ms: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name


class Reader(Protocol):
    """An open file that is only read."""

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes from a position on; fewer, or none, where the file ends."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class FileOps(Protocol):
    """How the store reaches files; tests pass one that fails."""

    def entries(self, path: Path) -> list[Entry]:
        """List a directory by name; an absent one is empty."""
        ...

    def stat(self, path: Path) -> Entry | None:
        """Look at one path; None if nothing is there."""
        ...

    def open_reader(self, path: Path) -> Reader:
        """Open a file for reading."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds a lock on the file, if one does."""
        ...


class PosixReader:
    """A descriptor and `pread`."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes from a position on; fewer, or none, where the file ends."""
        data = os.pread(self._descriptor, size, position)
        while len(data) < size:
            # A signal or a limit of the kernel may cut a read short; only nothing means the end.
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class PosixFileOps:
    """The machine's files."""

    def entries(self, path: Path) -> list[Entry]:
        """List a directory by name; an absent one is empty.

        Raises:
            StoreNotFoundError: it may not be listed.
        """
        try:
            found = list(_scan(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(path, error) from error
        return sorted(found, key=lambda entry: entry.name)

    def stat(self, path: Path) -> Entry | None:
        """Look at one path; None if nothing is there.

        Raises:
            StoreNotFoundError: it may not be looked at.
        """
        try:
            return _entry(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error

    def open_reader(self, path: Path) -> Reader:
        """Open a file for reading.

        Raises:
            StoreNotFoundError: it is gone or may not be read.
        """
        try:
            return PosixReader(path)
        except OSError as error:
            raise _unreadable(path, error) from error

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds a lock on the file, if one does.

        The kernel's table is asked: opening the file and closing it again would drop a lock that
        this very process holds on it.
        """
        try:
            found = path.stat()
            table = Path("/proc/locks").read_text(encoding="ascii")
        except OSError:
            return None
        name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for line in table.splitlines():
            fields = line.split()
            if name in fields and "WRITE" in fields and "->" not in fields:
                return int(fields[fields.index("WRITE") + 1])
        return None


def _scan(path: Path) -> Iterator[Entry]:
    with os.scandir(path) as found:
        for item in found:
            try:
                yield _entry(path / item.name)
            except FileNotFoundError:
                continue  # deleted between listing and looking


def _entry(path: Path) -> Entry:
    found = path.stat()
    size = found.st_size if S_ISREG(found.st_mode) else 0
    return Entry(path, S_ISDIR(found.st_mode), size, found.st_mtime_ns // 1_000_000)


def _unreadable(path: Path, error: OSError) -> StoreNotFoundError:
    return StoreNotFoundError(f"cannot read {path}: {error.strerror or error}")
