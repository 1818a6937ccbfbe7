"""A FUSE file system with one file, whose writes and syncs are logged: the back of a loop device.

python logged_file.py BASE PLACE MOUNTPOINT

The file has the content of BASE, which stays as it is. It runs until it is unmounted.
"""

import ctypes
import errno
import mmap
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import mfusepy
from block_log import BlockLogWriter

NAME = "disk"
_PR_SET_PDEATHSIG = 1


class LoggedFile(mfusepy.Operations):  # type: ignore[misc]
    """One file. Every answer is given by one thread, so the log has the order of the answers."""

    use_ns = True

    def __init__(self, base: Path, log: BlockLogWriter) -> None:
        with base.open("rb") as file:
            self._size = base.stat().st_size
            self._content = mmap.mmap(  # noqa: TID251 - no store
                file.fileno(), self._size, access=mmap.ACCESS_COPY
            )
        self._log = log

    def getattr(self, path: str, _fh: int | None = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        if path != f"/{NAME}":
            raise mfusepy.FuseOSError(errno.ENOENT)
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": self._size}

    def readdir(self, _path: str, _fh: int) -> list[str]:
        return [".", "..", NAME]

    def open(self, _path: str, _flags: int) -> int:
        return 0

    def read(self, _path: str, size: int, offset: int, _fh: int) -> bytes:
        return self._content[offset : offset + size]

    def write(self, _path: str, data: bytes, offset: int, _fh: int) -> int:
        # Order: in the log before it is answered, so before anything can rest on it.
        self._log.write(offset, data)
        self._content[offset : offset + len(data)] = data
        return len(data)

    def fsync(self, _path: str, _datasync: int, _fh: int) -> int:
        self._log.flush()
        return 0

    def flush(self, _path: str, _fh: int) -> int:
        """A close, which makes nothing durable."""
        return 0


def main() -> None:
    base, place, mountpoint = map(Path, sys.argv[1:])
    # Why: the loop device needs an answer until it is detached, whatever is typed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    operations = LoggedFile(base, BlockLogWriter(place))
    mfusepy.FUSE(operations, str(mountpoint), foreground=True, nothreads=True)


if __name__ == "__main__":
    main()
