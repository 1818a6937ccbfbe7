"""Units of many queues, each read in the order of the log, a little ahead."""

from collections import OrderedDict
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.store_layout import QueuePlace, Units

_AHEAD: Final = 4096
_QUEUES_MAX: Final = 256  # so many queues are read ahead, 80 KiB each


class UnitReader:
    """Reads units of plain queues."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._ahead: OrderedDict[int, tuple[int, Units]] = OrderedDict()

    def fill(self, queue: QueuePlace, units: Units, first: int) -> None:
        """Fill in the units of consecutive queue offsets, as far as the queue has them."""
        begin = max(first, queue.first_index)
        end = min(first + len(units), queue.end_index)
        if begin < end:
            units[begin - first : end - first] = self._read(queue, begin, end)

    def fill_runs(self, queue: QueuePlace, units: Units, offsets: npt.NDArray[np.int64]) -> None:
        """Fill in the units of any queue offsets."""
        breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
        for start, stop in pairwise([0, *breaks.tolist(), len(offsets)]):
            self.fill(queue, units[start:stop], int(offsets[start]))

    def _read(self, queue: QueuePlace, begin: int, end: int) -> Units:
        first, units = self._ahead.get(queue.number, (0, None))
        if units is None or begin < first or end > first + len(units):
            count = min(max(end - begin, _AHEAD), queue.end_index - begin)
            first, units = begin, queue.read(self._readers, begin, count)
            self._ahead[queue.number] = (first, units)
            if len(self._ahead) > _QUEUES_MAX:
                self._ahead.popitem(last=False)
        return units[begin - first : end - first]
