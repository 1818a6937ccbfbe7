"""Locks of the machine: byte 0 of a file, and whole directories; and which process holds one.

1. Both kinds belong to an open file description, not to a process. Closing another descriptor of
   the same file, as `shutil.copytree` does, releases nothing, and a second request of the same
   process is refused.
2. A forked process shares the description: the lock is free only when every copy of the descriptor
   is closed. `files.store_lock` closes the copies in a fork.
"""

import errno
import fcntl
import logging
import os
import struct
import threading
from pathlib import Path
from typing import Final

from rocketlake.files.descriptor import PosixReader, PosixWriter, failed, open_regular

log = logging.getLogger(__name__)

UNKNOWN_PROCESS: Final = -1
"""The holder of a lock whose process the system does not tell, as across containers."""

_MODE: Final = 0o666  # what the user's mask leaves of it, as for Java
_SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_FIRST_BYTE: Final = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_REFUSED: Final = (BlockingIOError, PermissionError)
_CANNOT_LOCK: Final = frozenset(
    {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL}
)


class _WarnedDevices:
    """File systems whose missing directory locks were logged once."""

    def __init__(self) -> None:
        self._devices: set[int] = set()
        self._guard = threading.Lock()

    def add(self, device: int) -> bool:
        """Remember a file system; True if it was not known."""
        with self._guard:
            is_new = device not in self._devices
            self._devices.add(device)
            return is_new


_warned = _WarnedDevices()


def lock_file(path: Path, content: bytes) -> PosixWriter | None:
    """Lock byte 0 of a file and write its content; None if the lock is taken."""
    try:
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, _MODE)
    except OSError as error:
        raise failed("cannot open the lock", path, error) from error
    writer = PosixWriter(path, descriptor)
    try:
        _lock_first_byte(descriptor)
    except _REFUSED:
        writer.close()
        return None
    except OSError as error:
        writer.close()
        raise failed("cannot lock", path, error) from error
    try:
        writer.write(0, content)
        writer.sync()
    except BaseException:
        writer.close()
        raise
    return writer


def lock_directory(path: Path, *, is_shared: bool) -> PosixReader | None:
    """Lock a directory; None if the lock is taken.

    Where the file system has no such locks, the directory is only opened, and a warning is logged.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise failed("cannot open the directory to lock it", path, error) from error
    held = PosixReader(path, descriptor)
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except _REFUSED:
        held.close()
        return None
    except OSError as error:
        if error.errno not in _CANNOT_LOCK:
            held.close()
            raise failed("cannot lock the directory", path, error) from error
        if _warned.add(os.fstat(descriptor).st_dev):
            log.warning(
                "directory locks not supported, only the lock file keeps other writers out"
                " path=%s reason=%s",
                path,
                error.strerror,
            )
    return held


def find_holder(path: Path) -> int | None:
    """Return the process that holds a lock on a directory, or on a file or the file's directory.

    `UNKNOWN_PROCESS` if the system shows a lock without its process; None if there is no lock.
    """
    # Why: the kernel's table is read. Opening the file and closing it again would release a lock
    # that belongs to this process, which is the kind used where there is no better one.
    try:
        table = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return None
    lines = [fields for line in table.splitlines() if "->" not in (fields := line.split())]
    # A lock of a file counts if it is a writer's. A shared one of a directory keeps a writer out.
    kinds = {"READ", "WRITE"} if path.is_dir() else {"WRITE"}
    holders = _holders(lines, path, kinds)
    if not path.is_dir():
        holders += _holders(lines, path.parent, kinds)
    return next((pid for pid in holders if pid > 0), UNKNOWN_PROCESS if holders else None)


def _holders(lines: list[list[str]], path: Path, kinds: set[str]) -> list[int]:
    """Return the processes of a file's or a directory's locks, from lines of /proc/locks."""
    name = _name_in_table(path)
    # The fields: number, kind of lock, ADVISORY, READ or WRITE, process, device and inode, range.
    return [int(fields[4]) for fields in lines if name in fields and fields[3] in kinds]


def _name_in_table(path: Path) -> str | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _lock_first_byte(descriptor: int) -> None:
    # Compat: Java's FileChannel.tryLock on byte 0, length 1 is F_SETLK, with which this conflicts.
    if _SET_LOCK is not None:
        try:
            fcntl.fcntl(descriptor, _SET_LOCK, _FIRST_BYTE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        else:
            return
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
