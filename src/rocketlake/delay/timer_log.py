"""TimerLog: the units of waiting messages, chained by due time (docs/formats/timer.md).

1. Units are appended in the order of the timer queue; the offset of a unit is its position.
2. The units of one slot are a chain: each has the position of the previous one, -1 ends it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.clock import Clock
from rocketlake.errors import CorruptRecordError
from rocketlake.files.file_traits import FileTraits
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.ops import FileOps
from rocketlake.format import layout
from rocketlake.format.timer import UNIT_DTYPE, TimerUnit, encode_blank, is_blank, valid_units

# Why: a file has 100 MiB, and most stores use a few pages of it.
_FILES: Final = FileTraits(is_sparse=True)
_UNIT: Final = layout.TIMER_UNIT_SIZE
_BLANK: Final = layout.TIMER_BLANK_SIZE
_PHYSICAL_OFFSET_AT: Final = 28
_CHUNK: Final = 16_384 * _UNIT


class TimerLog:
    """Appends units and finds them again.

    Thread-safety: only the thread of the timer.

    Durability: units below `flushed_where` are on the disk. A crash may leave any part of the
    later ones; `walk` ends at the first incomplete unit.
    """

    def __init__(self, ops: FileOps, clock: Clock, path: Path, file_size: int) -> None:
        """Take the directory; no file is created before the first unit.

        Raises:
            ValueError: no unit fits into a file.
        """
        if file_size < _UNIT + _BLANK:
            raise ValueError(f"mappedFileSizeTimerLog is {file_size}, at least {_UNIT + _BLANK}")
        self._path = path
        maker = MappedFileMaker(ops, clock, _FILES)
        self._files = MappedFileQueue(ops, clock, maker, path, file_size=file_size)

    def load(self) -> None:
        """Open the existing files; `truncate` then sets the end of the units.

        Raises:
            FileSizeError: a file has a wrong size.
        """
        self._files.load()

    @property
    def min_position(self) -> int:
        """The position of the first unit there is."""
        return self._files.min_offset

    @property
    def end(self) -> int:
        """The position behind the last unit."""
        return self._files.wrote_where

    @property
    def flushed_where(self) -> int:
        """The position up to which units are on the disk."""
        return self._files.flushed_where

    # --- writing ---------------------------------------------------------------------------------

    def append(self, unit: TimerUnit) -> int:
        """Write a unit behind the last one and return its position.

        Raises:
            DiskFullError: there is no space; nothing is changed that a second try would not mend.
        """
        file = self._file()
        if file.append_room < _UNIT + _BLANK:
            file.fill_to_end(encode_blank(file.append_room))
            file = self._file()
        position = file.base_offset + file.wrote
        is_appended = file.append(unit.encode())
        assert is_appended, f"{file!r} has no room for a unit"
        return position

    def flush(self) -> None:
        """Have all units on the disk.

        Raises:
            FlushFailedError: they may not be there.
        """
        while self._files.flush(0):
            pass

    def truncate(self, end: int) -> None:
        """Make a position the end."""
        self._files.truncate(end)

    def delete_expired(self, log_min: int) -> int:
        """Delete the oldest files whose units all point below an offset of the commit log."""
        size = self._files.file_size
        last_unit = (size - _BLANK) // _UNIT * _UNIT - _UNIT
        return self._files.delete_by_offset(log_min, size - last_unit - _PHYSICAL_OFFSET_AT)

    # --- reading ---------------------------------------------------------------------------------

    def unit_at(self, position: int) -> TimerUnit | None:
        """Return the unit at a position; None if none is there."""
        file = self._files.find(position)
        if file is None:
            return None
        found = file.slice(position - file.base_offset, _UNIT)
        if found is None:
            return None
        with found:
            return TimerUnit.decode(bytes(found.view))

    def chain(self, last_position: int) -> list[TimerUnit]:
        """Return the units of a chain, the oldest first; those in deleted files are left out.

        Raises:
            CorruptRecordError: a unit of it is damaged.
        """
        found = []
        position = last_position
        while position >= self.min_position:
            unit = self.unit_at(position)
            if unit is None or unit.previous_position >= position:
                reason = "no unit" if unit is None else "the chain leads forward"
                raise CorruptRecordError(str(self._path), position, reason)
            found.append(unit)
            position = unit.previous_position
        found.reverse()
        return found

    def last_unit(self) -> TimerUnit | None:
        """Return the unit before the end; None without units."""
        for file in reversed(self._files.files):
            # The filler of a full file is shorter than the units before it.
            count = min(file.wrote, self._files.file_size - _BLANK) // _UNIT
            if count:
                return self.unit_at(file.base_offset + (count - 1) * _UNIT)
        return None

    def walk(self, start: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield positions and runs of whole units from a position on, until there are no more.

        The end of a file is an empty run at the start of the next.
        """
        position = self._unit_start(start)
        while (file := self._files.find(position)) is not None:
            units, is_file_done = self._read_run(file, position - file.base_offset)
            yield position, units
            position += len(units) * _UNIT
            if is_file_done:
                position = file.base_offset + self._files.file_size
                yield position, units[:0]
            elif not len(units):
                return

    def close(self) -> None:
        """Let the files go; nothing is flushed."""
        self._files.close()

    def destroy(self) -> None:
        """Remove all files."""
        self._files.destroy()

    # --- private ---------------------------------------------------------------------------------

    def _unit_start(self, position: int) -> int:
        """Return the position if a unit can start there, else the start of a file before it."""
        file = self._files.find(position)
        if file is None:
            last = self._files.last_file()
            is_behind = last is not None and position >= last.base_offset
            return last.base_offset if last is not None and is_behind else self.min_position
        return position if (position - file.base_offset) % _UNIT == 0 else file.base_offset

    def _file(self) -> MappedFile:
        file = self._files.last_file(create_at=0)
        assert file is not None, "only a preallocator lets one wait"
        return file

    def _read_run(self, file: MappedFile, position: int) -> tuple[npt.NDArray[np.void], bool]:
        """Return whole units from a position of a file on, and whether its filler comes then."""
        size = min(_CHUNK, file.wrote - position)
        found = file.slice(position, size) if size > 0 else None
        if found is None:
            return np.empty(0, UNIT_DTYPE), position >= self._files.file_size
        with found:
            data = bytes(found.view)
        units = np.frombuffer(data, UNIT_DTYPE, len(data) // _UNIT)
        count = valid_units(units)
        is_blank_next = count * _UNIT < len(data) and is_blank(memoryview(data)[count * _UNIT :])
        return units[:count], is_blank_next
