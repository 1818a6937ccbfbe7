"""MappedFileQueue: ordered files, roll, find, truncate, expire.

1. The files of a queue are in one directory or in several, ordered by their names.
2. `files` is a tuple that is replaced, never changed: a reader sees one state.
3. A file that is deleted loses its name first and leaves `files`; its readers keep its bytes.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from struct import Struct as Layout
from typing import Final, TypeAlias

from msgspec import Struct, structs

from rocketlake import failpoint
from rocketlake.clock import Clock
from rocketlake.errors import DiskFullError, FileSizeError, StoreError
from rocketlake.files.file_traits import FilePlace
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_factory import MappedFileFactory
from rocketlake.files.ops import Entry, FileOps
from rocketlake.files.preallocator import Preallocator
from rocketlake.format import names

log = logging.getLogger(__name__)

Waiter: TypeAlias = Callable[[float], bool]  # waits so many seconds; True: stop what you do

_TRUNCATE_FORCE_MS: Final = 1_000
_CLOSE_FORCE_MS: Final = 3_000
_QUEUE_FORCE_MS: Final = 60_000
_FIRST_FIELD: Final = Layout(">q")  # physical_offset, the first field of every queue unit


class QueuePaths(Struct, frozen=True):
    """Directories of a queue; those that are read-only get no new files, listed twice or not."""

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()


class Expiry(Struct, frozen=True, kw_only=True):
    """When files go, and how fast."""

    reserved_ms: int
    force_after_ms: int = 120_000
    pause_ms: int = 100
    batch_max: int = 10


class FileGap(Struct, frozen=True):
    """Two neighbours whose offsets are not one file size apart."""

    before: Path
    after: Path
    distance: int


class MappedFileQueue:
    """Files of one size that together are one long file.

    Thread-safety: reading needs no lock. One thread at a time appends and rolls; `flush` and
    `commit` may be called by any; so may deleting. `truncate` needs the appender to stand still.

    Invariants: `files` is ordered by base offset. `flushed_where <= max_offset`.

    Durability: a file is on the disk, whole and empty, before it is in `files`; it is out of the
    directory before it is out of `files`. Files are removed newest first when the queue is cut and
    oldest first when they expire, so that a crash leaves no gap.
    """

    def __init__(
        self,
        ops: FileOps,
        clock: Clock,
        factory: MappedFileFactory,
        paths: QueuePaths | Path,
        *,
        file_size: int,
        preallocator: Preallocator | None = None,
    ) -> None:
        self._ops = ops
        self._clock = clock
        self._factory = factory
        self._preallocator = preallocator
        if isinstance(paths, Path):  # Why: there may be ten thousand of these
            self._paths = QueuePaths((paths,))
            self._candidates = [paths]
        else:
            writable, read_only = (tuple(dict.fromkeys(found)) for found in structs.astuple(paths))
            self._paths = QueuePaths(writable, read_only)
            self._candidates = sorted(set(writable) - set(read_only), key=str)
        if not self._candidates:
            raise ValueError("a queue of files needs a directory that is not read-only")
        self.file_size = file_size
        self.files: tuple[MappedFile, ...] = ()
        self.full_paths: frozenset[Path] = frozenset()  # set by retention; get no new files
        self.expired_count = 0  # files deleted by `delete_expired`
        self.flushed_where = 0
        self.committed_where = 0
        self.store_timestamp = 0  # of the last record that a thorough flush has covered
        self._change = threading.Lock()
        self._flushing = threading.Lock()
        self._committing = threading.Lock()
        self._doomed: list[MappedFile] = []
        self.on_advance: Callable[[], None] | None = None
        """Told that `committed_where` or `flushed_where` has moved, in the thread that moved it."""

    # --- loading ---------------------------------------------------------------------------------

    def load(self, *, is_clean: bool = True) -> None:
        """Take the files that exist, each as full; recovery finds the true end and truncates.

        Empty files at the end, which a crash leaves, are removed. After an unclean stop an empty
        one before the end goes, too, and all behind it: a flush goes file by file and would have
        given it its size, so that none of them was flushed.

        Raises:
            FileSizeError: a file has another size than the queue's files have.
            StoreError: two files begin at the same offset.
        """
        places = self._find_places(is_clean=is_clean)
        for before, after in pairwise(places):
            if before.base_offset == after.base_offset:
                raise StoreError(f"two files for one offset: {before.path} and {after.path}")
        self.files = tuple(self._factory.open(place) for place in places)
        self.flushed_where = self.committed_where = self.max_offset

    def check_self(self) -> list[FileGap]:
        """Return where neighbouring files do not fit together."""
        files = self.files
        if len(files) < 2:
            return []
        return [
            FileGap(before.path, after.path, after.base_offset - before.base_offset)
            for before, after in pairwise(files)
            if after.base_offset - before.base_offset != self.file_size
        ]

    # --- bounds and look-up ----------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 without files."""
        files = self.files
        return files[0].base_offset if files else 0

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte that may be read; 0 without files."""
        files = self.files
        return files[-1].base_offset + files[-1].readable_end if files else 0

    @property
    def wrote_where(self) -> int:
        """The offset behind the last byte appended; 0 without files."""
        files = self.files
        return files[-1].base_offset + files[-1].wrote if files else 0

    @property
    def mapped_size(self) -> int:
        """How many bytes the files have together."""
        return len(self.files) * self.file_size

    def find(self, offset: int, *, first_if_missing: bool = False) -> MappedFile | None:
        """Return the file that holds an offset; if there is none, None or the first file."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].base_offset) // self.file_size
        if 0 <= index < len(files):
            file = files[index]
            if 0 <= offset - file.base_offset < self.file_size:
                return file
        index = bisect_right(files, offset, key=lambda file: file.base_offset) - 1
        if index < 0 or not self._contains(files[index], offset):
            return files[0] if first_if_missing else None
        return files[index]

    # --- growing ---------------------------------------------------------------------------------

    @property
    def refusal(self) -> str:
        """Why no new file could be had."""
        return self._preallocator.refusal if self._preallocator else ""

    def last_file(self, create_at: int | None = None) -> MappedFile | None:
        """Return the file to append to.

        With `create_at` there will be one: behind the last if that is full, or for this offset if
        there are no files. None if it could not be had in time.

        Raises:
            DiskFullError: there is no space for a new one.
        """
        files = self.files
        if create_at is None:
            return files[-1] if files else None
        if files:
            return self.roll() if files[-1].is_full else files[-1]
        return self._grow(create_at - create_at % self.file_size)

    def roll(self) -> MappedFile | None:
        """Make the file behind the last one, which is full; None if it could not be had in time.

        Raises:
            DiskFullError: there is no space for it.
        """
        files = self.files
        assert not files or files[-1].is_full, f"{files[-1]!r} is not full"
        return self._grow(files[-1].base_offset + self.file_size if files else 0)

    # --- commit and flush ------------------------------------------------------------------------

    def commit(self, least_pages: int) -> bool:
        """Write borrowed buffers to one file; tell whether `committed_where` moved."""
        with self._committing:
            file = self._file_from(self.committed_where)
            if file is None:
                return False
            before, self.committed_where = (
                self.committed_where,
                file.base_offset + file.commit(least_pages),
            )
            has_moved = self.committed_where != before
        self._note_advance(has_moved=has_moved)
        return has_moved

    def flush(self, least_pages: int) -> bool:
        """Have readable bytes of one file on the disk; tell whether `flushed_where` moved.

        Raises:
            FlushFailedError: they may not be there; `flushed_where` stays.
        """
        with self._flushing:
            file = self._file_from(self.flushed_where)
            if file is None:
                return False
            # Order: the time before the position, which is moved first, and both before the flush.
            timestamp, wrote = file.store_timestamp, file.wrote
            flushed = file.flush(least_pages)
            before, self.flushed_where = self.flushed_where, file.base_offset + flushed
            if least_pages <= 0 and flushed >= wrote:
                # Why: the last record may still be in the file's write buffer.
                self.store_timestamp = timestamp
            has_moved = self.flushed_where != before
        self._note_advance(has_moved=has_moved)
        return has_moved

    def sync_from(self, offset: int) -> None:
        """Have on the disk what anybody wrote to the files from an offset on, as after a crash.

        Files in read-only directories are skipped: they have no unflushed bytes.

        Raises:
            FlushFailedError: it may not be there.
        """
        for file in self.files:
            is_writable = file.path.parent not in self._paths.read_only
            if is_writable and file.base_offset + self.file_size > offset:
                file.sync()

    # --- cutting and deleting --------------------------------------------------------------------

    def truncate(self, offset: int, *, is_late: bool = False, timeout_s: float = 0.0) -> None:
        """Make an offset the end: later files are removed, later bytes become zeros, on the disk.

        With `is_late` that comes before the next append, with `timeout_s` when readers are gone.

        Raises:
            FlushFailedError: the zeros may not be on the disk.
        """
        with self._flushing, self._committing:
            while self.files and self.files[-1].base_offset > offset:
                self._drop(self.files[-1], _TRUNCATE_FORCE_MS)
            if self.files and offset < self.files[-1].base_offset + self.files[-1].wrote:
                if timeout_s:
                    self._succeed_last(offset - self.files[-1].base_offset, timeout_s)
                elif is_late:
                    self.files[-1].end_at(offset - self.files[-1].base_offset)
                else:
                    self._cut_last(offset - self.files[-1].base_offset)
            self.flushed_where = min(self.flushed_where, offset)
            self.committed_where = min(self.committed_where, offset)

    def delete_expired(
        self,
        expiry: Expiry,
        wait: Waiter,
        *,
        is_forced: bool = False,
        below: int | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> int:
        """Delete the oldest files that are older than allowed, or any if forced; return how many.

        The last file stays, and what does not end at or before the offset `below`. `wait` is called
        between two files and can end the round. `prepare` is called before the first file goes, and
        not if none does; what it raises keeps all files.

        Raises:
            FileAccessError: a file cannot be removed; it stays in the queue.
        """
        self.reap(expiry.force_after_ms)
        deleted = 0
        latest_ms = self._clock.now_ms() - expiry.reserved_ms
        for file in self.files[:-1]:
            if deleted == expiry.batch_max:
                break
            if below is not None and file.base_offset + self.file_size > below:
                break
            if not is_forced and file.last_modified_ms() > latest_ms:
                break
            if not deleted:
                prepare()
            elif wait(expiry.pause_ms / 1000):
                break
            self._drop(file, expiry.force_after_ms)
            self.expired_count += 1
            deleted += 1
        return deleted

    def delete_by_offset(self, offset: int, unit_size: int) -> int:
        """Delete the oldest files whose last unit points below a log offset; return how many.

        The last file stays.
        """
        self.reap(_QUEUE_FORCE_MS)
        deleted = 0
        for file in self.files[:-1]:
            unit = file.slice(self.file_size - unit_size, unit_size)
            if unit is None:
                break
            with unit:
                reach: int = _FIRST_FIELD.unpack_from(unit.view)[0]
            if reach >= offset:
                break
            self._drop(file, _QUEUE_FORCE_MS)
            deleted += 1
        return deleted

    def delete_before(self, offset: int) -> int:
        """Delete the oldest files that end at or before an offset; return how many.

        The last file stays.
        """
        self.reap(_QUEUE_FORCE_MS)
        deleted = 0
        for file in self.files[:-1]:
            if file.base_offset + self.file_size > offset:
                break
            self._drop(file, _QUEUE_FORCE_MS)
            deleted += 1
        return deleted

    def delete_last(self) -> None:
        """Delete the newest file; like `truncate` it needs the appender to stand still."""
        with self._flushing, self._committing:
            if self.files:
                self._drop(self.files[-1], _TRUNCATE_FORCE_MS)
                self.flushed_where = min(self.flushed_where, self.max_offset)
                self.committed_where = min(self.committed_where, self.max_offset)

    def reap(self, force_after_ms: int) -> int:
        """Close deleted files whose readers are gone, or had long enough; return how many stay."""
        with self._change:
            doomed, self._doomed = self._doomed, []
        left = [file for file in doomed if not file.shutdown(force_after_ms)]
        with self._change:
            self._doomed += left
        return len(left)

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit borrowed buffers and close all files; nothing is flushed.

        Slices that are still in use keep their file open until they are closed.
        """
        try:
            while self.commit(0):
                pass
        finally:
            with self._change:
                files, self.files = self.files, ()
            for file in files:
                file.shutdown(_CLOSE_FORCE_MS)
            self.reap(0)

    def destroy(self) -> None:
        """Remove all files, and the directories that are empty then."""
        with self._flushing, self._committing:
            while self.files:
                self._drop(self.files[-1], _CLOSE_FORCE_MS)
            self.flushed_where = self.committed_where = 0
        for path in self._candidates:
            self._ops.rmdir(path)

    # --- private ---------------------------------------------------------------------------------

    def _note_advance(self, *, has_moved: bool) -> None:
        if has_moved and self.on_advance is not None:
            self.on_advance()

    def _contains(self, file: MappedFile, offset: int) -> bool:
        return file.base_offset <= offset < file.base_offset + self.file_size

    def _file_from(self, where: int) -> MappedFile | None:
        """Return the file to go on with; the first if the one before it was deleted meanwhile."""
        return self.find(where, first_if_missing=where < self.min_offset)

    def _find_places(self, *, is_clean: bool) -> list[FilePlace]:
        found = self._find_files()
        empty = [number for number, (_, entry) in enumerate(found) if entry.size == 0]
        whole = len(found) if is_clean or not empty else empty[0]
        while found and (found[-1][1].size == 0 or len(found) > whole):
            last = found.pop()[1]
            if last.path.parent not in self._paths.read_only:
                what = "empty last file" if last.size == 0 else "file behind an empty one"
                log.warning("%s removed path=%s", what, last.path)
                self._ops.unlink(last.path)
                self._ops.sync_dir(last.path.parent)
        for _, entry in found:
            if entry.size != self.file_size:
                raise FileSizeError(str(entry.path), size=entry.size, expected=self.file_size)
        return [FilePlace(entry.path, base, entry.size) for base, entry in found]

    def _find_files(self) -> list[tuple[int, Entry]]:
        """List the files with the offsets they are named by, in their order."""
        read_only = (path for path in self._paths.read_only if path not in self._paths.writable)
        found = [
            (base, entry)
            for path in (*self._paths.writable, *read_only)
            for entry in self._ops.entries(path)
            if not entry.is_dir and (base := names.parse_offset_name(entry.name)) is not None
        ]
        if len(found) > 1:
            found.sort(key=lambda item: (item[0], str(item[1].path)))
        return found

    def _place(self, base_offset: int) -> FilePlace:
        # Compat: MultiPathMappedFileQueue chooses the directory of a new file so.
        usable = [path for path in self._candidates if path not in self.full_paths]
        usable = usable or self._candidates
        path = usable[base_offset // self.file_size % len(usable)]
        return FilePlace(path / names.offset_name(base_offset), base_offset, self.file_size)

    def _grow(self, base_offset: int) -> MappedFile | None:
        failpoint.hit("roll.before")
        place = self._place(base_offset)
        if self._preallocator is not None:
            following = self._place(base_offset + self.file_size)
            if not self._preallocator.obtain(place, following, self._adopt):
                return None
        else:
            self._adopt(self._factory.create(place))
        failpoint.hit("roll.after")
        return self.files[-1]

    def _adopt(self, file: MappedFile) -> None:
        with self._change:
            file.is_first = not self.files
            self.files = (*self.files, file)

    def _succeed_last(self, position: int, timeout_s: float) -> None:
        before = self.files[-1]
        failpoint.hit("truncate.before")
        before.commit(0)
        # Why another object: readers of records behind the cut hold the one before.
        last = self._factory.open(FilePlace(before.path, before.base_offset, before.size))
        last.end_at(position)
        last.is_first = before.is_first
        self.files = (*self.files[:-1], last)
        before.retire(timeout_s)
        self._prepare(last)
        failpoint.hit("truncate.after")

    def _cut_last(self, position: int) -> None:
        self.files[-1].cut(position)
        self._prepare(self.files[-1])

    def _prepare(self, last: MappedFile) -> None:
        try:
            last.prepare_append()
        except DiskFullError as error:
            # Why: a full disk is no reason not to open the store and delete old files. Appending
            # asks for the space again.
            log.warning("no space to append path=%s reason=%s", last.path, error)

    def _drop(self, file: MappedFile, force_after_ms: int) -> None:
        is_closed = file.destroy(force_after_ms)
        with self._change:
            self.files = tuple(other for other in self.files if other is not file)
            if not is_closed:
                self._doomed.append(file)
        log.info("file deleted path=%s is_in_use=%s", file.path, not is_closed)
