"""Consume queues of a store that is only read: units from the files, then those not yet there.

A queue is shown as recovery would leave it: its units up to the first invalid one (`StoredUnits`),
those that point behind the end of the log left out, and behind them the units that dispatch still
owes (`OwedUnits`). Plain and batch queues have the same interface.
"""

from collections.abc import Iterator

import numpy as np

from rocketlake.files.store_dir import OffsetFile
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.log import Readers
from rocketlake.store.disk.owed_units import PLACE_DTYPE, OwedUnits, Places
from rocketlake.store.disk.stored_units import LOOK, PREFILL, StoredUnits, is_prefill
from rocketlake.store.queue.unit_kind import UnitKind

BATCH = 1024


class QueueView(StoredUnits):
    """One queue: its units by index, its bounds by queue offset."""

    def __init__(
        self,
        key: QueueKey,
        kind: UnitKind,
        readers: Readers,
        files: list[OffsetFile],
        *,
        file_size: int | None = None,
    ) -> None:
        super().__init__(key, kind, readers, files, file_size=file_size)
        self.min_offset = 0
        self.owed = OwedUnits()
        self._owed_places: Places | None = None

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
            if len(unit) and (is_prefill(unit)[0] or gone):
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
        if place is None or place == PREFILL:
            return False
        return log_min <= place[0] < self.max_physical_offset

    def recheck_min(self, log_min: int) -> None:
        """Lower the first message to earlier units that the log still holds, if it was found wrong.

        Why: a search among units believes those that it looks at, and one may be damaged.
        """
        first = self.index_of(self.min_offset)
        while first > self.first_index and first <= self.end_index:
            begin = max(self.first_index, first - LOOK)
            units = self.units(begin, first - begin)
            held = np.flatnonzero((units["physical_offset"] >= log_min) & ~is_prefill(units))
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
        while self.place_at(low - 1) == PREFILL:
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
            inside = found[~is_prefill(found) & (found["queue_offset"] < to_offset)]
            if len(inside):
                yield inside
            if int(found["queue_offset"][-1]) >= to_offset:
                return

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

    def _owed(self) -> Places:
        if self._owed_places is None or len(self._owed_places) != len(self.owed):
            self._owed_places = self.owed.places()
        return self._owed_places
