"""Units that each stand for a batch (docs/formats/consumequeue.md)."""

from bisect import bisect_right
from typing import ClassVar, Final

import numpy as np

from rocketlake.files.slice import Slice
from rocketlake.format import layout
from rocketlake.format.queue_unit import BATCH_UNIT_DTYPE, BatchUnit, decode_batch_units
from rocketlake.model.queues import QueueKey
from rocketlake.store.queue.times import UnitRun
from rocketlake.store.queue.unit_files import UnitFiles
from rocketlake.store.queue.unit_kind import Units
from rocketlake.store.queue.unit_queue import Column, UnitQueue, packed
from rocketlake.store.stats.store_stats import SparseLog

_UNIT_SIZE: Final = layout.BATCH_UNIT_SIZE
_NOT_COMPACTED: Final = -1


class BatchConsumeQueue(UnitQueue):
    """A batch queue: 46 bytes for each record, which stands for one message or for many.

    Queue offsets come from the units, not from their places. A record that was put before is known
    by where it lies in the log alone.
    """

    __slots__ = ("_first_offsets",)
    is_batch: ClassVar[bool] = True

    def __init__(
        self, key: QueueKey, units: UnitFiles, notes: SparseLog, *, is_4x: bool = False
    ) -> None:
        super().__init__(key, units, notes, is_4x=is_4x)
        self._first_offsets: dict[int, int] = {}  # the queue offset at which a run of units begins

    # --- appending -------------------------------------------------------------------------------

    def put(
        self, units: Units, base_offsets: Column, store_timestamps: Column, batch_sizes: Column
    ) -> None:
        """Append records in the order of the log: the fields plain units have, and the others.

        A record that says no queue offset, or no size of its batch, is passed over.

        Raises:
            DiskFullError: there is no space; a repeat does what is left to do.
        """
        good = (base_offsets >= 0) & (batch_sizes > 0) & (batch_sizes <= layout.MAX_I16)
        if not good.all():
            self._notes.warning(
                ("batch", self.key),
                "records without a place in their batch queue key=%s count=%d",
                self.key,
                len(good) - int(np.count_nonzero(good)),
            )
        chosen = np.flatnonzero(good)
        if not len(chosen):
            return
        batches = np.zeros(len(chosen), BATCH_UNIT_DTYPE)
        for name in ("physical_offset", "size", "tags_code"):
            batches[name] = units[name][chosen]
        batches["store_timestamp"] = store_timestamps[chosen]
        batches["base_queue_offset"] = base_offsets[chosen]
        batches["batch_size"] = batch_sizes[chosen]
        batches["compacted_offset"] = _NOT_COMPACTED
        self.append_packed(
            packed(batches, BATCH_UNIT_DTYPE),
            int(batches["base_queue_offset"][0]),
            len(batches),
            int(batches["physical_offset"][0]),
            int(batches["physical_offset"][-1]) + int(batches["size"][-1]),
        )

    def append_packed(  # noqa: PLR0917 - as the plain queue's
        self,
        view: memoryview,
        first_offset: int,
        count: int,
        first_physical: int,
        end_physical: int,
    ) -> None:
        """Append units, given as bytes.

        `first_physical` is where the first of their records begins, `end_physical` where the last
        one ends.

        Raises:
            DiskFullError: there is no space; a repeat does what is left to do.
        """
        assert len(view) == count * _UNIT_SIZE, f"{len(view)} bytes are not {count} batch units"
        start = 0
        if first_physical < self.max_physical_offset:
            # Compat: as in BatchConsumeQueue#putBatchMessagePositionInfo, which goes by where the
            # last record begins. No record begins inside of it, so its end tells the same.
            places = decode_batch_units(view)["physical_offset"].astype(np.int64)
            start = int(np.searchsorted(places, self.max_physical_offset))
        if self.max_physical_offset < 0:
            with self._guard:
                # Order: the lowest first, for readers; no correction may come in between.
                self.min_offset = first_offset
                self._append(view)
        else:
            self._append(view[start * _UNIT_SIZE :])

    # --- reading ---------------------------------------------------------------------------------

    def slice(self, queue_offset: int) -> Slice | None:
        """Return the units from a queue offset on to the end of their file; None if none are.

        The first one is the unit that stands for the offset, perhaps among others before it.
        """
        index = self._index_of(queue_offset)
        return self._units.slice(index) if index is not None else None

    def units(self, queue_offset: int, count: int) -> Units:
        """Return a copy of up to so many units of one file; empty if there are none."""
        index = self._index_of(queue_offset)
        return decode_batch_units(self._units.read(index, count) if index is not None else b"")

    def roll_next(self, queue_offset: int) -> int:
        """Return the first queue offset of the file behind the one that holds an offset."""
        firsts = (self._first_offset(run) for run in self._units.runs())
        return next((first for first in firsts if first > queue_offset), self.max_offset)

    # --- private ---------------------------------------------------------------------------------

    def _append(self, view: memoryview) -> None:
        """Append units at the end, file by file."""
        done = 0
        while done < len(view):
            done += _UNIT_SIZE * self._units.extend(view[done:], self._units.end_index)
            last = BatchUnit.decode(view, done - _UNIT_SIZE)
            self.max_physical_offset = last.physical_offset + last.size
            self.max_offset = last.base_queue_offset + last.batch_size
        self._file = self._units.files.last_file()

    def _index_of(self, queue_offset: int) -> int | None:
        """Return the index of the last unit that begins at or before a queue offset."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        runs = self._units.runs()
        number = bisect_right(runs, queue_offset, key=self._first_offset)
        if number == 0:
            return None
        run = runs[number - 1]
        found = self._units.slice(run.first)
        if found is None:
            return None
        with found:
            # Why: the columns are looked at in few places; as an array they would be copied.
            offsets = decode_batch_units(found.view)["base_queue_offset"]
            index = run.first + bisect_right(offsets, queue_offset) - 1
            del offsets
        return index

    def _first_offset(self, run: UnitRun) -> int:
        found = self._first_offsets.get(run.first, -1)
        if found < 0:
            found = self._first_offsets[run.first] = self._units.offset_at(run.first)
        return found

    def _reload_bounds(self, last: bytes = b"") -> None:
        self._first_offsets.clear()
        units = self._units
        last = self._last_unit(last)
        self._file = units.files.last_file()
        if not last:
            self.min_offset = self.max_offset = 0
            self.max_physical_offset = -1
            return
        unit = BatchUnit.decode(last)
        self.max_physical_offset = unit.physical_offset + unit.size
        self.max_offset = unit.base_queue_offset + unit.batch_size
        first = units.offset_at(units.first_index)
        self.min_offset = min(max(self.min_offset, first), self.max_offset)

    def _correct_min(self, log_min: int) -> None:
        units = self._units
        # Order: the bounds first; what is appended meanwhile is held.
        next_offset, end = self.max_offset, units.end_index
        found = end
        if self.max_physical_offset > log_min:
            found = self._first_held(units.first_index, end, log_min)
        self.min_offset = next_offset if found == end else units.offset_at(found)
