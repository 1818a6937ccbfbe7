"""The files shared by a store with external dispatch and the job that dispatches.

See docs/spark/jobs.md.

Below `<store>/dispatch`:

    lock             the right to write queues and index; held by a store that dispatches by itself,
                     by a job while it dispatches, and by a store that is opened or closed
    job/lock         held by a job as long as it runs: there is one at a time
    writer.json      the options and the bounds of the open store, written when it is opened
    confirmed        8 bytes: up to this offset the log may be dispatched; the store writes it
    progress.json    up to where the job has everything on the disk; the job writes it

A note is written whole and renamed: a reader never sees half of one.
"""

from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, structs

from rocketlake.clock import Clock
from rocketlake.errors import StoreError, StoreLockedError
from rocketlake.files.ops import FileOps, Writer
from rocketlake.files.posix_locks import UNKNOWN_PROCESS
from rocketlake.files.store_lock import StoreLock
from rocketlake.files.whole_file import read_whole, replace_whole
from rocketlake.format import names
from rocketlake.store.options import StoreOptions

DISPATCH: Final = "dispatch"
_JOB: Final = "job"
_WRITER: Final = "writer.json"
_CONFIRMED: Final = "confirmed"
_PROGRESS: Final = "progress.json"
_WAIT_S: Final = 0.05

NoteType = TypeVar("NoteType", bound=Struct)


class WriterNote(Struct, frozen=True, kw_only=True, rename="camel"):
    """What an open store tells the job that dispatches for it."""

    session: str
    """Differs each time the store is opened."""
    pid: int
    """The process that has it open; 0 when it was closed."""
    is_clean: bool
    """How the store was stopped before."""
    log_end: int
    """Where the log ended then; queues and index held nothing behind it."""
    dispatch_from: int
    """The first record that a queue may have lacked then."""
    options: StoreOptions


class ProgressNote(Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a job has come."""

    session: str = ""
    where: int = 0
    """Queues and index have everything below it, on the disk."""
    timestamp: int = 0
    """The store time of the last record below it."""
    index_timestamp: int = 0
    """Up to this store time full index files are on the disk."""
    is_writing: bool = False
    """Whether more is being written: what a crash leaves of that is made again."""
    functions: dict[str, int] = {}
    """Up to where each custom dispatcher has received the records."""
    pending: dict[str, tuple[int, int]] = {}
    """The range that a custom dispatcher is receiving: after a crash it gets the same one again."""


class ExternalDispatch:
    """The files of external dispatch of one store.

    Thread-safety: one thread writes each of them.
    """

    def __init__(self, ops: FileOps, root: Path) -> None:
        self._ops = ops
        self._root = root
        self.path = root / DISPATCH
        self._cell: Writer | None = None
        self._published = -1

    @property
    def exists(self) -> bool:
        """Whether the store ever had external dispatch."""
        return self._ops.stat(self.path) is not None

    # --- locks -----------------------------------------------------------------------------------

    def dispatch_lock(self) -> StoreLock:
        """Return the lock on writing queues and index."""
        self._ops.mkdirs(self.path)
        return StoreLock(self._ops, self.path)

    def job_lock(self) -> StoreLock:
        """Return the lock of a job."""
        self._ops.mkdirs(self.path / _JOB)
        return StoreLock(self._ops, self.path / _JOB)

    @property
    def job(self) -> int | None:
        """The process of the job that runs; None if none does, or if it is not known."""
        return self._ops.lock_holder(self.path / _JOB / names.LOCK)

    @property
    def holder(self) -> int | None:
        """The process that has the store open; None if none has."""
        return self._ops.lock_holder(self._root / names.LOCK)

    # --- notes -----------------------------------------------------------------------------------

    def writer(self) -> WriterNote | None:
        """Return the note of the store that was opened last with external dispatch."""
        return self._load(_WRITER, WriterNote)

    def live_writer(self) -> WriterNote | None:
        """Return the note of the open store; None if none is open or it dispatches by itself."""
        note, holder = self.writer(), self.holder
        if note is None or holder is None or note.pid == 0:
            return None
        # Why: a holder whose number the system does not tell wrote the note, for a store that
        # dispatches by itself removes it.
        return note if holder in {note.pid, UNKNOWN_PROCESS} else None

    def progress(self) -> ProgressNote:
        """Return how far a job has come; zeros if there was none."""
        return self._load(_PROGRESS, ProgressNote) or ProgressNote()

    def progress_of_writer(self) -> ProgressNote | None:
        """Return how far a job has come since the store was opened; None if it has not begun."""
        note, found = self.writer(), self.progress()
        return found if note is not None and note.session == found.session else None

    def write_note(self, note: WriterNote) -> None:
        """Announce a store that was opened to jobs; its log may be dispatched up to `log_end`."""
        self._ops.mkdirs(self.path)
        self.publish(note.log_end)
        self._save(_WRITER, note)

    def remove_note(self) -> None:
        """Remove the note of an earlier store: this one dispatches by itself."""
        self._ops.unlink(self.path / _WRITER)

    def mark_closed(self) -> None:
        """Note that the store is closed; its options stay, for the job that ends its work."""
        note = self.writer()
        if note is not None:
            self._save(_WRITER, structs.replace(note, pid=0))
        cell, self._cell = self._cell, None
        if cell is not None:
            cell.close()

    def save_progress(self, note: ProgressNote) -> None:
        """Write how far a job has come."""
        self._save(_PROGRESS, note)

    # --- the confirmed end -----------------------------------------------------------------------

    def publish(self, offset: int) -> None:
        """Permit jobs to dispatch the log up to an offset."""
        if offset == self._published:
            return
        if self._cell is None:
            path = self.path / _CONFIRMED
            has_one = self._ops.stat(path) is not None
            self._cell = self._ops.open_writer(path) if has_one else self._ops.create(path, 0)
        # Aligned and in one page: a reader sees the old number or the new one.
        self._cell.write(0, offset.to_bytes(8, "big"))
        self._published = offset

    def confirmed(self) -> int:
        """Return up to where the log may be dispatched."""
        path = self.path / _CONFIRMED
        if self._ops.stat(path) is None:
            return 0
        reader = self._ops.open_reader(path)
        try:
            return int.from_bytes(reader.read(0, 8), "big")
        finally:
            reader.close()

    # --- private ---------------------------------------------------------------------------------

    def _load(self, name: str, kind: type[NoteType]) -> NoteType | None:
        path = self.path / name
        data = read_whole(self._ops, path)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise StoreError(f"{path} cannot be read ({error}); remove it") from error

    def _save(self, name: str, note: Struct) -> None:
        replace_whole(self._ops, self.path / name, msgspec.json.encode(note) + b"\n")


def acquire_within(lock: StoreLock, seconds: float, way_out: str, clock: Clock) -> None:
    """Take a lock, waiting for it if necessary.

    Raises:
        StoreLockedError: it is held all the time; `way_out` says what can be done.
    """
    end_s = clock.monotonic_s() + seconds
    while True:
        try:
            lock.acquire()
        except StoreLockedError as error:
            if clock.monotonic_s() >= end_s:
                raise StoreLockedError(
                    error.path, error.holder, is_own=error.is_own, way_out=way_out
                ) from error
            clock.sleep(_WAIT_S)
        else:
            return
