"""Open files of the machine; their descriptors, and what an `OSError` becomes.

Only `files.ops` opens them, and they are reached through `ops.Reader` and `ops.Writer`.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from rocketlake.errors import DiskFullError, FileAccessError, FlushFailedError
from rocketlake.files.memory import PAGE_SIZE, PosixMap

Buffer: TypeAlias = bytes | bytearray | memoryview

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_CHUNK: Final = 1 << 20


class PosixReader:
    """A descriptor and `pread`."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes from a position on; fewer, or none, where the file ends."""
        try:
            data = os.pread(self._descriptor, size, position)
            while len(data) < size:
                # A signal or a limit of the kernel may cut a read short; only nothing is the end.
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise failed(f"cannot read at {position}", self._path, error) from error
        return data

    def written_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range that the file system does not know to be zeros.

        Ask for all before reading one: what is read comes into memory with what lies behind it, and
        the system takes pages of zeros in memory for written ones.
        """
        while start < end:
            try:
                first = os.lseek(self._descriptor, start, os.SEEK_DATA)
                last = os.lseek(self._descriptor, first, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                first, last = start, end
            if first < end:
                yield first, min(last, end)
            start = last

    def close(self) -> None:
        """Close the descriptor; a second call, in any thread, does nothing."""
        # Order: forgotten before it is closed. While it is being closed another thread may open a
        # file and get the same number, which must not be closed in its place.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class PosixWriter(PosixReader):
    """A descriptor, `pwrite` and `fdatasync`.

    A `sync` that failed fails from then on. Why: the system reports a failed write once. If an
    exception of a signal handler takes the place of that error, the next `sync` must not succeed.
    """

    __slots__ = ("_sync_error",)

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._sync_error: OSError | None = None

    def write(self, position: int, data: Buffer) -> None:
        """Write all of the data at a position.

        Raises:
            DiskFullError: there is no space; a part may have been written.
        """
        with memoryview(data) as rest:
            done = 0
            try:
                while done < len(rest):
                    done += os.pwrite(self._descriptor, rest[done:], position + done)
            except OSError as error:
                what = f"cannot write at {position + done}"
                raise failed(what, self._path, error, len(rest) - done) from error

    def allocate(self, position: int, size: int) -> None:
        """Have space on the disk for a range, whose bytes stay as they are.

        Raises:
            DiskFullError: there is no space.
        """
        if sys.platform != "darwin":
            try:
                os.posix_fallocate(self._descriptor, position, size)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise failed("cannot allocate", self._path, error, size) from error
            else:
                return
        # Why: some systems and file systems have no call for it. A byte written makes its block.
        for at in range(position, position + size, PAGE_SIZE):
            self.write(at, self.read(at, 1) or b"\0")

    def zero(self, position: int, size: int) -> bool:
        """Make a range read as zeros, its space kept; False if it did so before."""
        has_changed = False
        for start, end in list(self.written_ranges(position, position + size)):
            for at in range(start, end, _CHUNK):
                data = self.read(at, min(_CHUNK, end - at))
                zeros = bytes(len(data))
                if data != zeros:
                    self.write(at, zeros)
                    has_changed = True
        return has_changed

    def truncate(self, size: int) -> None:
        """Make the file this long."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise failed("cannot set its size", self._path, error, size) from error

    def sync(self) -> None:
        """Have everything written so far, also through a map, on the disk.

        Raises:
            FlushFailedError: it may not be there, and asking again would not tell.
        """
        if self._sync_error is not None:
            raise flush_failed(self._path, self._sync_error) from self._sync_error
        try:
            if sys.platform == "darwin":
                os.fsync(self._descriptor)
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            # Order: the first thing done, before any call that a signal may interrupt.
            self._sync_error = error
            raise flush_failed(self._path, error) from error

    def map(self, size: int) -> PosixMap:
        """Map the file from its begin; the map stays when the file is closed."""
        try:
            return PosixMap(self._descriptor, size)
        except OSError as error:
            raise failed("cannot map", self._path, error) from error


def open_regular(path: Path, flags: int, mode: int = 0) -> int:
    """Open a regular file, by its name or a symbolic link; return its descriptor.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    # Why O_NONBLOCK: opening a FIFO would wait for its other end. Reads and writes of regular
    # files do not look at it.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    try:
        _require_regular(os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {_kind_name(mode)}, not a regular file")


def _kind_name(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def failed(what: str, path: Path, error: OSError, wanted: int = 0) -> FileAccessError:
    """Translate an OSError into one of our errors; a full disk has its own."""
    if error.errno in _NO_SPACE:
        return DiskFullError(str(path), wanted, _free_bytes(path))
    return FileAccessError(str(path), f"{what}: {error.strerror or error}")


def flush_failed(path: Path, error: OSError) -> FlushFailedError:
    """Turn an error of a flush into one of ours: always final, also for want of space."""
    return FlushFailedError(str(path), f"flush failed: {error.strerror or error}")


def _free_bytes(path: Path) -> int | None:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
