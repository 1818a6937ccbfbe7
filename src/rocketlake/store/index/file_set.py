"""IndexFileSet: all index files: roll, search, expire [IndexService].

1. Files are ordered by name, which is the local time they were made at. Only the newest is written.
2. A full file is flushed in the background; then the checkpoint says up to when keys are safe.
3. After an unclean stop only full files that the checkpoint speaks for are used. The others are
   removed, and `rebuild_from` says from where on the log must be indexed again.
"""

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from rocketlake import failpoint
from rocketlake.clock import Clock
from rocketlake.errors import FlushFailedError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.file_traits import INDEX_FILES
from rocketlake.files.mapped_file_factory import MappedFileFactory, MappedFileMaker
from rocketlake.files.mapped_file_queue import Waiter
from rocketlake.files.ops import FileOps
from rocketlake.format import names
from rocketlake.format.dispatch import KeyEntries, key_entries
from rocketlake.format.index import IndexHeader, key_hash
from rocketlake.format.record import RecordColumns
from rocketlake.store.index.index_file import IndexFile, IndexShape
from rocketlake.store.index.loading import find_index_files

log = logging.getLogger(__name__)

_EVER: Final = 1 << 62
_SECOND_MS: Final = 1_000  # entries keep their time in whole seconds, cut off


class IndexCheckpoint(Protocol):
    """The part of the checkpoint that belongs to the index."""

    index_timestamp: int
    """Up to this store time full index files are on the disk."""

    def flush(self) -> None:
        """Have the checkpoint on the disk."""
        ...


class IndexFileSet:
    """The index of a store.

    Thread-safety: one thread, the dispatcher, puts; any may call `offsets` and read the
    properties, and any may call `flush` and `delete_expired`. `load`, `truncate`, `close` and
    `destroy` need the dispatcher to stand still.

    Invariants: `files` is a tuple that is replaced, never changed. Offsets never decrease from
    entry to entry, over all files. A record has each of its keys once, however often it is put.

    Durability: files are flushed in their order, and their names with them, before the checkpoint
    says so. `close` flushes the last one too; between, its entries are only in memory, as the
    reference has it, and a crash makes them be built again.
    """

    def __init__(
        self,
        ops: FileOps,
        clock: Clock,
        path: Path,
        shape: IndexShape,
        *,
        factory: MappedFileFactory | None = None,
    ) -> None:
        self._ops = ops
        self._clock = clock
        self._path = path
        self._shape = shape
        self._factory = factory or MappedFileMaker(ops, clock, INDEX_FILES)
        self._checkpoint: IndexCheckpoint | None = None
        self.files: tuple[IndexFile, ...] = ()
        self.rebuild_from: int | None = None  # index the log from here on; None: nothing is missing
        self.failure: FlushFailedError | None = None  # of a flush in the background
        self._change = threading.Lock()
        self._flushing = threading.Lock()
        self._unflushed: list[IndexFile] = []
        self._doomed: list[IndexFile] = []
        self._flusher = _Flusher(self)

    # --- loading ---------------------------------------------------------------------------------

    def load(
        self, *, is_clean: bool, checkpoint: IndexCheckpoint, expected: Collection[str] = ()
    ) -> None:
        """Take the files that exist, as far as they can be trusted, and remove the others.

        After an unclean stop something is always missing; without any file, everything; without
        one of those `expected` by name, what it had and all behind it.

        Raises:
            FileSizeError: a file has another size than the options ask for.
        """
        self._checkpoint = checkpoint
        flushed_until = None if is_clean else checkpoint.index_timestamp
        found = find_index_files(
            self._ops, self._path, self._shape, flushed_until, expected=expected
        )
        for name in found.lost:
            log.warning("index file is missing, its keys are built again name=%s", name)
        for path in reversed(found.rejected):
            self._remove(path)
        self.files = tuple(
            IndexFile.open(self._factory, path, self._shape, header) for path, header in found.kept
        )
        self.rebuild_from = None
        if found.rejected or found.lost or not is_clean or not self.files:
            self.rebuild_from = self.end_physical_offset
            self._lower_checkpoint()

    def start(self) -> None:
        """Flush full files in the background from now on."""
        self._flusher.start()

    def truncate(self, log_offset: int) -> None:
        """Remove files with keys of records at or behind a log offset, which are no longer there.

        What else was in them must be indexed again: see `rebuild_from`. Left as they are, they
        would make new records look like repeats.
        """
        while self.files and _reaches(self.files[-1].header, log_offset):
            self._drop(self.files[-1])
            self.rebuild_from = min(self.end_physical_offset, log_offset)
            self._lower_checkpoint()

    # --- bounds ----------------------------------------------------------------------------------

    @property
    def end_physical_offset(self) -> int:
        """The offset of the last record with a key; 0 without one."""
        files = self.files
        return files[-1].header.end_physical_offset if files else 0

    @property
    def end_timestamp(self) -> int:
        """The store time of the last record with a key; 0 without one."""
        files = self.files
        return files[-1].header.end_timestamp if files else 0

    @property
    def inventory(self) -> dict[str, int]:
        """The files by name, and the last record that each has a key of."""
        return {file.path.name: file.header.end_physical_offset for file in self.files}

    @property
    def mapped_size(self) -> int:
        """How many bytes the files have together."""
        return len(self.files) * self._shape.file_size

    # --- writing ---------------------------------------------------------------------------------

    def put(self, columns: RecordColumns) -> None:
        """Index records of the log: their keys, and their tags where the shape has them.

        Records may come again: what is there already is passed over, key by key.

        Raises:
            DiskFullError: there is no space; what was put stays, and putting again goes on.
        """
        self.put_keys(columns, *key_entries(columns, with_tags=self._shape.has_tags))

    def put_keys(
        self, columns: RecordColumns, hashes: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]
    ) -> None:
        """Index records like `put`, by hashes that were computed elsewhere (`key_entries`).

        Raises:
            DiskFullError: there is no space; what was put stays, and putting again goes on.
        """
        if not len(columns):
            return
        # Compat: as in IndexService#buildIndex, any record makes a file if there is none with room.
        file = self._writable_file()
        if not len(hashes):
            return
        kept = self._new_entries(columns, hashes, rows)
        entries = KeyEntries(
            hashes[kept],
            columns["physical_offset"][rows[kept]],
            columns["store_timestamp"][rows[kept]],
        )
        done = file.put(entries)
        while done < len(entries):
            file = self._writable_file()
            done += file.put(entries.part(done))
        if file.is_full and rows[kept[-1]] < len(columns) - 1:
            self._writable_file()

    def _new_entries(
        self, columns: RecordColumns, hashes: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.intp]:
        """Return which of the entries are not in the files yet."""
        end = self.end_physical_offset
        offsets = columns["physical_offset"][rows]
        # Why: where each message waits for the one before, every round has one record, and its
        # entries need none of the arrays below.
        if len(columns) == 1 and offsets[0] > end:
            return np.arange(len(rows))
        # Compat: as in IndexService#buildIndex, a record before the last one is a repeat.
        highest = np.maximum.accumulate(np.maximum(offsets, end))
        kept = np.flatnonzero(offsets == highest)
        # Why: the last record may have only some of its keys in the files, when the disk was full
        # or the file behind a full one was lost. The reference puts all of them again.
        of_last = int(np.searchsorted(offsets[kept], end, side="right"))
        if of_last:
            there = Counter(self._hashes_of(end))
            missing = np.ones(len(kept), np.bool_)
            for i in range(of_last):
                hash_ = int(hashes[kept[i]])
                missing[i] = there[hash_] <= 0
                there[hash_] -= 1
            kept = kept[missing]
        return kept

    def _hashes_of(self, physical_offset: int) -> list[int]:
        """Return the hashes that the last record has in the files."""
        found: list[int] = []
        for file in reversed(self.files):
            last = file.last_hashes(physical_offset)
            found += last
            if len(last) < file.header.entries_used:
                break
        return found

    def _writable_file(self) -> IndexFile:
        """Return the newest file, or a new one if that is full."""
        newest = self.files[-1] if self.files else None
        if newest is not None and not newest.is_full:
            return newest
        failpoint.hit("roll.before")
        path = self._path / self._next_name(newest)
        header = newest.header if newest is not None else None
        file = IndexFile.create(self._factory, path, self._shape, header)
        with self._change:
            self.files = (*self.files, file)
            if newest is not None:
                self._unflushed.append(newest)
        failpoint.hit("roll.after")
        self._flusher.wakeup()
        log.info("index file made path=%s", path)
        return file

    def _next_name(self, newest: IndexFile | None) -> str:
        now_ms = self._clock.now_ms()
        moment = datetime.fromtimestamp(now_ms // 1000, UTC).astimezone()
        moment += timedelta(milliseconds=now_ms % 1000)
        return names.index_name_behind(newest.path.name if newest is not None else "", moment)

    # --- flushing --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Have all entries on the disk.

        Raises:
            FlushFailedError: they may not be there; a failure in the background is raised too.
        """
        with self._flushing:
            self._flush_full_files()
            for file in self.files[-1:]:
                file.flush()
                self._ops.sync_dir(self._path)

    def flush_full_files(self) -> None:
        """Flush the entries of full files, then record that in the checkpoint.

        Raises:
            FlushFailedError: they may not be there, and no later file counts as flushed either.
        """
        with self._flushing:
            self._flush_full_files()

    def _flush_full_files(self) -> None:
        if self.failure is not None:
            raise self.failure
        full = self._unflushed.copy()
        if not full:
            return
        try:
            for file in full:
                file.flush()
            self._ops.sync_dir(self._path)
            if self._checkpoint is not None:
                # Order: after the files, and after their names.
                self._checkpoint.index_timestamp = full[-1].header.end_timestamp
                self._checkpoint.flush()
        except FlushFailedError as error:
            self.failure = error
            raise
        with self._change:
            del self._unflushed[: len(full)]

    # --- reading ---------------------------------------------------------------------------------

    def offsets(self, topic: str, key: str, begin: int = 0, end: int = _EVER) -> Iterator[int]:
        """Yield the physical offsets of records that may have a key, newest first, each once.

        A hash is not a key, and a time here is not exact: records stored up to a second before
        the range are among them. The caller looks at the records.
        """
        begin, end = max(begin, -_EVER), min(end, _EVER)
        found = self._entries_of(key_hash(topic, key), begin, end)
        return (offset for offset, _ in groupby(found))

    def _entries_of(self, hash_: int, begin: int, end: int) -> Iterator[int]:
        for file in reversed(self.files):
            header = file.header
            if header.begin_timestamp <= end and begin <= header.end_timestamp:
                # Why: an entry's time is up to a second early, and ends the walk if too early.
                yield from file.offsets(hash_, begin - _SECOND_MS + 1, end)
            if header.begin_timestamp < begin:
                return

    # --- deleting --------------------------------------------------------------------------------

    def delete_expired(self, log_min: int, wait: Waiter | None = None, *, pause_ms: int = 0) -> int:
        """Remove the oldest files whose records are gone; return how many. The newest stays.

        `wait` is called between two files and can end the round.

        Raises:
            FileAccessError: a file cannot be removed; it stays in use.
        """
        self._reap()
        deleted = 0
        for file in self.files[:-1]:
            if file.header.end_physical_offset >= log_min:
                break
            if deleted and wait is not None and wait(pause_ms / 1000):
                break
            self._drop(file)
            deleted += 1
        return deleted

    def close(self) -> None:
        """Flush and close all files; look-ups in progress end with what they have found.

        Raises:
            FlushFailedError: not everything may be on the disk, now or since an earlier flush.
        """
        try:
            self._flusher.close()
            with self._flushing:
                for file in self.files[-1:]:
                    file.finish()
                    self._ops.sync_dir(self._path)
        finally:
            with self._change:
                files, self.files = self.files, ()
                self._doomed += files
            self._reap()

    def destroy(self) -> None:
        """Remove all files, and the directory if it is empty then."""
        while self.files:
            self._drop(self.files[-1])
        self._ops.rmdir(self._path)

    # --- private ---------------------------------------------------------------------------------

    def _lower_checkpoint(self) -> None:
        """Let the checkpoint speak for no files but those that are there.

        Why: files that are built again end at the same times as those that were flushed once, and
        would be trusted after a crash before they are flushed themselves.
        """
        checkpoint = self._checkpoint
        if checkpoint is not None and checkpoint.index_timestamp > self.end_timestamp:
            checkpoint.index_timestamp = self.end_timestamp
            checkpoint.flush()

    def _remove(self, path: Path) -> None:
        failpoint.hit("delete.before")
        self._ops.unlink(path)
        self._ops.sync_dir(self._path)
        failpoint.hit("delete.after")
        log.warning("index file removed, its keys are built again path=%s", path)

    def _drop(self, file: IndexFile) -> None:
        is_closed = file.destroy()
        with self._change:
            self.files = tuple(other for other in self.files if other is not file)
            if not is_closed:
                self._doomed.append(file)
        log.info("index file deleted path=%s is_in_use=%s", file.path, not is_closed)

    def _reap(self) -> None:
        """Close files that went away and whose readers are gone, or had long enough."""
        with self._change:
            doomed, self._doomed = self._doomed, []
        left = [file for file in doomed if not file.close()]
        with self._change:
            self._doomed += left


class _Flusher(BackgroundService):
    """Flushes full files soon after they were followed by a new one."""

    def __init__(self, files: IndexFileSet) -> None:
        super().__init__("index-flush", is_daemon=True)
        self._files = files

    def run_once(self) -> None:
        """Flush what became full; a failure is final, and the set keeps it for its owner."""
        if self._files.failure is None:
            self._files.flush_full_files()

    def run_last(self) -> None:
        """Flush for the last time; a failure now or before is raised."""
        self._files.flush_full_files()


def _reaches(header: IndexHeader, log_offset: int) -> bool:
    """Whether a file speaks of records at or behind an offset."""
    return header.end_physical_offset >= log_offset and (
        header.entries_used > 0 or header.end_physical_offset > 0
    )
