"""Records that the log has and their queues lack: what a walk of recovery finds missing.

1. A queue holds a record if its last unit points to that record or behind it.
2. The first record that a queue lacks must carry the number the queue would give it. A higher one
   shows a gap: units from before are lost, and only the log from its start can bring them back.
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.format.dispatch import Trait, dispatch_columns
from rocketlake.format.record import RecordColumns
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq, is_system_topic
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.dispatch.placement import PlacementRules, Records, UnitBlock, place
from rocketlake.store.queue.queue_set import AnyQueue

Int64s = npt.NDArray[np.int64]

_QUEUES_MAX: Final = 65_536  # queues of a topic with higher numbers are looked at one by one
_ALL: Final = (1 << 63) - 1


class UnheldRecords:
    """Takes the records of a walk, in order, and remembers what queues lack of them."""

    def __init__(
        self,
        queues: Iterable[tuple[QueueKey, AnyQueue]],
        has_topic: Callable[[str], bool],
        *,
        has_light_queues: bool = False,
        deleted: DeletedTopics = NO_TOPICS,
    ) -> None:
        """Say which topics there are, and whether records may be in light queues as well.

        Queues of a topic that was deleted are not missed. That is one which has no queue left and
        which `has_topic` does not know. Of topics in `deleted`, records of an earlier life are not
        missed, whatever queues there are.
        """
        self._queues = dict(queues)
        self._has_topic = has_topic
        self._topics = {key.topic for key in self._queues}
        self._rules = PlacementRules(has_light_queues=has_light_queues)
        self._deleted = deleted
        self._limits = _limits_by_topic(self._queues)
        self._seen: set[QueueKey] = set()
        self.first_offset: int | None = None
        """The offset of the first record that a queue lacks."""
        self.gaps: list[QueueKey] = []
        """Queues that lack messages from before the walk."""

    def add(self, columns: RecordColumns) -> None:
        """Take the next records."""
        codes, topics = columns.topics()
        ends = columns["physical_offset"] + columns["size"]
        wanted = ends > self._held_up_to(columns["queue_id"], codes, topics)
        if self._rules.has_light_queues:
            wanted |= dispatch_columns(columns).traits & Trait.IS_SPECIAL != 0
        if wanted.any():
            records = Records(RecordColumns(columns.buffer, columns.rows[wanted]))
            for block in place(records, self._rules, self._deleted).blocks():
                self._add_block(block)

    def _add_block(self, block: UnitBlock) -> None:
        """Note the first record that a queue lacks, and whether it has a place at the end."""
        key = block.key
        if key in self._seen or key.queue_id < 0:
            return
        queue = self._queues.get(key)
        places, numbers = block.column("physical_offset"), block.batch_numbers()[0]
        held_to = queue.max_physical_offset if queue is not None else -1
        lacking = np.flatnonzero((places + block.column("size") > held_to) & (numbers >= 0))
        if not len(lacking):
            return
        self._count_as_held(key)
        if self.is_deleted(key.topic):
            return
        self._seen.add(key)
        place, number = int(places[lacking[0]]), int(numbers[lacking[0]])
        if self.first_offset is None or place < self.first_offset:
            self.first_offset = place
        if number > (queue.max_offset if queue is not None else 0):
            self.gaps.append(key)

    def is_deleted(self, topic: str) -> bool:
        """Tell whether queues of a topic are not missed."""
        # Why: the store's own topics and light queues may be in no table.
        is_own = is_system_topic(topic) or is_lmq(topic)
        return not (topic in self._topics or is_own or self._has_topic(topic))

    def _count_as_held(self, key: QueueKey) -> None:
        """Count further records of a queue as held: they tell nothing more."""
        if key.queue_id >= _QUEUES_MAX:
            return
        limits = self._limits.get(key.topic, np.empty(0, np.int64))
        if key.queue_id >= len(limits):
            more = np.full(key.queue_id + 1 - len(limits), -1, np.int64)
            limits = self._limits[key.topic] = np.concatenate([limits, more])
        limits[key.queue_id] = _ALL

    def _held_up_to(
        self, queue_ids: npt.NDArray[np.int32], codes: npt.NDArray[np.int32], topics: list[str]
    ) -> Int64s:
        """Return for each record where the last record ends that its queue holds."""
        none = np.empty(0, np.int64)
        limits = [self._limits.get(topic, none) for topic in topics]
        counts = np.array([len(limit) for limit in limits], np.int64)
        starts = np.cumsum(counts) - counts
        flat = np.concatenate([*limits, np.array([-1], np.int64)])
        is_known = (queue_ids >= 0) & (queue_ids < counts[codes])
        held: Int64s = flat[np.where(is_known, starts[codes] + queue_ids, -1)]
        return held


def _limits_by_topic(queues: dict[QueueKey, AnyQueue]) -> dict[str, Int64s]:
    """Return for each topic how far its queues reach, by their numbers."""
    numbers: dict[str, dict[int, int]] = {}
    for key, queue in queues.items():
        if 0 <= key.queue_id < _QUEUES_MAX:
            numbers.setdefault(key.topic, {})[key.queue_id] = queue.max_physical_offset
    limits = {}
    for topic, found in numbers.items():
        limits[topic] = np.full(max(found) + 1, -1, np.int64)
        limits[topic][list(found)] = list(found.values())
    return limits
