"""The units of one queue as its files hold them: where they end, and what they point to.

A queue ends with its last valid unit. Plain and batch queues differ only by their `UnitKind`.
"""

import struct
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import layout
from rocketlake.format.names import offset_name
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log import Readers
from rocketlake.store.queue.unit_kind import UnitKind

HELD_MAX: Final = 16 << 10
"""Bytes of units kept in memory of a queue that has no more."""
LOOK: Final = 256
"""Units looked at in one read, where the one that is wanted is near."""
_READ = 64 << 10
_LOOK_BYTES = 8 << 10  # more than one page, which a disk may have lost

# What units of both kinds begin with: physical offset and size.
_PLACE: Final = struct.Struct(">qi")

PREFILL: Final = (0, layout.PREFILL_SIZE)
"""Physical offset and size of a unit that fills a gap."""


class StoredUnits:
    """The units of one queue by index.

    A unit's index is its place in the files; in a plain queue it is the queue offset too.
    """

    def __init__(
        self,
        key: QueueKey,
        kind: UnitKind,
        readers: Readers,
        files: list[OffsetFile],
        *,
        file_size: int | None = None,
    ) -> None:
        self.key = key
        self.kind = kind
        self.files = files
        self._readers = readers
        self._by_base = {file.base_offset: file for file in files}
        self.file_size = _file_size(files, kind, file_size)
        self.first_index = files[0].base_offset // kind.unit_size if files else 0
        self.end_index = self.first_index
        self.max_physical_offset = -1
        self._held = b""
        """The units from the first on, if they are few; without them a read of the file serves."""
        self._edges: dict[int, tuple[int, int]] = {}
        """What the first and the last unit of the files point to, by index."""

    # --- finding the end -----------------------------------------------------------------------

    def load(
        self,
        damage: Damage,
        *,
        is_clean: bool = False,
        passes_damage: bool = False,
        held_max: int = 0,
    ) -> None:
        """Find the last valid unit, looking from the third file from the end on.

        After a clean stop only zeros may follow it. With `passes_damage` units that are
        not valid do not end the queue: those behind them count. A queue in one file keeps up to
        `held_max` bytes of units in memory: with many small queues, to open a file costs more than
        all else.
        """
        index = max(len(self.files) - 3, 0)
        self.end_index = self.first_index
        for before, after in pairwise(self.files):
            if after.base_offset - before.base_offset > self.file_size:
                number = before.base_offset // self.kind.unit_size + self.file_units()
                damage.report(after.path, 0, f"the queue's file for {number} is missing")
        for file in self.files[index:]:
            first = file.base_offset // self.kind.unit_size
            self._note_shape(file, damage)
            count, behind = self._valid_units(file, held_max if len(self.files) == 1 else 0)
            self.end_index = first + count
            if passes_damage and count < self.file_units():
                self._pass_invalid(file, count, damage if is_clean else None)
            elif is_clean:
                self._note_end(file, count, behind, damage)
            if count < self.file_size // self.kind.unit_size:
                break
        self._find_max_physical()

    def _note_end(self, file: OffsetFile, count: int, behind: bytes, damage: Damage) -> None:
        position = count * self.kind.unit_size
        if count < self.file_units() and file is not self.files[-1]:
            text = f"the units of {self.key} end here, before the file behind"
            damage.report(file.path, position, text)
            return
        if count < self.file_units() and any(behind):
            damage.report(file.path, position, f"no valid unit; {self.key} is cut here")

    def _pass_invalid(self, file: OffsetFile, count: int, damage: Damage | None) -> None:
        """Move the end behind the last valid unit, if anything follows the first `count` units.

        Invalid units at the end are reported, since no read reaches them.
        """
        size = self.kind.unit_size
        data = self._readers.read(file.path, count * size, _LOOK_BYTES)
        if file is self.files[-1] and not any(data):
            return
        self.end_index = max(self.end_index, self._last_valid() + 1)
        last = self.files[-1]
        behind = max(self.end_index * size - last.base_offset, 0)
        data = self._readers.read(last.path, behind, max(self.file_size - behind, 0))
        units = np.frombuffer(data, np.uint8, len(data) // size * size).reshape(-1, size)
        lost = np.flatnonzero(units.any(axis=1))
        if len(lost) and damage is not None:
            number = int(lost[-1]) + 1
            text = f"{number} units at the end of {self.key} are not valid"
            damage.report(last.path, behind, text, size=number * size)

    def _note_shape(self, file: OffsetFile, damage: Damage) -> None:
        if file.size % self.kind.unit_size and file.size != self.file_size:
            damage.report(file.path, file.size, f"not whole units of {self.kind.unit_size} bytes")

    def _valid_units(self, file: OffsetFile, held_max: int) -> tuple[int, bytes]:
        """Return how many units of a file are valid, and the bytes of the unit behind them."""
        size = self.kind.unit_size
        position, step = 0, HELD_MAX // size * size  # nearly all of many queues are small
        while position < min(file.size, self.file_size):
            data = self._readers.read(file.path, position, min(step, self.file_size - position))
            valid = self.kind.count_valid(self.kind.decode(data))
            if valid and not position:
                self._edges[file.base_offset // size] = _PLACE.unpack_from(data)
            if valid < step // size:
                if not position and valid * size <= held_max:
                    self._held = data[: valid * size]
                return position // size + valid, data[valid * size : (valid + 1) * size]
            position += step
            step = _READ // size * size
        return position // size, b""

    def _last_valid(self) -> int:
        """Return the last unit of all files that is valid by itself; -1 if there is none."""
        for file in reversed(self.files):
            data = self._readers.read(file.path, 0, min(file.size, self.file_size))
            valid = np.flatnonzero(self.kind.valid(self.kind.decode(data)))
            if len(valid):
                return file.base_offset // self.kind.unit_size + int(valid[-1])
        return -1

    def _find_max_physical(self) -> None:
        """Set the end of the record that the last real unit points to."""
        self.max_physical_offset = -1
        last = self.end_index - 1
        place = self.place_at(last)
        if place is not None:
            self._edges = {i: p for i, p in self._edges.items() if i == self.first_index}
            self._edges[last] = place
        if place is not None and place != PREFILL:
            self.max_physical_offset = place[0] + place[1]

    def hold_to_proven(self, is_proven: Callable[[int, int], bool]) -> None:
        """End the queue with the last unit whose record is proven, given its offset and size.

        Why: a damaged unit may claim that the queue holds all of the log. What is behind the last
        proven one is in the log, if it is anywhere.
        """
        self.max_physical_offset = -1
        low = max(self.first_index, self.end_index - LOOK)
        for index in range(self.end_index - 1, low - 1, -1):
            unit = self._disk_units(index, 1)
            if len(unit) and not is_prefill(unit)[0]:
                offset, size = int(unit["physical_offset"][0]), int(unit["size"][0])
                if is_proven(offset, size):
                    self.max_physical_offset = offset + size
                    self.end_index = index + 1
                    return

    def cut(self, log_end: int, damage: Damage | None = None) -> int:
        """Leave out units that point behind the end of the log; return how many.

        After a clean stop there should be none: `damage` gets a report.
        """
        low, high = self.first_index, self.end_index
        while low < high:
            middle = (low + high) // 2
            place = self.place_at(middle)
            if place is None or place[0] >= log_end:
                high = middle
            else:
                low = middle + 1
        dropped = self.end_index - low
        self.end_index = low
        if dropped and damage is not None:
            self._report_behind(dropped, damage)
        self._find_max_physical()
        return dropped

    def cut_behind(self, log_end: int, damage: Damage | None = None) -> int:
        """Leave out the last units, up to one that points into the log; return how many.

        Unlike `cut` this trusts no order of the units: one that is damaged hides none before it.
        """
        end = self.end_index
        while self.end_index > self.first_index:
            begin = max(self.first_index, self.end_index - _READ // self.kind.unit_size)
            begin = max(begin, (self.end_index - 1) // self.file_units() * self.file_units())
            places = self._disk_units(begin, self.end_index - begin)["physical_offset"]
            inside = np.flatnonzero((places >= 0) & (places < log_end))
            self.end_index = begin + (int(inside[-1]) + 1 if len(inside) else 0)
            if len(inside):
                break
        dropped = end - self.end_index
        if dropped and damage is not None:
            self._report_behind(dropped, damage)
        if dropped:
            self._find_max_physical()
        return dropped

    def _report_behind(self, dropped: int, damage: Damage) -> None:
        first = self.end_index // self.file_units() * self.file_units()
        path = self.files[0].path.with_name(offset_name(first * self.kind.unit_size))
        text = f"{dropped} units of {self.key} point behind the end of the log"
        size = self.kind.unit_size
        position = (self.end_index - first) * size
        damage.report(path, position, text, size=dropped * size, messages=dropped)

    # --- units ---------------------------------------------------------------------------------

    def file_units(self) -> int:
        """Return how many units a file has room for."""
        return self.file_size // self.kind.unit_size

    @property
    def held_size(self) -> int:
        """How many bytes of units are in memory."""
        return len(self._held)

    def place_at(self, index: int) -> tuple[int, int] | None:
        """Return the physical offset and the size in a unit of the files; None without one."""
        if not self.first_index <= index < self.end_index:
            return None
        at = (index - self.first_index) * self.kind.unit_size
        if at < len(self._held):
            place: tuple[int, int] = _PLACE.unpack_from(self._held, at)
            return place
        if index in self._edges:
            return self._edges[index]
        unit = self._disk_units(index, 1)
        return (int(unit["physical_offset"][0]), int(unit["size"][0])) if len(unit) else None

    def held(self, index: int, end: int) -> bytes | None:
        """Return the units of the files from an index up to another as they are on the disk.

        None where they are not in memory.
        """
        size = self.kind.unit_size
        begin, stop = (index - self.first_index) * size, (end - self.first_index) * size
        return self._held[begin:stop] if 0 <= begin < stop <= len(self._held) else None

    def _disk_units(self, index: int, count: int) -> npt.NDArray[np.void]:
        held = self.held(index, index + count)
        if held is not None:
            return self.kind.decode(held)
        number = index // self.file_units()
        file = self._by_base.get(number * self.file_size)
        if file is None:
            return np.empty(0, self.kind.dtype)
        position = index % self.file_units() * self.kind.unit_size
        size = min(count * self.kind.unit_size, self.file_size - position)
        return self.kind.decode(self._readers.read(file.path, position, size))

    def first_physical_offset(self) -> int:
        """Return the physical offset in the first unit that is not pre-fill; -1 without one."""
        low, high = self.first_index, self.end_index
        place = self.place_at(low)
        if place == PREFILL:
            while low < high:
                middle = (low + high) // 2
                if self.place_at(middle) == PREFILL:
                    low = middle + 1
                else:
                    high = middle
            place = self.place_at(low)
        return place[0] if place is not None else -1


def _file_size(files: list[OffsetFile], kind: UnitKind, given: int | None) -> int:
    """Return the size of a queue's files: the given one, that of the files, or the default."""
    if given is not None:
        return -(-given // kind.unit_size) * kind.unit_size
    if len(files) == 1 and not files[0].base_offset and files[0].size >= kind.unit_size:
        return files[0].size // kind.unit_size * kind.unit_size
    counts = Counter(file.size // kind.unit_size * kind.unit_size for file in files)
    usual = sorted(counts, key=lambda size: (counts[size], size), reverse=True)
    steps = [b.base_offset - a.base_offset for a, b in pairwise(files)]
    for size in (*usual, *steps, kind.default_file_size):
        if size > 0 and all(file.base_offset % size == 0 for file in files):
            return size
    return kind.default_file_size


def is_prefill(units: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Mark the units that fill a gap."""
    mask: npt.NDArray[np.bool_] = (units["physical_offset"] == 0) & (
        units["size"] == layout.PREFILL_SIZE
    )
    return mask
