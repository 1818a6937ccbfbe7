"""The lock that keeps other writers out of a store, and the mark of a running store.

1. The lock file is Java's: byte 0 of `lock`, so that RocketMQ and RocketLake exclude each other.
2. The store's directory and the directories of its log are locked too. These locks hold when
   `lock` is removed or replaced, and when the same log is reached by another root or by a symbolic
   link. A directory that is only read may be locked by several stores.
3. A registry by device and inode refuses a second lock of this process first. It names this
   process in the error, and it is what is left where a file system cannot lock directories.
4. A fork inherits descriptors, and with them the locks, until it closes them. It does so before
   anything else runs in it; the parent's locks are not touched by that.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake import failpoint
from rocketlake.errors import StoreLockedError
from rocketlake.files.json_file import backup_path
from rocketlake.files.ops import FileLock, FileOps
from rocketlake.files.whole_file import write_whole
from rocketlake.format import names

_CONTENT: Final = b"lock"
_ABORT_SIZE_MAX: Final = 4096  # it holds the number of a process


class _Claim(Struct, frozen=True):
    """A file or directory that a lock covers."""

    path: Path
    identity: object
    is_shared: bool = False


class _Registry:
    """The locks that this process holds.

    Invariant: a fork happens with `guard` held, so that no descriptor of a lock is unknown in it.
    Why reentrant: a signal handler may fork while its thread is inside.
    """

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.locks: set[StoreLock] = set()

    def find_conflict(self, claims: Iterable[_Claim]) -> Path | None:
        """Return the first of these places that a lock of this process covers."""
        held = [other for lock in self.locks for other in lock.claims]
        for claim in claims:
            for other in held:
                if claim.identity == other.identity and not (claim.is_shared and other.is_shared):
                    return claim.path
        return None

    def before_fork(self) -> None:
        self.guard.acquire()

    def after_fork_in_parent(self) -> None:
        self.guard.release()

    def after_fork_in_child(self) -> None:
        self.guard = threading.RLock()
        for lock in self.locks:
            lock.drop()
        self.locks.clear()


_registry = _Registry()
os.register_at_fork(
    before=_registry.before_fork,
    after_in_parent=_registry.after_fork_in_parent,
    after_in_child=_registry.after_fork_in_child,
)


class StoreLock:
    """The lock of one store directory, and of the directories of its log.

    Thread-safety: the registry has a lock; one object is used by one thread at a time.
    """

    def __init__(
        self,
        ops: FileOps,
        root: Path,
        log_dirs: Sequence[Path] = (),
        read_only_dirs: Sequence[Path] = (),
    ) -> None:
        """`log_dirs` exist when the lock is taken; of `read_only_dirs` those that exist count."""
        self._ops = ops
        self._root = root
        self._path = root / names.LOCK
        self._log_dirs = log_dirs
        self._read_only_dirs = read_only_dirs
        self._held: list[FileLock] = []
        self._pid = 0
        self.claims: list[_Claim] = []

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock through this object; never in a fork of it."""
        return bool(self._held) and self._pid == os.getpid()

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another process, or this one, has the store or its log open.
        """
        pid = os.getpid()
        with _registry.guard:
            directories = self._find_directories()
            taken = _registry.find_conflict([*directories, *self._find_claims(self._path)])
            if taken is not None:
                raise StoreLockedError(str(self._shown(taken)), pid, is_own=True)
            try:
                for place in directories:
                    self._hold(
                        place.path,
                        self._ops.lock_directory(place.path, is_shared=place.is_shared),
                    )
                self._hold(self._path, self._ops.lock(self._path, _CONTENT))
                self.claims = [*directories, *self._find_claims(self._path)]
                self._pid = pid
                _registry.locks.add(self)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Give the lock back; nothing if it is not held. Can be repeated after an interrupt."""
        with _registry.guard:
            # Order: `lock` first and the root last, so that a process that gets the root gets all;
            # the registry after them, for it must not know less than the system.
            self.drop()
            _registry.locks.discard(self)

    def drop(self) -> None:
        """Close the descriptors; in a fork this leaves the parent's lock alone."""
        while self._held:
            self._held[-1].close()
            self._held.pop()

    def _hold(self, path: Path, lock: FileLock | None) -> None:
        if lock is None:
            raise StoreLockedError(str(self._shown(path)), self._find_holder(path))
        self._held.append(lock)

    def _find_directories(self) -> list[_Claim]:
        """Return each directory once, whatever its names, the root first."""
        found: dict[object, _Claim] = {}
        own = [claim for path in (self._root, *self._log_dirs) for claim in self._find_claims(path)]
        for path in self._read_only_dirs:
            own += self._find_claims(path, is_shared=True)
        for claim in own:
            found.setdefault(claim.identity, claim)
        return list(found.values())

    def _find_claims(self, path: Path, *, is_shared: bool = False) -> list[_Claim]:
        """Return a place by what is the same for all its names; nothing if it is not there."""
        identity = self._ops.identity(path)
        return [] if identity is None else [_Claim(path, identity, is_shared)]

    def _shown(self, path: Path) -> Path:
        """Return how an error names a place: the lock file stands for its directory."""
        return self._path if path == self._root else path

    def _find_holder(self, path: Path) -> int | None:
        """Return the other process; None where the system does not tell, as across containers."""
        holder = self._ops.lock_holder(path)
        # Why: where only `lock` is taken, its directory is locked by this very process.
        return None if holder is None or holder <= 0 or holder == os.getpid() else holder


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
                found = writer.read(0, min(entry.size, _ABORT_SIZE_MAX) if entry else 0)
                write_whole(self._ops, backup_path(self._path), found)
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
