"""Consume queues of a store that is only read: units from the files, then those not yet there.

A queue is shown as recovery would leave it: its units up to the first invalid one, those that
point behind the end of the log left out, and behind them the units that dispatch still owes
(`Owed`). Plain and batch queues have one face.
"""

import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
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

BATCH = 1024
HELD_MAX: Final = 16 << 10
"""Bytes of units that a view keeps in memory, of a queue that has no more."""
_READ = 64 << 10
_LOOK = 256
_LOOK_BYTES = 8 << 10  # more than one page, which a disk may have lost

# What units of both kinds begin with: physical offset and size.
_PLACE: Final = struct.Struct(">qi")

PLACE_DTYPE = np.dtype(
    [
        ("physical_offset", np.int64),
        ("size", np.int64),
        ("tags_code", np.int64),
        ("queue_offset", np.int64),
        ("batch_size", np.int64),
    ]
)
"""One unit of either kind, with the queue offset it stands for."""

Places = npt.NDArray[np.void]


class Owed:
    """Units that dispatch has not written yet, in order."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // 5

    def add(self, place: tuple[int, int, int, int, int]) -> None:
        """Append offset, size, tags code, queue offset and batch size."""
        self._numbers.extend(place)

    def add_all(self, places: npt.NDArray[np.int64]) -> None:
        """Append rows of the same numbers."""
        self._numbers.frombytes(places.tobytes())

    @property
    def physical_end(self) -> int:
        """Where the record of the last one ends; -1 if there is none."""
        return self._numbers[-5] + self._numbers[-4] if self._numbers else -1

    def clear(self) -> None:
        """Forget all."""
        del self._numbers[:]

    def places(self) -> Places:
        """Return the units as columns."""
        return np.frombuffer(bytes(self._numbers), PLACE_DTYPE)


class QueueView:
    """One queue: its units by index, its bounds by queue offset.

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
        self.min_offset = 0
        self.owed = Owed()
        self._owed_places: Places | None = None
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

        After a clean stop nothing but zeros may lie behind it. With `passes_damage` units that are
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
        """Move the end behind the last valid unit, where anything stands behind the first `count`.

        Units at the end that are not valid are told of, since no read comes to them.
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
        """Take the end of the record that the last real unit points to."""
        self.max_physical_offset = -1
        last = self.end_index - 1
        place = self.place_at(last)
        if place is not None:
            self._edges = {i: p for i, p in self._edges.items() if i == self.first_index}
            self._edges[last] = place
        if place is not None and place != _PREFILL:
            self.max_physical_offset = place[0] + place[1]

    def hold_to_proven(self, is_proven: Callable[[int, int], bool]) -> None:
        """End the queue with the last unit whose record is proven, given its offset and size.

        Why: a damaged unit may claim that the queue holds all of the log. What is behind the last
        proven one is in the log, if it is anywhere.
        """
        self.max_physical_offset = -1
        low = max(self.first_index, self.end_index - _LOOK)
        for index in range(self.end_index - 1, low - 1, -1):
            unit = self._disk_units(index, 1)
            if len(unit) and not _is_prefill(unit)[0]:
                offset, size = int(unit["physical_offset"][0]), int(unit["size"][0])
                if is_proven(offset, size):
                    self.max_physical_offset = offset + size
                    self.end_index = index + 1
                    return

    def first_physical_offset(self) -> int:
        """Return where the record of the first unit lies that is no pre-fill; -1 without one."""
        low, high = self.first_index, self.end_index
        place = self.place_at(low)
        if place == _PREFILL:
            while low < high:
                middle = (low + high) // 2
                if self.place_at(middle) == _PREFILL:
                    low = middle + 1
                else:
                    high = middle
            place = self.place_at(low)
        return place[0] if place is not None else -1

    def cut(self, log_end: int, damage: Damage | None = None) -> int:
        """Leave out units that point behind the end of the log; return how many.

        After a clean stop there are none: then `damage` is told.
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

    # --- bounds --------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many units there are, those owed included."""
        return self.end_index - self.first_index + len(self.owed)

    @property
    def next_offset(self) -> int:
        """The queue offset the files end with."""
        if not self.kind.is_batch:
            return self.end_index
        last = self.units(self.end_index - 1, 1) if self.end_index > self.first_index else None
        if last is None or not len(last):
            return 0
        return int(last["queue_offset"][0]) + int(last["batch_size"][0])

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message."""
        owed = self._owed()
        if len(owed):
            return int(owed["queue_offset"][-1]) + int(owed["batch_size"][-1])
        return self.next_offset

    def correct_min(self, log_min: int, *, keep_empty_min: bool) -> None:
        """Find the first message that the log still holds.

        `keep_empty_min` is 4.x: a queue whose messages are all gone keeps 0 as its lowest offset.
        """
        low, high = self.first_index, self.first_index + self.total
        end = high
        if self._is_first_held(log_min):
            high = low
        while low < high:
            middle = (low + high) // 2
            unit = self.units(middle, 1)
            # A damaged unit may hold any number: only a real offset says that it expired.
            gone = len(unit) and 0 <= int(unit["physical_offset"][0]) < log_min
            if len(unit) and (_is_prefill(unit)[0] or gone):
                low = middle + 1
            else:
                high = middle
        if low == end:
            self.min_offset = 0 if keep_empty_min else self.max_offset
        elif self.kind.is_batch or low >= self.end_index:
            self.min_offset = int(self.units(low, 1)["queue_offset"][0])
        else:
            self.min_offset = low

    def _is_first_held(self, log_min: int) -> bool:
        """Tell whether the log surely holds the record of the first unit."""
        place = self.place_at(self.first_index)
        if place is None or place == _PREFILL:
            return False
        return log_min <= place[0] < self.max_physical_offset

    def recheck_min(self, log_min: int) -> None:
        """Take in units before the first one that the log still holds, if it was not found right.

        Why: a search among units believes those that it looks at, and one may be damaged.
        """
        first = self.index_of(self.min_offset)
        while first > self.first_index and first <= self.end_index:
            begin = max(self.first_index, first - _LOOK)
            units = self.units(begin, first - begin)
            held = np.flatnonzero((units["physical_offset"] >= log_min) & ~_is_prefill(units))
            if not len(held):
                return
            first = begin + int(held[0])
            self.min_offset = int(units["queue_offset"][held[0]])

    # --- units ---------------------------------------------------------------------------------

    def units(self, index: int, count: int) -> Places:
        """Return up to `count` units from an index on; at most those of one file."""
        if index < self.first_index or count <= 0:
            return np.empty(0, PLACE_DTYPE)
        if index >= self.end_index:
            start = index - self.end_index
            return self._owed()[start : start + count]
        raw = self._disk_units(index, min(count, self.end_index - index))
        places = np.empty(len(raw), PLACE_DTYPE)
        for name in ("physical_offset", "size", "tags_code"):
            places[name] = raw[name]
        if self.kind.is_batch:
            places["queue_offset"] = raw["base_queue_offset"]
            places["batch_size"] = np.maximum(raw["batch_size"], 1)
        else:
            places["queue_offset"] = np.arange(index, index + len(raw))
            places["batch_size"] = 1
        return places

    def index_of(self, queue_offset: int) -> int:
        """Return the index of the unit that stands for a queue offset, or of the one behind."""
        low, high = self.first_index, self.first_index + self.total
        if not self.kind.is_batch and queue_offset <= self.end_index:
            return min(max(queue_offset, low), high)
        while low < high:
            middle = (low + high) // 2
            unit = self.units(middle, 1)
            if len(unit) and int(unit["queue_offset"][0] + unit["batch_size"][0]) <= queue_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def place_before(self, physical_offset: int) -> int:
        """Return the last place, up to an offset of the log, that a unit points to; -1 if none."""
        low, high = self.first_index, self.end_index
        while low < high:
            middle = (low + high) // 2
            place = self.place_at(middle)
            if place is not None and place[0] <= physical_offset:
                low = middle + 1
            else:
                high = middle
        place = self.place_at(low - 1)
        return place[0] if place is not None else -1

    def offset_at(self, physical_offset: int) -> int:
        """Return the queue offset of the first message whose record is at an offset or behind it.

        The queue's end if there is none.
        """
        low, high = self.first_index, self.first_index + self.total
        last = self.units(high - 1, 1)
        if not len(last) or int(last["physical_offset"][0]) < physical_offset:
            return self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.units(middle, 1)
            if len(unit) and int(unit["physical_offset"][0]) >= physical_offset:
                high = middle
            else:
                low = middle + 1
        # Units that fill a gap are in place of no message, and come with the one behind them.
        while self.place_at(low - 1) == _PREFILL:
            low -= 1
        return int(self.units(low, 1)["queue_offset"][0])

    def iterate(
        self, from_offset: int, to_offset: int, damage: Damage, batch: int = BATCH
    ) -> Iterator[Places]:
        """Yield units from a queue offset on, up to but without another; pre-fill left out."""
        index = self.index_of(max(from_offset, self.min_offset))
        end = self.first_index + self.total
        while index < end:
            found = self.units(index, batch)
            if not len(found):
                # The file is gone: go on with the next one.
                index = self._pass_over(index, damage)
                continue
            index += len(found)
            inside = found[~_is_prefill(found) & (found["queue_offset"] < to_offset)]
            if len(inside):
                yield inside
            if int(found["queue_offset"][-1]) >= to_offset:
                return

    def file_units(self) -> int:
        """Return how many units a file has room for."""
        return self.file_size // self.kind.unit_size

    def _pass_over(self, index: int, damage: Damage) -> int:
        """Return where the units go on behind a file that cannot be read, and say so."""
        if index >= self.end_index:
            return self.first_index + self.total
        first = index // self.file_units() * self.file_units()
        base_offset = first * self.kind.unit_size
        file = next((f for f in self.files if f.base_offset >= base_offset), self.files[-1])
        if self._has_expired(file):
            pass  # the writer deletes queue files behind those of the log
        elif file.base_offset == base_offset:
            position = (index - first) * self.kind.unit_size
            damage.report(file.path, position, f"units of {self.key} from {index} on are gone")
        else:
            damage.report(file.path, 0, f"the queue's file for {first} is missing")
        return min(self.next_held(first + self.file_units()), self.end_index)

    def _has_expired(self, file: OffsetFile) -> bool:
        """Tell whether a file is gone, with all that were listed before it."""
        before = (other for other in self.files if other.base_offset <= file.base_offset)
        return not any(self._readers.exists(other.path) for other in before)

    def next_held(self, index: int) -> int:
        """Return the first unit at an index or behind it that a file holds, or that is owed.

        Why: between two files more may be missing than there is time to step over one by one.
        """
        size = self.kind.unit_size
        found = (
            max(file.base_offset // size, index)
            for file in self.files
            if file.base_offset // size + self.file_units() > index
        )
        return min(found, default=self.end_index) if index < self.end_index else index

    @property
    def held_size(self) -> int:
        """How many bytes of units are in memory."""
        return len(self._held)

    def place_at(self, index: int) -> tuple[int, int] | None:
        """Return where the record of a unit of the files lies, and its size; None without one."""
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

    def _owed(self) -> Places:
        if self._owed_places is None or len(self._owed_places) != len(self.owed):
            self._owed_places = self.owed.places()
        return self._owed_places


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


_PREFILL: Final = (0, layout.PREFILL_SIZE)


def _is_prefill(units: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = (units["physical_offset"] == 0) & (
        units["size"] == layout.PREFILL_SIZE
    )
    return mask
