"""Whether the record that a unit points to is one of the unit's queue.

A damaged unit may point to a good record of another queue. The topic and the queue id of the record
tell, except where the record itself names the other queue (multi-dispatch). The records of a light
queue (`%LMQ%…`) all have other topics: units there are taken as they are.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocketlake.format.record import RecordColumns
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq
from rocketlake.store.dispatch.placement import PlacementRules, Records, place

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


class QueueCheck:
    """Compares records with the queues of a part, many at a time."""

    def __init__(self, queues: Sequence[tuple[str, int]]) -> None:
        self.queues = queues
        self._known: dict[str, int] = {}
        known = self._known
        codes = [known.setdefault(topic, len(known)) for topic, _ in queues]
        self._codes = np.array(codes, np.int64)
        self._ids = np.array([queue_id for _, queue_id in queues], np.int64)
        self._is_light = np.array([is_lmq(topic) for topic, _ in queues], np.bool_)

    def strangers(self, columns: RecordColumns, numbers: Numbers) -> Rows:
        """Return the rows whose record belongs to another queue than the one of that number."""
        codes, topics = columns.topics()
        own = np.array([self._known.get(topic, -1) for topic in topics], np.int64)
        differs = columns["queue_id"] != self._ids[numbers]
        differs |= own[codes] != self._codes[numbers]
        differs &= ~self._is_light[numbers]
        rows = np.flatnonzero(differs)
        if not len(rows):
            return rows
        placement = place(Records(RecordColumns(columns.buffer, columns.rows[rows])), _RULES)
        named = {
            (QueueKey(key.topic, key.queue_id), row)
            for key, entries in placement.light.items()
            for row, _ in entries
        }
        keys = [QueueKey(*self.queues[number]) for number in numbers[rows].tolist()]
        return rows[[(key, row) not in named for row, key in enumerate(keys)]]


_RULES = PlacementRules()


def describe_stranger(columns: RecordColumns, row: int) -> str:
    """Return whose record it is, for people."""
    one = RecordColumns(columns.buffer, columns.rows[[row]])
    found, (topic,) = one.rows[0], one.topics()[1]
    key = QueueKey(topic, int(found["queue_id"]))
    offset, physical = int(found["queue_offset"]), int(found["physical_offset"])
    return f"the unit points to {physical}, where message {offset} of {key} is"
