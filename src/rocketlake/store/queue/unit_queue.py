"""UnitQueue: what plain and batch queues have in common."""

import threading
from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from rocketlake.files.mapped_file import FLUSH_PAGE_SIZE, MappedFile
from rocketlake.files.slice import Slice
from rocketlake.format.queue_unit import PREFILL, ExtUnit, QueueUnit
from rocketlake.model.queues import QueueKey
from rocketlake.store.inventory import QueueBounds
from rocketlake.store.queue.times import Boundary, TimedLog, TimeLookup
from rocketlake.store.queue.unit_files import UnitFiles
from rocketlake.store.queue.unit_kind import Units
from rocketlake.store.stats.store_stats import SparseLog

_PREFILL_HEAD: Final = PREFILL[:12]  # physical_offset and size


class UnitQueue(ABC):
    """Which messages a queue holds: where each begins in the log, in the order of the queue.

    Thread-safety: one thread at a time puts, recovers, truncates, closes or destroys: the holder of
    the dispatcher's lock. Any thread reads the bounds, units and slices, also while the queue is
    destroyed: it finds nothing then. Any thread corrects the lowest offset, deletes and flushes.

    Invariants: `min_offset <= max_offset` but for a moment; what is between them is in the files.
    Bytes are in their place before `max_offset` moves. `max_physical_offset` is the end of the last
    record that the queue holds, -1 if it holds none; places kept for messages it never held (the
    pre-fill) are none.

    Durability: everything here can be made again from the log. What `flush` has covered is on the
    disk.
    """

    __slots__ = (
        "files", "key", "max_offset", "max_physical_offset", "min_offset",
        "_file", "_guard", "_is_4x", "_log_min", "_notes", "_units",
    )  # fmt: skip
    is_batch: ClassVar[bool]

    def __init__(
        self, key: QueueKey, units: UnitFiles, notes: SparseLog, *, is_4x: bool = False
    ) -> None:
        assert units.is_batch == self.is_batch, f"{key}: files of the other kind of queue"
        self.key = key
        self.min_offset = 0
        self.max_offset = 0
        self.max_physical_offset = -1
        self.files = units.files
        self._units = units
        self._notes = notes
        self._is_4x = is_4x
        self._log_min = 0  # the first offset of the log, as last reported to the queue
        self._file: MappedFile | None = None  # the last one, as the thread that puts knows it
        self._guard = threading.Lock()  # to change the lowest offset, and to lower the highest

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key}, {self.min_offset}..{self.max_offset})"

    # --- opening ---------------------------------------------------------------------------------

    def load(self, *, is_clean: bool = True) -> None:
        """Take the files that exist, each as full; `recover` finds the true end.

        Raises:
            FileSizeError: a file has another size than the queue's files have.
        """
        self._units.files.load(is_clean=is_clean)
        self._file = self._units.files.last_file()

    def recover(self, *, is_clean: bool = False) -> None:
        """Find the last valid unit and cut behind it; after a clean stop that is searched."""
        with self._guard:
            self._reload_bounds(self._units.recover(is_clean=is_clean))

    def truncate(self, log_offset: int) -> None:
        """Drop the units of records that begin at or behind a log offset."""
        with self._guard:
            if self.max_physical_offset > log_offset:
                units = self._units
                end = units.partition(
                    units.first_index,
                    units.end_index,
                    lambda unit: not unit or QueueUnit.decode(unit).physical_offset < log_offset,
                )
                units.cut(end)
                self._reload_bounds()

    def first_unit(self) -> tuple[int, QueueUnit] | None:
        """Return the first unit, valid or not, and its number; None if there is none."""
        units = self._units
        data = units.read(units.first_index, 1) if units.end_index > units.first_index else b""
        is_one = data and not is_prefill(data)
        return (units.first_index, QueueUnit.decode(data)) if is_one else None

    def first_physical_offset(self) -> int:
        """Return where the record of the first unit that is no pre-fill begins; -1 without one."""
        units = self._units
        first = units.first_index
        data = units.read(first, 1) if first < units.end_index else b""
        if data and is_prefill(data):
            first = units.partition(first, units.end_index, is_prefill)
            data = units.read(first, 1) if first < units.end_index else b""
        return QueueUnit.decode(data).physical_offset if data else -1

    def distrust(self, log_offset: int, *, keeps_first: bool = False) -> None:
        """Drop all units but those up to the first one that points to a log offset or behind it.

        With `keeps_first` the first unit stays: the log vouches for it.
        """
        with self._guard:
            units = self._units
            end = max(units.end_below(log_offset), units.first_index + keeps_first)
            if end < units.end_index:
                units.cut(end)
                self._reload_bounds()

    # --- appending -------------------------------------------------------------------------------

    @abstractmethod
    def append_packed(  # noqa: PLR0917 - called for every queue of every round
        self,
        view: memoryview,
        first_offset: int,
        count: int,
        first_physical: int,
        end_physical: int,
    ) -> None:
        """Append units of consecutive queue offsets, given as bytes.

        `first_physical` is where the first of their records begins, `end_physical` where the last
        one ends. Those that the queue holds already are passed over.

        Raises:
            DiskFullError: there is no space; a repeat does what is left to do.
        """

    # --- reading ---------------------------------------------------------------------------------

    @abstractmethod
    def slice(self, queue_offset: int) -> Slice | None:
        """Return the units from a queue offset on to the end of their file; None if none are."""

    @abstractmethod
    def units(self, queue_offset: int, count: int) -> Units:
        """Return a copy of up to so many units of one file; empty if there are none."""

    @abstractmethod
    def roll_next(self, queue_offset: int) -> int:
        """Return the first queue offset of the file behind the one that holds an offset."""

    def ext_unit(self, address: int) -> ExtUnit | None:
        """Return the extension unit at an address; None if there is none there."""
        _ = address
        return None

    @property
    def mapped_size(self) -> int:
        """How many bytes the files have together."""
        return self._units.files.mapped_size

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self._units.files.files)

    @property
    def bounds(self) -> QueueBounds:
        """What the queue has, for the inventory."""
        return QueueBounds(self._units.first_index, self.max_offset, self.max_physical_offset)

    def offset_by_time(
        self, log: TimedLog, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset for a store time; 4.x knows no boundary, but the nearest."""
        bounds = {"min_offset": self.min_offset, "max_offset": self.max_offset}
        lookup = TimeLookup(log, self._units, **bounds)
        return lookup.nearest(timestamp) if self._is_4x else lookup.bound(timestamp, boundary)

    # --- keeping ---------------------------------------------------------------------------------

    def is_due(self, least_pages: int) -> bool:
        """Tell whether `flush` may have something to do."""
        files = self._units.files
        start, end = files.flushed_where, files.max_offset
        if start == end:
            return False
        # Why: there may be ten thousand queues with little news, and they are asked each second.
        is_one_file = start // files.file_size == end // files.file_size
        return not (is_one_file and 0 < end - start <= (least_pages - 1) * FLUSH_PAGE_SIZE)

    def flush(self, least_pages: int) -> bool:
        """Have units on the disk if enough are new, any with 0; tell whether something moved.

        Raises:
            FlushFailedError: they may not be there.
        """
        if not self.is_due(least_pages):
            return False
        files = self._units.files
        has_moved = False
        while files.flush(least_pages):
            has_moved = True
        return has_moved

    def correct_min(self, log_min: int) -> None:
        """Make the first message that the log still holds the lowest, `log_min` being its begin."""
        with self._guard:
            self._log_min = log_min
            if self._units.files.files:
                self._correct_min(log_min)

    def delete_expired(self, log_min: int) -> int:
        """Delete files whose messages the log no longer holds; return how many.

        The last file stays. The lowest offset is corrected.

        Raises:
            FileAccessError: a file cannot be removed; it stays in the queue.
        """
        deleted = self._units.files.delete_by_offset(log_min, self._units.unit_size)
        self.correct_min(log_min)
        return deleted

    def close(self) -> None:
        """Let the files go; nothing is flushed."""
        self._file = None
        self._units.close()

    def destroy(self) -> None:
        """Remove all files, and the directory; the queue is empty then."""
        with self._guard:
            self._file = None
            # Order: the bounds first, so that no reader looks for what is being removed.
            self.min_offset = self.max_offset = 0
            self.max_physical_offset = -1
            self._units.files.destroy()
            self._reload_bounds()

    # --- private ---------------------------------------------------------------------------------

    @abstractmethod
    def _reload_bounds(self, last: bytes = b"") -> None:
        """Take the bounds from the files, of whose units `last` may be known; under the guard."""

    @abstractmethod
    def _correct_min(self, log_min: int) -> None:
        """Find the lowest offset; there are files, and the guard is held."""

    def _last_unit(self, last: bytes) -> bytes:
        """Return the last unit that stands for a message; nothing if there is none."""
        if last and not is_prefill(last):
            return last
        for run in reversed(self._units.runs()):
            unit = self._units.read(run.last, 1)
            if unit and not is_prefill(unit):
                return unit
        return b""

    def _first_held(self, low: int, high: int, log_min: int) -> int:
        """Return the first index of a range whose record the log still holds, or its end."""

        def is_gone(unit: bytes) -> bool:
            # A damaged unit may hold any number: only a real offset says that it expired.
            return bool(unit) and (
                is_prefill(unit) or 0 <= QueueUnit.decode(unit).physical_offset < log_min
            )

        # Why: as a rule nothing has changed, and looking at one unit tells.
        if low < high and not is_gone(self._units.take_first(low)):
            return low
        return self._units.partition(low, high, is_gone)


def is_prefill(unit: bytes) -> bool:
    """Tell whether a unit only keeps the place of a message that its queue never held."""
    return unit.startswith(_PREFILL_HEAD)


def packed(units: Units, dtype: np.dtype[np.void]) -> memoryview:
    """Return the bytes of units as files have them, whatever their order in memory is."""
    return np.ascontiguousarray(units, dtype).view(np.uint8).data


Column = npt.NDArray[np.int64]
"""A number for each unit."""
