"""ConsumeQueue: one queue's units (docs/formats/consumequeue.md)."""

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from rocketlake.errors import FileAccessError
from rocketlake.files.slice import Slice
from rocketlake.format import layout
from rocketlake.format.queue_unit import PREFILL, UNIT_DTYPE, ExtUnit, QueueUnit, decode_units
from rocketlake.model.queues import QueueKey
from rocketlake.store.queue.ext import ConsumeQueueExt
from rocketlake.store.queue.unit_files import UnitFiles
from rocketlake.store.queue.unit_kind import QUEUE_OFFSET_MAX, Units, can_hold
from rocketlake.store.queue.unit_queue import Column, UnitQueue, packed
from rocketlake.store.stats.store_stats import SparseLog

log = logging.getLogger(__name__)

_UNIT_SIZE: Final = layout.UNIT_SIZE
_CODES_READ: Final = 4096  # units looked at in one go for an extension address


class ConsumeQueue(UnitQueue):
    """A plain queue: 20 bytes for each message, and the queue offset is the place in the files.

    `ext`, where there is one, holds what does not fit into a unit.
    """

    __slots__ = ("ext",)
    is_batch: ClassVar[bool] = False

    def __init__(
        self,
        key: QueueKey,
        units: UnitFiles,
        notes: SparseLog,
        *,
        ext: ConsumeQueueExt | None = None,
        is_4x: bool = False,
    ) -> None:
        super().__init__(key, units, notes, is_4x=is_4x)
        self.ext = ext

    # --- opening ---------------------------------------------------------------------------------

    def load(self, *, is_clean: bool = True) -> None:
        """Take the files that exist, each as full; `recover` finds the true end.

        Raises:
            FileSizeError: a file has another size than the queue's files have.
        """
        super().load(is_clean=is_clean)
        if self.ext is not None:
            self.ext.load(is_clean=is_clean)

    def recover(self, *, is_clean: bool = False) -> None:
        """Find the last valid unit and cut behind it; after a clean stop that is searched."""
        super().recover(is_clean=is_clean)
        if self.ext is not None:
            self.ext.recover()
            self._cut_ext(self.ext)

    def truncate(self, log_offset: int) -> None:
        """Drop the units of records that begin at or behind a log offset."""
        before = self.max_offset
        super().truncate(log_offset)
        if self.ext is not None and self.max_offset != before:
            self._cut_ext(self.ext)

    def distrust(self, log_offset: int, *, keeps_first: bool = False) -> None:
        """Drop all units but those up to the first one that points to a log offset or behind it."""
        before = self.max_offset
        super().distrust(log_offset, keeps_first=keeps_first)
        if self.ext is not None and self.max_offset != before:
            self._cut_ext(self.ext)

    # --- appending -------------------------------------------------------------------------------

    def put(self, units: Units, queue_offsets: Column) -> None:
        """Append units in the order of the log, each with its queue offset.

        1. What the queue holds already is passed over, so that records can be dispatched again.
        2. The first unit of a queue may have any number: the places before it are pre-filled. So
           may the next unit of a queue all of whose messages the log has deleted.
        3. A unit behind a gap keeps its number: the places before it are filled. Only a number that
           cannot be right, because the log has no room for so many records between the last unit
           and this one, because the next unit contradicts it, or because no file could hold it, is
           not believed: the unit is appended at the end.

        Raises:
            DiskFullError: there is no space; a repeat does what is left to do.
        """
        view = packed(units, UNIT_DTYPE)
        for start, stop in _runs(queue_offsets):
            if self._is_contradicted(queue_offsets, start, stop):
                self._put_at_end(
                    view[start * _UNIT_SIZE : stop * _UNIT_SIZE], int(queue_offsets[start])
                )
                continue
            self.append_packed(
                view[start * _UNIT_SIZE : stop * _UNIT_SIZE],
                int(queue_offsets[start]),
                stop - start,
                int(units["physical_offset"][start]),
                int(units["physical_offset"][stop - 1]) + int(units["size"][stop - 1]),
            )

    def put_extended(
        self,
        units: Units,
        queue_offsets: Column,
        store_timestamps: Column,
        bitmaps: Sequence[bytes],
    ) -> None:
        """Put units whose tags codes, store times and filter bits go into extension units.

        A unit whose extension cannot be written keeps its tags code.

        Raises:
            DiskFullError: there is no space; a repeat does what is left to do.
        """
        for start, stop in _runs(queue_offsets):
            number = int(queue_offsets[start])
            if self._is_contradicted(queue_offsets, start, stop):
                number = self.max_offset
            for first, last in self._choose(units[start:stop], number):
                rows = range(start + first, start + last)
                part = units[rows.start : rows.stop].copy()
                part["tags_code"] = [
                    self._extend(
                        ExtUnit(
                            int(units["tags_code"][row]), int(store_timestamps[row]), bitmaps[row]
                        )
                    )
                    for row in rows
                ]
                self._append(packed(part, UNIT_DTYPE))

    def fill_gap(self, number: int, physical_offset: int) -> None:
        """Keep places up to a queue offset for messages that the log has lost.

        Their units point to where the records were, as they do where only the log lost them.
        """
        lost = QueueUnit(physical_offset, 1, 0).encode()
        self._append(memoryview(lost * max(number - self.max_offset, 0)))

    def append_packed(  # noqa: PLR0917 - called for every queue of every round
        self,
        view: memoryview,
        first_offset: int,
        count: int,
        first_physical: int,
        end_physical: int,
    ) -> None:
        """Append units of consecutive queue offsets, given as bytes: what `put` does with a run.

        `first_physical` is where the first of their records begins, `end_physical` where the last
        one ends.

        Raises:
            DiskFullError: there is no space; a repeat does what is left to do.
        """
        if first_offset == self.max_offset and first_physical >= self.max_physical_offset:
            file = self._file
            if file is not None:
                begin = file.wrote
                end = begin + len(view)
                if end <= file.allocated:
                    file.buffer[begin:end] = view
                    # Order: readers go by these, so the bytes are there first.
                    file.wrote = end
                    self.max_physical_offset = end_physical
                    self.max_offset = first_offset + count
                    return
            self._append(view)
            return
        for start, stop in self._choose(decode_units(view), first_offset):
            self._append(view[start * _UNIT_SIZE : stop * _UNIT_SIZE])

    # --- reading ---------------------------------------------------------------------------------

    def slice(self, queue_offset: int) -> Slice | None:
        """Return the units from a queue offset on to the end of their file; None if none are."""
        if self.min_offset <= queue_offset < self.max_offset:
            return self._units.slice(queue_offset)
        return None

    def units(self, queue_offset: int, count: int) -> Units:
        """Return a copy of up to so many units of one file; empty if there are none."""
        if self.min_offset <= queue_offset < self.max_offset:
            return decode_units(self._units.read(queue_offset, count))
        return decode_units(b"")

    def roll_next(self, queue_offset: int) -> int:
        """Return the first queue offset of the file behind the one that holds an offset."""
        per_file = self._units.units_per_file
        return queue_offset + per_file - queue_offset % per_file

    def ext_unit(self, address: int) -> ExtUnit | None:
        """Return the extension unit at an address; None if there is none."""
        return self.ext.get(address) if self.ext is not None else None

    # --- keeping ---------------------------------------------------------------------------------

    @property
    def mapped_size(self) -> int:
        """How many bytes the files have together, those of the extension included."""
        return super().mapped_size + (self.ext.mapped_size if self.ext is not None else 0)

    @property
    def file_count(self) -> int:
        """How many files there are, those of the extension included."""
        return super().file_count + (self.ext.file_count if self.ext is not None else 0)

    def is_due(self, least_pages: int) -> bool:
        """Tell whether `flush` may have something to do."""
        return self.ext is not None or super().is_due(least_pages)

    def flush(self, least_pages: int) -> bool:
        """Have units on the disk if enough are new, any with 0; tell whether something moved.

        Raises:
            FlushFailedError: they may not be there.
        """
        if self.ext is None:
            return super().flush(least_pages)
        # Order: what units point to comes before them.
        return self.ext.flush(least_pages) | super().flush(least_pages)

    def close(self) -> None:
        """Let the files go; nothing is flushed."""
        super().close()
        if self.ext is not None:
            self.ext.close()

    def destroy(self) -> None:
        """Remove all files, and the directory; the queue is empty then."""
        super().destroy()
        if self.ext is not None:
            self.ext.destroy()

    # --- private: appending ----------------------------------------------------------------------

    def _choose(self, units: Units, first_offset: int) -> Iterator[tuple[int, int]]:
        """Yield which of some consecutive units are to be appended, piece by piece.

        A piece is appended before the next one is asked for.
        """
        # Compat: repeats are passed over as by ConsumeQueue#putMessagePositionInfo.
        ends = units["physical_offset"] + units["size"]
        start = int(np.searchsorted(ends, self.max_physical_offset, side="right"))
        if start == len(units):
            return
        number = first_offset + start
        if number > QUEUE_OFFSET_MAX:
            self._note_shift(number)
            number = self.max_offset
            first_offset = number - start
        if self.max_physical_offset < 0:
            if number != self.max_offset:
                self._begin_at(number)
        elif number == 0:
            # Compat: a number is compared only if it is not 0.
            self._note_shift(number)
            yield start, start + 1
            start, number = start + 1, 1
        start += max(self.max_offset - number, 0)
        if start < len(units):
            number = first_offset + start
            if number > self.max_offset:
                self._pass_gap(number, int(units["physical_offset"][start]))
            yield start, len(units)

    def _is_contradicted(self, queue_offsets: Column, start: int, stop: int) -> bool:
        """Tell whether a single unit leaps ahead, and the next one does not follow it.

        Why: no checksum covers the number of a record. One that is damaged must not hide the good
        records behind it, whose numbers would count as held already.
        """
        if stop - start > 1 or stop == len(queue_offsets):
            return False
        return self.max_offset < int(queue_offsets[stop]) < int(queue_offsets[start])

    def _put_at_end(self, view: memoryview, number: int) -> None:
        """Append a unit whose number is not believed, unless the queue holds its record."""
        unit = QueueUnit.decode(view)
        if unit.physical_offset + unit.size > self.max_physical_offset:
            self._note_shift(number)
            self._append(view)

    def _pass_gap(self, number: int, physical_offset: int) -> None:
        """Have a unit that comes next stand for its number, if that can be right.

        Compat: the reference appends it at the end in any case ("logic queue order maybe wrong"),
        and all units behind it stand for other queue offsets than their own.
        """
        end, held_to = self.max_offset, self.max_physical_offset
        if not can_hold(number - end, held_to, physical_offset):
            self._note_shift(number)
            return
        if held_to <= self._log_min:
            # Nothing that the queue holds can be read any more, and nothing has to be filled.
            self._begin_at(number)
        else:
            self.fill_gap(number, held_to)
        log.warning(
            "queue goes on behind messages that are lost key=%s from=%d to=%d",
            self.key,
            end,
            number,
        )

    def _append(self, view: memoryview) -> None:
        """Append units at the end, file by file."""
        done = 0
        while done < len(view):
            count = self._units.extend(view[done:], self.max_offset)
            done += count * _UNIT_SIZE
            last = QueueUnit.decode(view, done - _UNIT_SIZE)
            self.max_physical_offset = last.physical_offset + last.size
            self.max_offset += count
        self._file = self._units.files.last_file()

    def _begin_at(self, number: int) -> None:
        """Let a queue that holds no message begin at a number; pre-fill its file up to there.

        Why: the reference does so only where there is no file. Where one was made, or pre-filled in
        part, before a crash, it would append at the wrong place.
        """
        with self._guard:
            files = self._units.files
            position = number * _UNIT_SIZE
            file = files.last_file()
            if file is not None and not (
                file.base_offset + file.wrote <= position < file.base_offset + file.size
            ):
                files.destroy()
            # Order: readers must not take what is pre-filled for messages.
            self.min_offset = number
            file = self._units.last_file(number)
            missing = (position - file.base_offset - file.wrote) // _UNIT_SIZE
            file.append(PREFILL * missing)
            self.max_offset = number
            self._file = file
        log.info("queue begins key=%s offset=%d prefilled=%d", self.key, number, missing)

    def _note_shift(self, number: int) -> None:
        self._notes.warning(
            ("shift", self.key),
            "units out of place: gap in queue offsets key=%s expected=%d found=%d",
            self.key,
            self.max_offset,
            number,
        )

    def _extend(self, unit: ExtUnit) -> int:
        """Write an extension unit; return its address, or the plain tags code."""
        assert self.ext is not None, f"{self.key} has no extension"
        try:
            address = self.ext.put(unit)
        except FileAccessError as error:
            address = None
            self._notes.warning(("ext", self.key), "extension not written reason=%s", error)
        return unit.tags_code if address is None else address

    # --- private: bounds -------------------------------------------------------------------------

    def _reload_bounds(self, last: bytes = b"") -> None:
        units = self._units
        last = self._last_unit(last)
        unit = QueueUnit.decode(last) if last else None
        self.max_physical_offset = unit.physical_offset + unit.size if unit is not None else -1
        self.max_offset = units.end_index
        first = units.first_index if unit is not None else self.max_offset
        self.min_offset = min(max(self.min_offset, first), self.max_offset)
        self._file = units.files.last_file()

    def _correct_min(self, log_min: int) -> None:
        # Order: the end first; what is appended meanwhile is held.
        first, end = self._units.first_index, self.max_offset
        if self._is_4x:
            # Compat: only the first file is looked at; if it holds nothing, the minimum stays.
            end = min(self.roll_next(first), end)
            found = self._first_held(first, end, log_min)
            if found == end:
                return
        elif self.max_physical_offset <= log_min:
            found = end
        else:
            found = self._first_held(max(first, self.min_offset), end, log_min)
        self.min_offset = found
        if self.ext is not None:
            unit = self._units.read(found, 1)
            self.ext.delete_before(QueueUnit.decode(unit).tags_code if unit else 0)

    def _cut_ext(self, ext: ConsumeQueueExt) -> None:
        """Make the last extension unit that a unit points to the last one there is."""
        address = self._last_ext_address()
        if address is None:
            ext.destroy()
        else:
            ext.cut_behind(address)

    def _last_ext_address(self) -> int | None:
        for run in reversed(self._units.runs()):
            for stop in range(run.last + 1, run.first, -_CODES_READ):
                first = max(run.first, stop - _CODES_READ)
                codes = decode_units(self._units.read(first, stop - first))["tags_code"]
                found = np.flatnonzero(codes <= layout.EXT_ADDRESS_MAX)
                if len(found):
                    return int(codes[found[-1]])
        return None


def _runs(queue_offsets: Column) -> Iterator[tuple[int, int]]:
    """Cut numbers into pieces in which each is one more than the one before."""
    count = len(queue_offsets)
    if count < 2:
        return iter([(0, count)] if count else [])
    breaks = np.flatnonzero(np.diff(queue_offsets) != 1) + 1
    return pairwise([0, *breaks.tolist(), count])
