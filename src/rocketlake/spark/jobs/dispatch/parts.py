"""Parts of a log: where to cut it, and a walk over the records of one part."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from rocketlake.errors import StoreNotFoundError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.files.store_dir import OffsetFile
from rocketlake.format.record import Check, RecordColumns, StopReason
from rocketlake.store.offline import Readers
from rocketlake.upkeep.verify.log_file_walk import BadPart, LogFileWalk

PART_BYTES: Final = 32 << 20
_PART_MIN: Final = 1 << 20
_TASKS_MIN: Final = 8  # so that two cores, and four, end at about the same time


class LogShape(Struct, frozen=True, kw_only=True):
    """What executors must know of a log; small and picklable."""

    root: Path
    log_files: list[OffsetFile]
    log_file_size: int
    checks: int
    end: int
    """Where the log ends: behind its last good, or its last confirmed record."""
    passes_bad: bool
    """Go on behind bad bytes in the same file (rebuild), or with the next file (dispatch)."""
    held_by: int | None = None

    @property
    def log_min(self) -> int:
        """The first byte of the log."""
        return self.log_files[0].base_offset if self.log_files else 0

    def room(self, number: int) -> int:
        """Return how many bytes of a log file count: up to the next one, or the log's end."""
        file = self.log_files[number]
        room = min(file.size, max(self.end - file.base_offset, 0))
        if number + 1 < len(self.log_files):
            return min(room, self.log_files[number + 1].base_offset - file.base_offset)
        return room


class Part(Struct, frozen=True):
    """The records of one file that begin in a range."""

    number: int
    """Its index among the parts."""
    file: int
    """The number of its file."""
    begin: int
    end: int
    is_proven: bool
    """Whether a record, if any, begins at `begin`: that of a file does."""


def cut(shape: LogShape, begin: int, *, part_bytes: int | None = None) -> list[Part]:
    """Cut a log from an offset on, where a record begins, into parts."""
    size = part_bytes or max(min(PART_BYTES, -(-(shape.end - begin) // _TASKS_MIN)), _PART_MIN)
    parts: list[Part] = []
    for number, file in enumerate(shape.log_files):
        start = max(begin, file.base_offset)
        stop = file.base_offset + shape.room(number)
        at = start
        while at < stop:
            # A rest that is hardly worth a task goes with the part before it.
            following = stop if stop - at < size * 3 // 2 else at + size
            parts.append(Part(len(parts), number, at, following, at == start))
            at = following
    return parts


def tasks_of(parts: Sequence[Part], part_bytes: int = PART_BYTES) -> list[list[Part]]:
    """Put small parts together: a task has one large part or several small ones."""
    tasks: list[list[Part]] = []
    size = part_bytes
    for part in parts:
        if size + part.end - part.begin > part_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.end - part.begin
    return tasks


class PartWalk(LogFileWalk):
    """Walks the records that begin in a part.

    Afterwards `start` is where the first of them begins, and `reached` where the next part must
    begin: the end of the file if no record follows.
    """

    def __init__(
        self,
        shape: LogShape,
        part: Part,
        readers: Readers,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(shape, part.file, readers, on_bytes)
        self._part = part
        self._passes_bad = shape.passes_bad
        file = shape.log_files[part.file]
        self._file_end = file.base_offset + shape.room(part.file)
        self.start = part.begin if part.is_proven else self._find_start(part.begin)
        self.begin = self.end = self.start
        self.reached = self._file_end

    def records(self) -> Iterator[RecordColumns]:
        """Yield the good records of the part in order, and collect what is between them."""
        if self.start >= self._part.end:
            self.reached = self.start
            return
        for columns in super().records():
            places = columns["physical_offset"]
            if places[-1] < self._part.end:
                yield columns
                continue
            count = int(np.searchsorted(places, self._part.end))
            self.reached = self.end = int(places[count])
            self.stop = StopReason.OK
            if count:
                yield RecordColumns(columns.buffer, columns.rows[:count])
            return

    def _find_start(self, offset: int) -> int:
        """Return where the first record at or behind an offset begins; the file's end without one.

        `adjoining_parts` checks where parts meet, so a wrong guess costs only time.
        """
        found = self._next_good(offset - 1)
        return self._file_end if found is None else found

    def _pass_bad(self, offset: int, reason: StopReason) -> int:
        if self._passes_bad:
            return super()._pass_bad(offset, reason)
        # Compat: as in ReputMessageService#doReput, a primary passes over the rest of the file.
        self.bad.append(
            BadPart(offset, self._limit, reason, has_record_behind=False, written_end=offset)
        )
        return self._limit


def require_visible(shape: LogShape, part: Part, ops: FileOps | None = None) -> None:
    """Make sure that this process sees the file of a part.

    Raises:
        StoreNotFoundError: it does not; the text says on which host.
    """
    path = shape.log_files[part.file].path
    if (ops or PosixFileOps()).stat(path) is None:
        import socket  # noqa: PLC0415 - only for the text

        raise StoreNotFoundError(
            f"the executor on {socket.gethostname()} cannot see {path}; it must be a shared "
            "directory, or the file expired meanwhile"
        )


DISPATCH_CHECKS: Final = int(Check.OFFSET)
