"""Records against the units of a batch queue, which stand in the order of the log."""

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.store_layout import QueuePlace

Int64s = npt.NDArray[np.int64]

_SPARE: Final = 64
_FIXED: Final = {"compacted_offset": np.array([-1]), "reserved": np.array([0])}


class BatchResult(Struct):
    """Which units records confirmed, which records have none, and what is wrong."""

    lacking: npt.NDArray[np.bool_]
    runs: list[tuple[int, int]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    end: int = -1


class BatchQueueCheck:
    """Steps through the units of batch queues as records come."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._next: dict[int, int] = {}

    def compare(self, queue: QueuePlace, places: Int64s, values: dict[str, Int64s]) -> BatchResult:
        """Compare records, which begin at `places`, with the units that should stand for them.

        `values` are what the fields of the units must be.
        """
        result = BatchResult(np.zeros(len(places), np.bool_))
        start = self._next.get(queue.number)
        if start is None:
            start = self._find(queue, int(places[0]))
        count = min(len(places) + _SPARE, queue.end_index - start)
        units = queue.read(self._readers, start, max(count, 0))
        physical = units["physical_offset"].astype(np.int64).tolist()
        by_place = {place: index for index, place in reversed(list(enumerate(physical)))}
        found = np.array([by_place.get(place, -1) for place in places.tolist()], np.int64)
        result.lacking = found < 0
        held = np.flatnonzero(found >= 0)
        if not len(held):
            return result
        chosen = found[held]
        for name, expected in {**values, **_FIXED}.items():
            wanted = np.broadcast_to(expected, (len(places),))[held]
            for row in np.flatnonzero(units[name][chosen] != wanted).tolist():
                unit = units[chosen[row]]
                number = start + int(chosen[row])
                result.faults.append(_fault(queue, number, unit, (name, int(wanted[row]))))
        for index in chosen.tolist():
            if result.runs and result.runs[-1][1] == start + index:
                result.runs[-1] = (result.runs[-1][0], start + index + 1)
            else:
                result.runs.append((start + index, start + index + 1))
        result.end = int(places[held[-1]] + values["size"][held[-1]])
        self._next[queue.number] = start + int(chosen.max()) + 1
        return result

    def _find(self, queue: QueuePlace, place: int) -> int:
        """Return the first unit that points to an offset or behind it."""
        low, high = queue.first_index, queue.end_index
        while low < high:
            middle = (low + high) // 2
            if int(queue.read(self._readers, middle, 1)["physical_offset"][0]) < place:
                low = middle + 1
            else:
                high = middle
        return low


def _fault(queue: QueuePlace, number: int, unit: np.void, expected: tuple[str, int]) -> Fault:
    name, wanted = expected
    path, position = queue.place_of(number)
    reason = (
        f"queue {queue.name}: batch unit {number} has {name.replace('_', ' ')} {int(unit[name])}, "
        f"its record at {int(unit['physical_offset'])} {wanted}"
    )
    return Fault(path, position, reason, kind=Kind.UNIT, about=queue.name)
