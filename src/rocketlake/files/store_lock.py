"""Who has a store open: the lock that excludes others, and the mark of a running store.

1. The lock is Java's: byte 0 of `lock`, so that RocketMQ and RocketLake exclude each other.
2. The system grants it to one process as often as it asks, and takes it away when any descriptor of
   the file is closed. So a registry says no first, and nobody else opens `lock`. It knows the file
   and its directory: a `lock` that somebody has removed, or replaced, opens no second door.
3. A fork inherits objects and descriptors, but no lock: it is nobody's owner here.
"""

import os
import threading
from collections.abc import Collection, Hashable
from pathlib import Path
from typing import Final, TypeAlias

from rocketlake import failpoint
from rocketlake.errors import StoreLockedError
from rocketlake.files.json_file import backup_path
from rocketlake.files.ops import FileLock, FileOps
from rocketlake.files.whole_file import write_whole
from rocketlake.format import names

FileIdentity: TypeAlias = Hashable

_CONTENT: Final = b"lock"


class _Registry:
    """Lock files, their directories, and the processes that hold them; a fork inherits a copy."""

    def __init__(self) -> None:
        self.owners: dict[FileIdentity, int] = {}
        self.guard = threading.Lock()

    def is_held(self, identities: Collection[FileIdentity], pid: int) -> bool:
        """Tell whether a process holds one of these."""
        return any(self.owners.get(identity) == pid for identity in identities)

    def forget(self, identities: Collection[FileIdentity], pid: int) -> None:
        """A process holds these no more."""
        for identity in identities:
            if self.owners.get(identity) == pid:
                del self.owners[identity]

    def renew_guard(self) -> None:
        """Forget a thread that was inside when the process forked: it is not in the fork."""
        self.guard = threading.Lock()


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.renew_guard)


class StoreLock:
    """The lock of one store directory.

    Thread-safety: the registry has a lock; one object is used by one thread at a time.
    """

    def __init__(self, ops: FileOps, root: Path) -> None:
        self._ops = ops
        self._path = root / names.LOCK
        self._lock: FileLock | None = None
        self._identities: set[FileIdentity] = set()
        self._pid = 0

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock through this object; never in a fork of it."""
        return self._lock is not None and self._pid == os.getpid()

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another process, or this one, has the store open.
        """
        pid = os.getpid()
        with _registry.guard:
            if _registry.is_held(self._find_identities(), pid):
                raise StoreLockedError(str(self._path), pid, is_own=True)
            lock = self._ops.lock(self._path, _CONTENT)
            if lock is None:
                raise StoreLockedError(str(self._path), self._find_holder())
            self._lock, self._pid = lock, pid
            self._identities = self._find_identities()
            _registry.owners |= dict.fromkeys(self._identities, pid)

    def release(self) -> None:
        """Give the lock back; nothing if it is not held."""
        with _registry.guard:
            lock, self._lock = self._lock, None
            if lock is None:
                return
            if self._pid == os.getpid():
                _registry.forget(self._identities, self._pid)
            lock.close()

    def _find_identities(self) -> set[FileIdentity]:
        """Return what is the same for all names of the lock and of its directory."""
        found = (self._ops.identity(path) for path in (self._path, self._path.parent))
        return {identity for identity in found if identity is not None}

    def _find_holder(self) -> int | None:
        """Return the other process; None where the system does not tell, as across containers."""
        holder = self._ops.lock_holder(self._path)
        return holder if holder is not None and holder > 0 else None


class AbortMark:
    """The file `abort`: it is there while a store is open, and after a crash.

    Durability: both `set` and `remove` are on the disk when they return.
    """

    def __init__(self, ops: FileOps, root: Path, *, names_process: bool = True) -> None:
        """With `names_process` it is as 5.x writes it, else empty as 4.x does."""
        self._ops = ops
        self._path = root / names.ABORT
        self._names_process = names_process

    @property
    def is_set(self) -> bool:
        """Whether the mark is there: the store is open, or was not closed."""
        return self._ops.stat(self._path) is not None

    def set(self) -> None:
        """Leave the mark; one that is there is never missing meanwhile."""
        failpoint.hit("abort.before")
        entry = self._ops.stat(self._path)
        exists = entry is not None
        writer = self._ops.open_writer(self._path) if exists else self._ops.create(self._path, 0)
        try:
            if self._names_process:
                # Compat: MixAll string2File keeps the content it finds, mostly nothing, in a copy.
                write_whole(
                    self._ops, backup_path(self._path), writer.read(0, entry.size if entry else 0)
                )
                content = str(os.getpid()).encode()
                writer.write(0, content)
                writer.truncate(len(content))
            writer.sync()
        finally:
            writer.close()
        self._ops.sync_dir(self._path.parent)
        failpoint.hit("abort.after")

    def remove(self) -> None:
        """Take the mark away: the store was closed in good order."""
        failpoint.hit("unabort.before")
        self._ops.unlink(self._path)
        self._ops.sync_dir(self._path.parent)
        failpoint.hit("unabort.after")
