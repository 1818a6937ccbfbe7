"""Queues keep their numbers although records in between cannot be read.

Dispatch appends a unit behind a gap all the same, and all that follow stand for other queue offsets
than their own. A queue that is built anew gets a unit for each lost record instead: the old one,
if it points between its neighbours, else one that points to where the record was.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.log import Readers
from rocketlake.store.dispatch.placement import Placement
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.queue_set import ConsumeQueueSet
from rocketlake.upkeep.verify.log_file_walk import BadPart
from rocketlake.upkeep.verify.store_layout import QueuePlace

Int64s = npt.NDArray[np.int64]


class Gap(Struct, frozen=True):
    """Queue offsets that no record has, before a row of some records."""

    row: int
    key: QueueKey
    begin: int
    end: int
    physical_offset: int
    """The offset of the record behind the gap."""


class GapFiller:
    """Finds gaps as records come, and fills them in the queues that are built."""

    def __init__(
        self,
        queues: ConsumeQueueSet,
        old: Mapping[QueueKey, QueuePlace],
        readers: Readers,
        bad: Sequence[BadPart],
    ) -> None:
        """`old` are the queues as they were; `bad` grows as the log is walked."""
        self._bad = bad
        self._queues = queues
        self._old = old
        self._readers = readers
        self._next: dict[QueueKey, int] = {}

    def find(self, placement: Placement) -> list[Gap]:
        """Return the gaps among units, in the order of their records."""
        gaps = [
            structs.replace(gap, row=int(block.rows[gap.row]))
            for block in placement.own_blocks()
            for gap in self.find_in(
                block.key, block.column("queue_offset"), block.column("physical_offset")
            )
        ]
        return sorted(gaps, key=lambda gap: gap.row)

    def find_in(self, key: QueueKey, offsets: Int64s, physical: Int64s) -> Iterator[Gap]:
        """Yield the gaps among the records of one queue, whose rows count from 0 here.

        `offsets` are changed where a record has a wrong number.
        """
        old = self._old.get(key)
        if old is None or not old.is_batch:
            yield from self._of_queue(key, offsets, physical)

    def note(self, key: QueueKey, following: int) -> None:
        """Set the queue offset behind records of a queue that have no gap."""
        self._next[key] = following

    def fill(self, gap: Gap) -> None:
        """Append units for the lost records of a gap."""
        queue = self._queues.find(gap.key)
        if not isinstance(queue, ConsumeQueue) or queue.max_physical_offset < 0:
            return
        for number in range(max(gap.begin, queue.max_offset), gap.end):
            unit = self._unit(gap, number, queue.max_physical_offset)
            queue.put(unit, np.array([number]))

    def _of_queue(self, key: QueueKey, offsets: Int64s, physical: Int64s) -> Iterator[Gap]:
        expected = self._next.get(key, int(offsets[0]))
        before = np.concatenate(([expected - 1], np.maximum.accumulate(offsets)[:-1]))
        for index in np.flatnonzero(offsets > before + 1).tolist():
            number, wanted = int(offsets[index]), int(before[index]) + 1
            place = int(physical[index])
            following = int(offsets[index + 1]) if index + 1 < len(offsets) else None
            if self._is_its_own_fault(key, wanted, place, following):
                # The record's number is damaged: dispatch puts it where it belongs.
                before[index + 1 :] = np.minimum(before[index + 1 :], wanted)
                offsets[index] = wanted
                continue
            yield Gap(index, key, wanted, number, place)
        self._next[key] = int(offsets.max()) + 1

    def _is_its_own_fault(
        self, key: QueueKey, wanted: int, place: int, following: int | None
    ) -> bool:
        """Tell whether a record that jumps ahead has only a wrong number."""
        if following == wanted + 1:
            return True
        old = self._old.get(key)
        if old is None or not old.first_index <= wanted < old.end_index:
            return False
        unit = old.read(self._readers, wanted, 1)
        return int(unit["physical_offset"][0]) == place

    def _unit(self, gap: Gap, number: int, low: int) -> npt.NDArray[np.void]:
        old = self._old.get(gap.key)
        if old is not None and old.first_index <= number < old.end_index:
            unit = old.read(self._readers, number, 1)
            begin = int(unit["physical_offset"][0])
            size = int(unit["size"][0])
            if size > 0 and low <= begin and begin + size <= gap.physical_offset:
                return unit.copy()
        made = np.zeros(1, UNIT_DTYPE)
        parts = (part for part in self._bad if low < part.end <= gap.physical_offset)
        made["physical_offset"] = max(low, next((part.begin for part in parts), low))
        made["size"] = 1
        return made
