"""IndexFile: one hash file (docs/formats/index.md).

1. Entries are appended; slots, all over the front of the file, name the newest of each chain. So
   header and slots have space on the disk from the start, entries as they come.
2. What is in the map is the file: the header there is changed with every entry.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rocketlake.errors import DiskFullError
from rocketlake.files.file_traits import FilePlace
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_factory import MappedFileFactory
from rocketlake.format import index, layout
from rocketlake.format.dispatch import KeyEntries, put_entries
from rocketlake.format.index import IndexEntry, IndexHeader
from rocketlake.store.options import CompatVersion, StoreOptions

_STEP: Final = 256  # offsets that are taken from a chain while the file is held
_FORCE_MS: Final = 3_000


class IndexShape(Struct, frozen=True, kw_only=True):
    """How large the index files of a store are, and in which release's way they are written."""

    slots: int
    entries: int
    """One more than a file can hold: entry 0 is never used."""
    count_every_put: bool = False
    """Count each entry as a slot in use, as releases up to 4.6 do."""
    counts_empty: bool = True
    """Let a file without keys say at its end that its next entry is 1, as 5.x does."""
    has_tags: bool = False
    """Give the tag of a record an entry behind those of its keys, as 5.5 does."""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.entries < 2:
            raise ValueError(
                f"an index file needs a slot and two entries, not {self.slots} and {self.entries}: "
                "maxHashSlotNum, maxIndexNum"
            )

    @classmethod
    def of(cls, options: StoreOptions) -> Self:
        """Return the shape that the options of a store ask for."""
        version = options.compat_version
        return cls(
            slots=options.max_hash_slot_num,
            entries=options.max_index_num,
            count_every_put=version is CompatVersion.V4_6,
            counts_empty=not version.is_4x,
            has_tags=version.indexes_tags,
        )

    @property
    def file_size(self) -> int:
        """How many bytes a file has."""
        return index.file_size(self.slots, self.entries)


class IndexFile:
    """One file: keys of a part of the log, by their hashes.

    Thread-safety: one thread puts and flushes; any may look up, also while the file goes away.
    `header` is replaced, never changed: a reader sees the file as it was after some put.

    Invariants: the mapped file's `wrote` is where the next entry goes. Offsets of entries never
    decrease. An entry is whole before a slot names it.

    Durability: after a crash a file holds any part of what was put since its last flush; only one
    that is full and flushed can be used again.
    """

    __slots__ = ("_file", "_shape", "header")

    def __init__(self, file: MappedFile, shape: IndexShape, header: IndexHeader) -> None:
        self._file = file
        self._shape = shape
        self.header = header

    @classmethod
    def create(
        cls,
        factory: MappedFileFactory,
        path: Path,
        shape: IndexShape,
        before: IndexHeader | None,
    ) -> Self:
        """Make a file; it begins with the end of the one before it.

        Raises:
            DiskFullError: there is no space for header and slots; nothing is left behind.
        """
        file = factory.create(_place(path, shape))
        try:
            head_size = index.entry_position(shape.slots, 1)
            file.reserve(head_size)
            file.advance(head_size)
        except BaseException:
            file.destroy(0)
            raise
        made = cls(file, shape, IndexHeader(0, 0, 0, 0, 0, 0))
        if before is not None:
            made._write_header(_preset(before))
        return made

    @classmethod
    def open(
        cls, factory: MappedFileFactory, path: Path, shape: IndexShape, header: IndexHeader
    ) -> Self:
        """Take a file that exists and has this header; it is mapped when it is needed."""
        file = factory.open(_place(path, shape))
        if max(header.entry_count, 1) < shape.entries:
            file.resume(index.entry_position(shape.slots, max(header.entry_count, 1)))
        return cls(file, shape, header)

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    @property
    def is_full(self) -> bool:
        """Whether it takes no more entries."""
        return self.header.entry_count >= self._shape.entries

    # --- writing ---------------------------------------------------------------------------------

    def put(self, entries: KeyEntries) -> int:
        """Add entries until the file is full; return how many were added.

        Raises:
            DiskFullError: there is no space for them; the file is as before.
        """
        room = self._shape.entries - max(self.header.entry_count, 1)
        part = entries.part(0, room) if len(entries) > room else entries
        if not len(part):
            return 0
        self._file.reserve(len(part) * layout.INDEX_ENTRY_SIZE)
        buffer = self._file.buffer
        done = put_entries(
            buffer,
            (self._shape.slots, self._shape.entries),
            part,
            count_every_put=self._shape.count_every_put,
        )
        self._file.advance(done * layout.INDEX_ENTRY_SIZE)
        self.header = IndexHeader.decode(buffer)
        return done

    def flush(self) -> None:
        """Have all entries on the disk; the name of the file is its directory's matter.

        Raises:
            FlushFailedError: they may not be there.
        """
        self._file.flush(0)

    def finish(self) -> None:
        """Flush, and leave a file without keys as the release does at a clean stop.

        Raises:
            FlushFailedError: it may not be on the disk.
        """
        if self._shape.counts_empty and self.header.entry_count < 1:
            # Compat: as in IndexFile#flush the count of the next entry is written now, which
            # 4.x leaves out: it does not flush its last file at a clean stop.
            with suppress(DiskFullError):  # the count is understood without it
                self._file.reserve(0)
                self._write_header(replace(self.header, entry_count=1))
                self._file.sync()
        self.flush()

    # --- reading ---------------------------------------------------------------------------------

    def offsets(self, hash_: int, begin: int, end: int) -> Iterator[int]:
        """Yield the physical offsets of a hash and a range of time, newest first.

        The file is held only while its chain is read, not while the caller has an offset.
        """
        found = np.empty(_STEP, np.int64)
        entry = 0
        while self._file.hold():
            try:
                count, entry = index.walk(
                    self._file.map(), self._shape.slots, hash_, entry, begin, end, found
                )
            finally:
                self._file.release()
            yield from found[:count].tolist()
            if entry == 0:
                return

    def last_hashes(self, physical_offset: int) -> list[int]:
        """Return the hashes of the last entries, as far back as they are of this record."""
        found: list[int] = []
        if not self._file.hold():
            return found
        try:
            view = self._file.map()
            for number in range(self.header.entries_used, 0, -1):
                at = index.entry_position(self._shape.slots, number)
                entry = IndexEntry.decode(view, at)
                if entry.physical_offset != physical_offset:
                    break
                found.append(entry.key_hash)
        finally:
            self._file.release()
        return found

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> bool:
        """Close the file when it has no readers any more; True once it is closed."""
        return self._file.shutdown(_FORCE_MS)

    def destroy(self) -> bool:
        """Remove the file's name now, and close it as `close` does; True once it is closed.

        Raises:
            FileAccessError: it cannot be removed; it stays in use.
        """
        return self._file.destroy(_FORCE_MS)

    # --- private ---------------------------------------------------------------------------------

    def _write_header(self, header: IndexHeader) -> None:
        self._file.buffer[: layout.INDEX_HEADER_SIZE] = header.encode()
        self.header = header


def _place(path: Path, shape: IndexShape) -> FilePlace:
    return FilePlace(path, int(path.name), shape.file_size)


def _preset(before: IndexHeader) -> IndexHeader:
    """Return the header of a new file behind another."""
    # Compat: as in the constructor of IndexFile; the count is written with the first entry.
    time = max(before.end_timestamp, 0)
    offset = max(before.end_physical_offset, 0)
    return IndexHeader(time, time, offset, offset, 0, 0)
