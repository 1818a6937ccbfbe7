"""FileOps and PosixFileOps; with `descriptor`, `memory` and `posix_locks`, alone in touching os.

1. Readers use `pread`, never a map: a file that another process cuts short then gives a short read,
   where a map would end the process with SIGBUS. Only the holder of the store's lock maps files.
2. An `OSError` ends here and becomes an exception of `rocketlake.errors`.
3. `sync` writes mapped pages too. A new, renamed or removed name is safe after `sync_dir`.
"""

import errno
import os
from collections.abc import Hashable
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final, Protocol

from msgspec import Struct

from rocketlake.errors import StoreNotFoundError
from rocketlake.files import posix_locks
from rocketlake.files.descriptor import (
    Buffer,
    PosixReader,
    PosixWriter,
    failed,
    flush_failed,
    open_regular,
)
from rocketlake.files.memory import PAGE_SIZE, Advice, PosixMap

__all__ = [
    "PAGE_SIZE",
    "Advice",
    "Buffer",
    "DiskUsage",
    "Entry",
    "FileLock",
    "FileOps",
    "MemoryMap",
    "PosixFileOps",
    "Reader",
    "Writer",
]

_NAME_OF: Final = attrgetter("name")
_NAMELESS: Final = getattr(os, "O_TMPFILE", os.O_CREAT | os.O_EXCL)  # the latter is refused
_MODE: Final = 0o666  # what the user's mask leaves of it, as for Java


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


class DiskUsage(Struct, frozen=True):
    """Bytes of a file system: all, taken, and left for users other than root."""

    total: int
    used: int
    free: int

    @property
    def ratio(self) -> float:
        """The taken part of what users can have, in full per cents, rounded up."""
        # Compat: as getDiskPartitionSpaceUsedPercent of UtilAll counts it.
        reachable = self.used + self.free
        return -(-self.used * 100 // reachable) / 100 if reachable else 1.0


class Reader(Protocol):
    """An open file that is only read."""

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes from a position on; fewer, or none, where the file ends."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class MemoryMap(Protocol):
    """Memory of a file, or plain memory; valid as long as anybody has a view of it."""

    buffer: memoryview

    def populate(self, position: int, size: int, *, may_touch: bool = True) -> bool:
        """Bring pages into memory, ready to be written; their bytes stay as they are.

        False where that is only possible by touching them, and they may not be touched.
        """
        ...

    def lock(self, position: int, size: int) -> bool:
        """Keep pages in memory; False where the system refuses."""
        ...

    def unlock(self) -> bool:
        """Let all pages go to disk again when memory is short."""
        ...

    def advise(self, advice: Advice) -> bool:
        """Tell the system how the memory will be used; False where it does not listen."""
        ...

    def close(self) -> None:
        """Give up this object's view of the memory."""
        ...


class Writer(Reader, Protocol):
    """An open file that is read and written."""

    def write(self, position: int, data: Buffer) -> None:
        """Write all of the data at a position."""
        ...

    def allocate(self, position: int, size: int) -> None:
        """Have space on the disk for a range, whose bytes stay as they are."""
        ...

    def zero(self, position: int, size: int) -> bool:
        """Make a range read as zeros, its space kept; False if it did so before."""
        ...

    def truncate(self, size: int) -> None:
        """Make the file this long."""
        ...

    def sync(self) -> None:
        """Have everything written so far, also through a map, on the disk."""
        ...

    def map(self, size: int) -> MemoryMap:
        """Map the file from its begin; the map stays when the file is closed."""
        ...


class FileLock(Protocol):
    """A lock that was taken; closing gives it back."""

    def close(self) -> None:
        """Let another process have it."""
        ...


class FileOps(Protocol):
    """How the store reaches files; tests pass one that fails, or a simulated disk."""

    def entries(self, path: Path) -> list[Entry]:
        """List a directory by name; an absent one is empty."""
        ...

    def stat(self, path: Path) -> Entry | None:
        """Look at one path; None if nothing is there."""
        ...

    def identity(self, path: Path) -> Hashable | None:
        """Return what is the same for all names of one file; None if nothing is there."""
        ...

    def disk_usage(self, path: Path) -> DiskUsage:
        """Return how full the file system of a path is."""
        ...

    def open_reader(self, path: Path) -> Reader:
        """Open a file for reading."""
        ...

    def open_writer(self, path: Path) -> Writer:
        """Open a file that exists for reading and writing."""
        ...

    def create(self, path: Path, size: int, *, is_sparse: bool = False) -> Writer:
        """Make a new file of zeros, with space on the disk unless it is sparse."""
        ...

    def mkdirs(self, path: Path, *, is_durable: bool = True) -> None:
        """Make a directory and those above it, as far as they are missing."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, at once, in place of what had it."""
        ...

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name; False where that is not possible."""
        ...

    def unlink(self, path: Path) -> bool:
        """Remove a file; False if it was not there."""
        ...

    def rmdir(self, path: Path) -> bool:
        """Remove an empty directory; False if it is not empty or not there."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Have the names of a directory on the disk."""
        ...

    def lock(self, path: Path, content: bytes) -> FileLock | None:
        """Lock byte 0 of a file and write its content; None if the lock is taken."""
        ...

    def lock_directory(self, path: Path, *, is_shared: bool = False) -> FileLock | None:
        """Lock a directory; None if the lock is taken, by this process or another one."""
        ...

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds a lock on a directory, or on a file or its directory.

        Negative if there is such a process, but the system does not tell which.
        """
        ...

    def allocate_memory(self, size: int) -> MemoryMap:
        """Return memory of zeros that belongs to no file."""
        ...


class PosixFileOps:
    """The machine's files."""

    def entries(self, path: Path) -> list[Entry]:
        """List a directory by name; an absent one is empty.

        Raises:
            StoreNotFoundError: it may not be listed.
        """
        try:
            return _scan(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(path, error) from error

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

    def identity(self, path: Path) -> Hashable | None:
        """Return what is the same for all names of one file; None if nothing is there."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        return found.st_dev, found.st_ino

    def disk_usage(self, path: Path) -> DiskUsage:
        """Return how full the file system of a path is."""
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise failed("cannot tell how full its disk is", path, error) from error
        block = found.f_frsize
        used = (found.f_blocks - found.f_bfree) * block
        return DiskUsage(found.f_blocks * block, used, found.f_bavail * block)

    def open_reader(self, path: Path) -> Reader:
        """Open a file for reading.

        Raises:
            StoreNotFoundError: it is gone, may not be read, or is no regular file.
        """
        try:
            return PosixReader(path, open_regular(path, os.O_RDONLY))
        except OSError as error:
            raise _unreadable(path, error) from error

    def open_writer(self, path: Path) -> Writer:
        """Open a file that exists for reading and writing."""
        return _open_writer(path)

    def create(self, path: Path, size: int, *, is_sparse: bool = False) -> Writer:
        """Make a new file of zeros, with space on the disk unless it is sparse.

        Raises:
            DiskFullError: there is no space; nothing is left behind.
        """
        if size:
            writer = self._create_whole(path, size, is_sparse=is_sparse)
            if writer is not None:
                return writer
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            writer = PosixWriter(path, os.open(path, flags, _MODE))
        except OSError as error:
            raise failed("cannot create", path, error, size) from error
        try:
            _take_space(writer, size, is_sparse=is_sparse)
        except BaseException:
            writer.close()
            path.unlink(missing_ok=True)
            raise
        return writer

    def _create_whole(self, path: Path, size: int, *, is_sparse: bool) -> Writer | None:
        """Make a file that has no name before it has its length; None where that is not possible.

        Why: a process that is killed in between leaves no empty file, which RocketMQ refuses to
        load.
        """
        try:
            descriptor = os.open(path.parent, _NAMELESS | os.O_RDWR | os.O_CLOEXEC, _MODE)
        except OSError:  # not supported, or no directory: the caller reports it
            return None
        writer = PosixWriter(path, descriptor)
        try:
            _take_space(writer, size, is_sparse=is_sparse)
            # Why src_dir_fd: without one, links are not followed whatever is asked for.
            os.link(
                f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True
            )
        except FileExistsError as error:
            raise failed("cannot create", path, error, size) from error
        except OSError:  # no /proc
            return None
        finally:
            writer.close()
        # Why: through the first descriptor it is shown as deleted, in lsof and maps, for ever.
        return _open_writer(path)

    def mkdirs(self, path: Path, *, is_durable: bool = True) -> None:
        """Make a directory and those above it, as far as they are missing."""
        try:
            missing = list(takewhile(lambda place: not place.exists(), (path, *path.parents)))
            for place in reversed(missing):
                place.mkdir(exist_ok=True)
                if is_durable:
                    self.sync_dir(place.parent)
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        except OSError as error:
            raise failed("cannot make the directory", path, error) from error

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, at once, in place of what had it."""
        try:
            source.replace(target)
        except OSError as error:
            raise failed(f"cannot rename to {target.name}", source, error) from error

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name; False where that is not possible."""
        try:
            target.hardlink_to(source)
        except OSError:
            return False
        return True

    def unlink(self, path: Path) -> bool:
        """Remove a file; False if it was not there."""
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise failed("cannot remove", path, error) from error
        return True

    def rmdir(self, path: Path) -> bool:
        """Remove an empty directory; False if it is not empty or not there."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                return False
            raise failed("cannot remove", path, error) from error
        return True

    def sync_dir(self, path: Path) -> None:
        """Have the names of a directory on the disk.

        Raises:
            FlushFailedError: they may not be there.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system whose directories need none
                raise flush_failed(path, error) from error

    def lock(self, path: Path, content: bytes) -> FileLock | None:
        """Lock byte 0 of a file and write its content; None if the lock is taken."""
        return posix_locks.lock_file(path, content)

    def lock_directory(self, path: Path, *, is_shared: bool = False) -> FileLock | None:
        """Lock a directory; None if the lock is taken."""
        return posix_locks.lock_directory(path, is_shared=is_shared)

    def lock_holder(self, path: Path) -> int | None:
        """Return the process that holds a lock on a directory, or on a file or its directory."""
        return posix_locks.find_holder(path)

    def allocate_memory(self, size: int) -> MemoryMap:
        """Return memory of zeros that belongs to no file."""
        try:
            return PosixMap(None, size)
        except OSError as error:
            raise failed(f"cannot have {size} bytes", Path("memory"), error) from error


def _open_writer(path: Path) -> PosixWriter:
    try:
        return PosixWriter(path, open_regular(path, os.O_RDWR))
    except OSError as error:
        raise failed("cannot open for writing", path, error) from error


def _take_space(writer: PosixWriter, size: int, *, is_sparse: bool) -> None:
    # Order: first the length, in one step. A crash leaves a file of no length or of the full one,
    # never one that loading must refuse.
    writer.truncate(size)
    if size and not is_sparse:
        writer.allocate(0, size)


def physical_memory_size() -> int | None:
    """Return how many bytes of memory the machine has; None where it does not say."""
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
    return size if size > 0 else None


def _scan(path: Path) -> list[Entry]:
    # Why: there may be ten thousand directories, and a path costs more than to look at its file.
    with os.scandir(path) as items:
        named = sorted(items, key=_NAME_OF)
    found = []
    for item in named:
        try:
            status = item.stat()
        except FileNotFoundError:
            continue  # deleted between listing and looking
        found.append(_as_entry(path / item.name, status))
    return found


def _entry(path: Path) -> Entry:
    return _as_entry(path, path.stat())


def _as_entry(path: Path, found: os.stat_result) -> Entry:
    size = found.st_size if S_ISREG(found.st_mode) else 0
    return Entry(path, S_ISDIR(found.st_mode), size, found.st_mtime_ns // 1_000_000)


def _unreadable(path: Path, error: OSError) -> StoreNotFoundError:
    return StoreNotFoundError(f"cannot read {path}: {error.strerror or error}")
