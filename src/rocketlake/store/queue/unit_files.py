"""UnitFiles: the files of one queue as one array of units.

1. A unit's index is its place in the files; in a plain queue it is the queue offset too.
2. A file is mapped when it is appended to or sliced. Looking for the end of a queue, or for a
   single unit, reads a file that is not mapped: ten thousand queues need no map to be opened.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from rocketlake.errors import FileAccessError, StoreClosedError, StoreError, StoreNotFoundError
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.ops import FileOps, Reader
from rocketlake.files.slice import Slice
from rocketlake.format.queue_unit import BatchUnit, QueueUnit
from rocketlake.store.queue.times import UnitRun
from rocketlake.store.queue.unit_kind import UnitKind

_RECOVERED_FILES: Final = 3  # the reference looks for the end in so many files
_FIRST_READ: Final = 4 << 10
_ZEROS: Final = bytes(256)
_READ_MAX: Final = 1 << 20
_BY_CALL_MIN: Final = 32 << 10  # from here on a call is cheaper than touching new pages


class UnitFiles:
    """The units of one queue on the disk.

    Thread-safety: any thread reads, also while files are deleted. One thread at a time appends,
    cuts or recovers.
    """

    __slots__ = ("_head", "_is_closed", "_ops", "files", "is_batch", "kind", "unit_size")

    def __init__(self, ops: FileOps, files: MappedFileQueue, kind: UnitKind) -> None:
        if files.file_size % kind.unit_size:
            raise ValueError(
                f"a queue file of {files.file_size} bytes does not hold whole units of "
                f"{kind.unit_size}; choose a multiple"
            )
        self._ops = ops
        self.files = files
        self.kind = kind
        self.is_batch = kind.is_batch
        self.unit_size = kind.unit_size
        self._is_closed = False
        self._head: tuple[int, bytes] | None = None  # a first unit that recovery has met

    @property
    def first_index(self) -> int:
        """The index of the first unit there is; 0 without files."""
        return self.files.min_offset // self.unit_size

    @property
    def end_index(self) -> int:
        """The index behind the last unit; 0 without files."""
        return self.files.max_offset // self.unit_size

    @property
    def units_per_file(self) -> int:
        """How many units a file has room for."""
        return self.files.file_size // self.unit_size

    # --- reading ---------------------------------------------------------------------------------

    def slice(self, index: int) -> Slice | None:
        """Return the units from an index to the end of their file; None if there are none."""
        return slice_at(self._ops, self.files, index * self.unit_size)

    def read(self, index: int, count: int) -> bytes:
        """Return up to so many units of one file; nothing if there are none."""
        position = index * self.unit_size
        file = self.files.find(position)
        if file is None:
            return b""
        start = position - file.base_offset
        size = min(count * self.unit_size, file.readable_end - start)
        if size <= 0 or not file.hold():
            return b""
        try:
            if len(file.buffer):
                return bytes(file.buffer[start : start + size])
            return self._pread(file, start, size)
        finally:
            file.release()

    def take_first(self, index: int) -> bytes:
        """Return a unit as `read` does; the first one need not be read again behind a recovery."""
        head, self._head = self._head, None
        return head[1] if head is not None and head[0] == index else self.read(index, 1)

    def partition(self, low: int, high: int, is_before: Callable[[bytes], bool]) -> int:
        """Return the first index of a range whose unit is not `is_before`, or its end.

        Units are in order, those before first. One whose file is missing is given as no bytes.
        """
        while low < high:
            middle = (low + high) // 2
            if is_before(self.read(middle, 1)):
                low = middle + 1
            else:
                high = middle
        return low

    # --- looking up by time (queue_times.TimedUnits) ---------------------------------------------

    def runs(self) -> list[UnitRun]:
        """Return the units of each file, in order; files without units are left out."""
        size = self.unit_size
        return [
            UnitRun(file.base_offset // size, (file.base_offset + file.readable_end) // size - 1)
            for file in self.files.files
            if file.readable_end >= size
        ]

    def changed_ms(self, run: UnitRun) -> int:
        """Return when the file of a run was changed last."""
        file = self.files.find(run.first * self.unit_size)
        return file.last_modified_ms() if file is not None else 0

    def physical_at(self, index: int) -> int:
        """Return where the record of a unit begins; -1 if the unit is gone."""
        unit = self.read(index, 1)
        return QueueUnit.decode(unit).physical_offset if unit else -1

    def offset_at(self, index: int) -> int:
        """Return the first queue offset a unit stands for; -1 if it is gone."""
        if not self.is_batch:
            return index
        unit = self.read(index, 1)
        return BatchUnit.decode(unit).base_queue_offset if unit else -1

    def time_at(self, index: int) -> int | None:
        """Return the store time that a batch unit holds."""
        unit = self.read(index, 1) if self.is_batch else b""
        return BatchUnit.decode(unit).store_timestamp if unit else None

    # --- appending -------------------------------------------------------------------------------

    def extend(self, units: memoryview, at: int) -> int:
        """Append as many units as the last file has room for; return how many.

        Without a file the one that holds the index `at` is made; it begins there or before.

        Raises:
            DiskFullError: there is no space; nothing was changed.
        """
        file = self.last_file(at)
        size = min(len(units), file.append_room)
        if size < _BY_CALL_MIN:
            file.append(units[:size])
        else:
            file.append_by_call(units[:size])
        return size // self.unit_size

    def last_file(self, at: int) -> MappedFile:
        """Return a file that has room: the last, the next, or the first for an index.

        Raises:
            DiskFullError: there is no space for it.
            StoreClosedError: the files were closed.
        """
        if self._is_closed:
            raise StoreClosedError("units cannot be put into a queue that was closed")
        file = self.files.last_file(at * self.unit_size)
        if file is None:
            raise StoreError(f"no file for unit {at} of a queue could be had")
        return file

    # --- the end ---------------------------------------------------------------------------------

    def recover(self, *, is_clean: bool = False) -> bytes:
        """Find the last valid unit, cut behind it, and return it if it was met on the way.

        As the reference, from the third file from the end on. After a clean stop the units of a
        file are all valid up to its end, which is searched; otherwise each is looked at, and what
        is found counts as not flushed.
        """
        files = self.files.files
        if not files:
            return b""
        start = max(len(files) - _RECOVERED_FILES, 0)
        end = files[start].base_offset
        last = b""
        for file in files[start:]:
            count, last = self._count_valid(file, is_clean=is_clean)
            end = file.base_offset + count * self.unit_size
            if count < self.units_per_file:
                break
        self.files.truncate(end, is_late=is_clean)
        if not is_clean:
            # Why: what a killed process has written may be in memory only, and the checkpoint
            # will soon speak of later units.
            for file in self.files.files[start:]:
                file.flushed = 0
            where = min(self.files.flushed_where, files[start].base_offset)
            self.files.flushed_where = where
            self._drop_empty_last()
        return last

    def end_below(self, log_offset: int) -> int:
        """Return the index of the first unit that points to a log offset or behind it, or is bad.

        What lies behind that one is not looked at.
        """
        for file in reversed(self.files.files):
            first = self.read(file.base_offset // self.unit_size, 1)
            if self._count_below(first, log_offset):
                count, _ = self._count_valid(file, log_offset=log_offset)
                return file.base_offset // self.unit_size + count
        return self.first_index

    def cut(self, index: int) -> None:
        """Make an index the end.

        A file that loses all its units is deleted, as the reference does: it would count the first
        zeros of an empty one as a unit when it cuts. The first file stays unless it begins at 0,
        for its name is all that tells how far the queue had come.
        """
        self._head = None
        self.files.truncate(index * self.unit_size)
        self._drop_empty_last()

    def close(self) -> None:
        """Let the files go; nothing is flushed, and nothing more is appended."""
        self._is_closed = True
        self.files.close()

    # --- private ---------------------------------------------------------------------------------

    def _drop_empty_last(self) -> None:
        files = self.files.files
        if files and files[-1].wrote == 0 and (len(files) > 1 or files[-1].base_offset == 0):
            self.files.delete_last()

    def _pread(self, file: MappedFile, start: int, size: int) -> bytes:
        try:
            reader = self._ops.open_reader(file.path)
        except StoreNotFoundError:
            if self._ops.stat(file.path) is not None:
                raise
            return b""  # deleted meanwhile
        try:
            return reader.read(start, size)
        finally:
            reader.close()

    def _count_below(self, data: bytes, log_offset: int | None) -> int:
        """Return how many units from the first on are valid, and point below a log offset."""
        units = self.kind.decode(self._used(data))
        count = self.kind.count_valid(units)
        if log_offset is None or not count:
            return count
        is_behind = units["physical_offset"][:count] >= log_offset
        return int(np.argmax(is_behind)) if is_behind.any() else count

    def _count_valid(
        self, file: MappedFile, *, is_clean: bool = False, log_offset: int | None = None
    ) -> tuple[int, bytes]:
        """Return how many units of a file are valid, and the last one, if it was met.

        With `log_offset` those that point there or behind it are not.
        """
        reader = self._ops.open_reader(file.path)
        try:
            count = 0
            last = b""
            step = _FIRST_READ // self.unit_size
            while count < self.units_per_file:
                wanted = min(step, self.units_per_file - count)
                data = reader.read(count * self.unit_size, wanted * self.unit_size)
                valid = self._count_below(data, log_offset)
                if valid and not count:
                    self._note_head(file, data)
                count += valid
                if valid:
                    last = data[(valid - 1) * self.unit_size : valid * self.unit_size]
                if valid < wanted:
                    break
                if is_clean:
                    return self._search_end(reader, count), b""
                step = min(step * 16, _READ_MAX // self.unit_size)
            return count, last
        finally:
            reader.close()

    def _used(self, data: bytes) -> bytes:
        """Return units without those of zeros at the end, which are as a rule most of them."""
        end = len(data)
        while end > len(_ZEROS) and data[end - len(_ZEROS) : end] == _ZEROS:
            end -= len(_ZEROS)
        used = -(-len(data[:end].rstrip(b"\0")) // self.unit_size)
        return data[: used * self.unit_size]

    def _note_head(self, file: MappedFile, data: bytes) -> None:
        if file is self.files.files[0]:
            self._head = (file.base_offset // self.unit_size, data[: self.unit_size])

    def _search_end(self, reader: Reader, low: int) -> int:
        def is_valid(index: int) -> bool:
            data = reader.read(index * self.unit_size, self.unit_size)
            return self.kind.count_valid(self.kind.decode(data)) == 1

        high = self.units_per_file
        if is_valid(high - 1):
            return high
        while low < high:
            middle = (low + high) // 2
            if is_valid(middle):
                low = middle + 1
            else:
                high = middle
        return low


def slice_at(ops: FileOps, files: MappedFileQueue, offset: int) -> Slice | None:
    """Return what can be read of a file from an offset on; None if there is nothing (any more)."""
    file = files.find(offset)
    if file is None:
        return None
    try:
        return file.slice(offset - file.base_offset)
    except FileAccessError:
        if ops.stat(file.path) is not None:
            raise
        return None  # deleted before it was mapped
