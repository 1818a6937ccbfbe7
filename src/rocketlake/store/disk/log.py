"""The commit log of a store that is only read: windows, walks, records at given offsets.

1. Every byte comes by `pread`, in windows; nothing is mapped.
2. A walk never raises on bad bytes: it yields why it stopped and goes on with the next file.
"""

import bisect
from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.errors import ConfigError, StoreNotFoundError
from rocketlake.files.ops import FileOps, Reader
from rocketlake.files.store_dir import OffsetFile, StoreDir
from rocketlake.format import layout
from rocketlake.format.record import (
    ROW_DTYPE,
    Check,
    RecordColumns,
    Scan,
    StopReason,
    scan,
    scan_at,
)
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.search_budget import SearchBudget
from rocketlake.store.log.bad_records import (
    BAD_REASONS,
    HEAD_SIZE,
    claimed_size,
    is_begin,
    sizes_told,
)

WINDOW = 4 << 20
_WINDOW_BEHIND_BAD = 4096  # there may be a bad one every hundred bytes
_BAD_MAX = 4 << 20  # a bad record that is longer hides the rest of its file
_GAP_MAX = 4096  # reading this much for nothing costs about as much as another call
_MISSING = 255  # beside the stop reasons: no file holds the record
_OPEN_MAX = 64


class Chunk(Struct, frozen=True):
    """Records of a walk: their columns, and the physical offset of the buffer's first byte."""

    file: OffsetFile
    base_offset: int
    columns: RecordColumns


class Stop(Struct, frozen=True):
    """Where and why a walk stopped in a file; the reason is never OK."""

    file: OffsetFile
    physical_offset: int
    reason: StopReason

    @property
    def file_position(self) -> int:
        """The byte of the file."""
        return self.physical_offset - self.file.base_offset


@runtime_checkable
class RangedReader(Protocol):
    """A reader that knows where a file is only zeros."""

    def written_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range that may be something else."""
        ...


class Readers:
    """A few files kept open, the least used closed first."""

    def __init__(self, ops: FileOps) -> None:
        self._ops = ops
        self._open: OrderedDict[Path, Reader] = OrderedDict()

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Return bytes of a file; none if it is gone."""
        reader = self._reader(path)
        return reader.read(position, size) if reader is not None else b""

    def _reader(self, path: Path) -> Reader | None:
        reader = self._open.get(path)
        if reader is None:
            try:
                reader = self._ops.open_reader(path)
            except StoreNotFoundError:
                if self._ops.stat(path) is None:
                    return None  # deleted meanwhile: like a file that ends at once
                raise
            self._open[path] = reader
            if len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        return reader

    def exists(self, path: Path) -> bool:
        """Tell whether a file is there now."""
        return self._ops.stat(path) is not None

    def names_in(self, directory: Path) -> list[str]:
        """Return the names that a directory holds now."""
        return [entry.name for entry in self._ops.entries(directory)]

    def ranges(self, path: Path, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a file that may hold data; all of it if that is not known."""
        reader = self._reader(path)
        if reader is None:
            return []
        known: object = reader
        if isinstance(known, RangedReader):
            return list(known.written_ranges(start, end))
        return [(start, end)]

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()


class LogView:
    """The files of a commit log, in order."""

    def __init__(self, directory: StoreDir, readers: Readers, damage: Damage) -> None:
        self._directory = directory
        self._readers = readers
        self._damage = damage
        self.files: list[OffsetFile] = []
        self._bases: list[int] = []
        self.file_size = 0
        self.expired_to = -1
        """Below this offset records expired while this view read them; -1: none did."""

    def refresh(self, file_size: int | None = None) -> None:
        """List the files anew.

        Raises:
            ConfigError: no file has the size that was given.
        """
        self._budgets: dict[int, SearchBudget] = {}
        listed = self._directory.log_files()
        self.files = _without_twins([file for file in listed if file.size], self._damage)
        self._report_empty_begin(listed)
        self._bases = [file.base_offset for file in self.files]
        sizes = Counter(file.size for file in self.files)
        if file_size is not None and sizes and file_size not in sizes:
            raise ConfigError(
                f"mappedFileSizeCommitLog is given as {file_size}, but the files of "
                f"{self.files[0].path.parent} have {sizes.most_common(1)[0][0]} bytes"
            )
        self.file_size = file_size or self._usual_size(sizes)
        self._report_shapes()

    def _usual_size(self, sizes: Counter[int]) -> int:
        if not sizes:
            return layout.DEFAULT_LOG_FILE_SIZE
        most = max(sizes.values())
        return max(size for size, count in sizes.items() if count == most)

    def _report_empty_begin(self, listed: list[OffsetFile]) -> None:
        """Report empty files at the start of the log, which would look expired."""
        for file in listed:
            if not file.size and self.files and file.base_offset < self.files[0].base_offset:
                text = f"the file is empty, but the log goes on at {self.files[0].base_offset}"
                self._damage.report(file.path, 0, text)

    def _report_shapes(self) -> None:
        for file in self.files:
            if file.base_offset % self.file_size:
                text = f"a file of {self.file_size} bytes cannot begin at {file.base_offset}"
                self._damage.report(file.path, 0, text)
            elif file.size != self.file_size:
                text = f"the file has {file.size} bytes, the others {self.file_size}"
                self._damage.report(file.path, min(file.size, self.file_size), text)
        for before, after in pairwise(self.files):
            end = before.base_offset + self.file_size
            if end < after.base_offset:
                text = f"the log goes on at {after.base_offset}: a file is missing"
                self._damage.report(before.path, self.file_size, text)

    @property
    def min_offset(self) -> int:
        """The offset of the first byte there is; 0 in an empty log."""
        return self._bases[0] if self._bases else 0

    @property
    def limit(self) -> int:
        """The offset behind the last file."""
        return self.files[-1].base_offset + self.files[-1].size if self.files else 0

    def file_at(self, physical_offset: int) -> OffsetFile | None:
        """Return the file that holds an offset."""
        index = bisect.bisect_right(self._bases, physical_offset) - 1
        if index < 0 or physical_offset >= self.files[index].base_offset + self._room(index):
            return None
        return self.files[index]

    def _room(self, index: int) -> int:
        """Return how much of a file counts: up to the next one."""
        file = self.files[index]
        if index + 1 < len(self.files):
            return min(file.size, self.files[index + 1].base_offset - file.base_offset)
        return file.size

    def read(self, physical_offset: int, size: int) -> bytes:
        """Return bytes of one file; fewer where it ends."""
        file = self.file_at(physical_offset)
        if file is None or size <= 0:
            return b""
        position = physical_offset - file.base_offset
        return self._readers.read(file.path, position, min(size, file.size - position))

    def written_ranges(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range in one file that may be something else than zeros."""
        file = self.file_at(begin)
        if file is None or begin >= end:
            return []
        base = file.base_offset
        found = self._readers.ranges(file.path, begin - base, min(end - base, file.size))
        return [(base + start, base + stop) for start, stop in found]

    def is_expired(self, physical_offset: int) -> bool:
        """Tell whether a record that cannot be read expired: its file and all before it are gone.

        The writer may delete files between a look at the directory and a read.
        """
        if physical_offset < max(self.min_offset, self.expired_to):
            return physical_offset >= 0
        file = self.file_at(physical_offset)
        if file is None or self._readers.exists(file.path):
            return False
        begin = min((found.base_offset for found in self._directory.log_files()), default=-1)
        if begin <= physical_offset:
            return False
        self.expired_to = begin
        return True

    def search_budget(self, file: OffsetFile) -> SearchBudget:
        """Return how much may be read to find records in damaged bytes of a file."""
        return self._budgets.setdefault(file.base_offset, SearchBudget(file.size))

    def has_more(self, end: int) -> bool:
        """Tell by a few bytes whether anything may be written behind the end."""
        file = self.file_at(end)
        head = self.read(end, layout.BLANK_HEADER_SIZE)
        if file is None or int.from_bytes(head[4:8], "big", signed=True) == layout.MAGIC_BLANK:
            later = bisect.bisect_right(self._bases, end)
            return later < len(self.files) and any(self.read(self._bases[later], 4))
        return any(head)

    # --- walking -------------------------------------------------------------------------------

    def walk(
        self, start: int, end: int | None = None, *, checks: int = Check.BODY_CRC | Check.OFFSET
    ) -> Iterator[Chunk | Stop]:
        """Yield records from `start` (where one begins) to `end`, and each stop but file ends.

        Behind a stop the walk goes on: behind the bad record if only its checksum is wrong and
        the next one is in place, else with the next file.
        """
        first = max(bisect.bisect_right(self._bases, start) - 1, 0)
        for index in range(first, len(self.files)):
            file = self.files[index]
            begin = max(start, file.base_offset)
            stop_at = file.base_offset + self._room(index)
            if end is not None and begin >= end:
                return
            yield from self._walk_file(file, begin, min(stop_at, end or stop_at), checks)

    def _walk_file(
        self, file: OffsetFile, offset: int, limit: int, checks: int
    ) -> Iterator[Chunk | Stop]:
        window = WINDOW
        while offset < limit:
            position = offset - file.base_offset
            wanted = min(window, limit - offset)
            buffer = self._readers.read(file.path, position, wanted)
            whole = len(buffer) < wanted or offset + len(buffer) >= limit
            window = WINDOW
            found = Scan(RecordColumns(buffer, np.empty(0, ROW_DTYPE)), StopReason.OK, 0)
            while found.reason == StopReason.OK:
                found = scan(buffer, found.position, base_offset=offset, checks=checks)
                if len(found.columns):
                    yield Chunk(file, offset, found.columns)
            if found.reason == StopReason.END_OF_FILE:
                return
            if not whole and _cut_by_window(found, buffer):
                # Only the window ended here: read on, in one piece even if the record is large.
                window = max(WINDOW, claimed_size(buffer, found.position))
                offset += found.position
                continue
            offset += found.position
            if offset < limit:
                yield Stop(file, offset, found.reason)
            following = self._behind_bad(file, offset, found)
            if following is None:
                return
            offset = following
            window = _WINDOW_BEHIND_BAD

    def _behind_bad(self, file: OffsetFile, offset: int, found: Scan) -> int | None:
        """Return where the record behind a bad one begins, if one does, or the file's filler."""
        if found.reason not in BAD_REASONS:
            return None
        data = found.columns.buffer[found.position :]
        if claimed_size(data) > len(data):
            # The size may be wrong, or the record longer than the window.
            left = file.base_offset + file.size - offset
            data = self.read(offset, min(_BAD_MAX, left))
        for size in sizes_told(data, found.reason):
            if is_begin(self.read(offset + size, HEAD_SIZE), offset + size):
                return offset + size
        return None

    def first_timestamp(self, file: OffsetFile) -> int | None:
        """Return the store time of the record a file begins with; None if none does."""
        head = self.read(file.base_offset, layout.RECORD_MIN_SIZE)
        if len(head) < layout.RECORD_MIN_SIZE:
            return None
        if int.from_bytes(head[4:8], "big", signed=True) not in (layout.MAGIC_V1, layout.MAGIC_V2):
            return None
        return store_timestamp(head)

    # --- records at given offsets --------------------------------------------------------------

    def gather(
        self, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], *, checks: int
    ) -> tuple[RecordColumns, npt.NDArray[np.uint8]]:
        """Parse the records at these offsets; return a row and a reason (0: good) for each.

        Reason `MISSING` says that no file holds the record (any more). Offsets and sizes may be
        garbage.
        """
        reasons = np.full(len(offsets), _MISSING, np.uint8)
        files = np.searchsorted(np.array(self._bases, np.int64), offsets, side="right") - 1
        rooms = np.array([self._room(i) for i in range(len(self.files))] or [0], np.int64)
        bases = np.array(self._bases or [0], np.int64)
        held = (files >= 0) & (offsets - bases[files] < rooms[files])
        reasons[held & (sizes <= 0)] = StopReason.BAD_SIZE
        reasons[held & (sizes > 0)] = StopReason.TORN
        inside = held & (sizes > 0)
        inside &= sizes <= rooms[files] - (offsets - bases[files])
        if inside.all():  # nearly always, and rows are not copied for it
            return self._gather_held(offsets, sizes, files, checks)
        wanted = np.flatnonzero(inside)
        columns, found = self._gather_held(offsets[wanted], sizes[wanted], files[wanted], checks)
        rows = np.zeros(len(offsets), ROW_DTYPE)
        rows[wanted] = columns.rows
        reasons[wanted] = found
        return RecordColumns(columns.buffer, rows), reasons

    def _gather_held(
        self,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        files: npt.NDArray[np.int64],
        checks: int,
    ) -> tuple[RecordColumns, npt.NDArray[np.uint8]]:
        """Parse records that lie wholly in their files, as far as these were listed."""
        places = np.zeros((len(offsets), 3), np.int64)
        places[:, 1] = sizes
        places[:, 2] = offsets
        parts: list[bytes] = []
        length = 0
        missing = np.zeros(len(offsets), np.bool_)
        for first, last in _runs(offsets, sizes, files):
            begin = int(offsets[first])
            data = self.read(begin, int(offsets[last - 1] + sizes[last - 1]) - begin)
            missing[first:last] = not data
            places[first:last, 0] = offsets[first:last] - begin + length
            # A record that reaches beyond what was read must not find its end in the next run.
            beyond = offsets[first:last] + sizes[first:last] > begin + len(data)
            places[first:last, 0][beyond] = -1
            parts.append(data)
            length += len(data)
        buffer = parts[0] if len(parts) == 1 else b"".join(parts)
        columns, reasons = scan_at(buffer, places, checks=checks)
        reasons[missing] = _MISSING
        return columns, reasons

    def describe(self, physical_offset: int) -> tuple[object, int]:
        """Return path and file position of an offset, for a report."""
        file = self.file_at(physical_offset)
        if file is None:
            return self._directory.log_dirs[0], physical_offset
        return file.path, physical_offset - file.base_offset


MISSING = _MISSING


def _runs(
    offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], files: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Cut records into runs that one read brings: close together, in one file, not large."""
    if not len(offsets):
        return
    ends = offsets + sizes
    gaps = offsets[1:] - ends[:-1]
    apart = (gaps < 0) | (gaps > _GAP_MAX) | (files[1:] != files[:-1])
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(offsets)]
    for first, last in pairwise(cuts):
        start = first
        while start < last:
            within = np.searchsorted(ends[start:last], int(offsets[start]) + WINDOW, "right")
            stop = min(max(start + int(within), start + 1), last)
            yield start, stop
            start = stop


def is_record_at(head: bytes, physical_offset: int) -> bool:
    """Tell whether bytes begin like the record of this offset."""
    magic = int.from_bytes(head[4:8], "big", signed=True)
    at = layout.RECORD_PHYSICAL_OFFSET_AT
    in_place = int.from_bytes(head[at : at + 8], "big", signed=True) == physical_offset
    return len(head) >= at + 8 and in_place and magic in (layout.MAGIC_V1, layout.MAGIC_V2)


def store_timestamp(head: bytes) -> int | None:
    """Return the store time of a record from its first 68 bytes or more."""
    sys_flag = int.from_bytes(head[36:40], "big", signed=True)
    at = layout.RECORD_BORN_HOST_AT + (20 if sys_flag & 0x10 else 8)
    if len(head) < at + 8:
        return None
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def _cut_by_window(found: Scan, buffer: bytes) -> bool:
    """Tell whether a scan ended only because its window did."""
    left = len(buffer) - found.position
    if left < layout.BLANK_HEADER_SIZE:
        return found.position > 0
    if found.reason != StopReason.TORN:
        return False
    return found.position > 0 or claimed_size(buffer, 0) > len(buffer)


def _without_twins(files: list[OffsetFile], damage: Damage) -> list[OffsetFile]:
    """Keep one of several files of the same name in different directories, and report it."""
    kept: list[OffsetFile] = []
    for file in files:
        if kept and kept[-1].base_offset == file.base_offset:
            damage.report(file.path, 0, f"the same part of the log as {kept[-1].path}")
        else:
            kept.append(file)
    return kept
