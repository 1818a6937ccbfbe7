"""Units that the log gives the queues of a store and that dispatch has not written.

A unit is put where `ConsumeQueue.put` puts it. Nothing is written: the queues are views.
"""

import numpy as np
import numpy.typing as npt

from rocketlake.format.record import RecordColumns
from rocketlake.model import properties as names
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import can_name_queues
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.disk.log import Readers
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.dispatch.placement import PlacementRules, Records, UnitBlock, place
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN, QUEUE_OFFSET_MAX, can_hold

Int64s = npt.NDArray[np.int64]

_MULTI_DISPATCH = names.MULTI_DISPATCH.encode()


class UndispatchedUnits:
    """Adds units to what queues are owed; makes the views of queues that have no directory yet."""

    def __init__(
        self,
        queues: dict[QueueKey, QueueView],
        readers: Readers,
        rules: PlacementRules,
        deleted: DeletedTopics = NO_TOPICS,
    ) -> None:
        self._queues = queues
        self._readers = readers
        self._rules = rules
        self._deleted = deleted
        self._next: dict[QueueKey, int] = {}
        self.gaps: set[QueueKey] = set()
        """Queues that lack messages from before the records that were taken."""
        self._touched: set[QueueKey] = set()

    def take_touched(self) -> frozenset[QueueKey]:
        """Return the queues that got units since the last call."""
        touched, self._touched = frozenset(self._touched), set()
        return touched

    def add(self, columns: RecordColumns, from_offset: int) -> None:
        """Take the records at or behind an offset of the log."""
        wanted = columns["physical_offset"] >= from_offset
        if _MULTI_DISPATCH not in bytes(columns.buffer):
            wanted &= self._are_unheld(columns)
        if wanted.any():
            records = Records(RecordColumns(columns.buffer, columns.rows[wanted]))
            for block in place(records, self._rules, self._deleted).blocks():
                self._add_block(block)

    def _are_unheld(self, columns: RecordColumns) -> npt.NDArray[np.bool_]:
        """Mark the records behind the last one that the queue of their own topic holds."""
        ends = columns["physical_offset"] + columns["size"]
        codes, topics = columns.topics()
        both = codes.astype(np.int64) << 32 | columns["queue_id"].astype(np.uint32)
        found, group = np.unique(both, return_inverse=True)
        limits = np.empty(len(found), np.int64)
        for i, number in enumerate(found.tolist()):
            queue_id = int(np.int32(np.uint32(number & 0xFFFFFFFF)))
            topic = topics[number >> 32]
            queue = self._queues.get(QueueKey(topic, queue_id))
            held_to = queue.max_physical_offset if queue else -1
            # No record crosses the end of the log at a deletion: up to there none is owed.
            limits[i] = max(held_to, self._deleted.end_of(topic))
        marks: npt.NDArray[np.bool_] = ends > limits[group]
        return marks

    def _add_block(self, block: UnitBlock) -> None:
        queue = self._queues.get(block.key)
        is_batch = queue.kind.is_batch if queue is not None else block.has_batches
        units = np.ones((len(block.rows), 5), np.int64)
        units[:, 0] = block.column("physical_offset")
        units[:, 1] = block.column("size")
        units[:, 2] = block.tags_codes()
        if is_batch:
            units[:, 3], units[:, 4] = block.batch_numbers()
        else:
            units[:, 3] = block.offsets
        if not self._add_following(block.key, units):
            for unit in units.tolist():
                self._add_unit(block.key, unit, is_batch=is_batch)

    def _add_following(self, key: QueueKey, units: Int64s) -> bool:
        """Add units that go on where a plain queue ends, number by number; tell whether they do."""
        queue = self._queues.get(key)
        if queue is None or queue.kind.is_batch:
            return False
        numbers = units[:, 3]
        expected = self._next.setdefault(key, queue.next_offset)
        is_behind = int(units[0, 0] + units[0, 1]) > queue.max_physical_offset
        if int(numbers[0]) != expected or not is_behind or int(numbers[-1]) > QUEUE_OFFSET_MAX:
            return False
        if not (np.diff(numbers) == 1).all():
            return False
        queue.owed.add_all(units)
        self._next[key] = int(numbers[-1]) + 1
        self._touched.add(key)
        return True

    def _add_unit(self, key: QueueKey, unit: list[int], *, is_batch: bool) -> None:
        physical_offset, size, tags_code, queue_offset, count = unit
        queue = self._queues.get(key)
        if queue_offset > QUEUE_OFFSET_MAX:
            # As ConsumeQueue.put does: it is appended at the end.
            end = 0 if queue is None else queue.next_offset
            queue_offset = self._next.get(key, end)
            self.gaps.add(key)
        if queue is None:
            if queue_offset < 0 or key.queue_id < 0 or not can_name_queues(key.topic):
                return
            kind = BATCHED if is_batch else PLAIN
            queue = self._queues[key] = QueueView(key, kind, self._readers, [])
            queue.first_index = queue.end_index = queue_offset
            self._next[key] = queue_offset
        if physical_offset + size <= queue.max_physical_offset:
            return
        expected = self._next.setdefault(key, queue.next_offset)
        if queue_offset < expected:
            return  # already there
        if queue_offset > expected and queue.total and not queue.kind.is_batch:
            # As ConsumeQueue.put does: a number that cannot be right is not believed.
            self.gaps.add(key)
            held_to = max(queue.max_physical_offset, queue.owed.physical_end)
            if not can_hold(queue_offset - expected, held_to, physical_offset):
                queue_offset = expected
        queue.owed.add((physical_offset, size, tags_code, queue_offset, count))
        self._touched.add(key)
        self._next[key] = queue_offset + count
