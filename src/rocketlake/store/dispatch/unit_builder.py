"""Records -> units written into their queues, many at a time.

`placement` says which units there are; each queue gets its units in one piece.
"""

import logging
from collections.abc import Callable, Mapping

from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import can_name_queues
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.dispatch.placement import (
    UNIT_SIZE,
    Placement,
    PlacementRules,
    Records,
    SortedUnits,
    place,
)
from rocketlake.store.queue.batch import BatchConsumeQueue
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.queue_set import AnyQueue, ConsumeQueueSet

log = logging.getLogger(__name__)

_LOGGED_MAX = 20  # names that are logged; a log may hold any number of them

Ends = dict[tuple[str, int], int]
"""Topic and queue id -> the queue offset behind the last message."""
Bitmaps = Mapping[int, bytes]
"""Row -> bits of the filters that may want the record."""


class UnitBuilder:
    """Writes the units of dispatched records. Owned by the dispatcher."""

    def __init__(
        self,
        queues: ConsumeQueueSet,
        is_batch_queue: Callable[[str], bool],
        rules: PlacementRules,
        deleted: Callable[[], DeletedTopics] = lambda: NO_TOPICS,
    ) -> None:
        self._queues = queues
        self._is_batch_queue = is_batch_queue  # of a topic
        self._rules = rules
        self._deleted = deleted
        self._logged: set[str] = set()

    def place(self, records: Records) -> Placement:
        """Return the units of records, and log names of light queues that cannot be."""
        placement = place(records, self._rules, self._deleted())
        for row, name in placement.impossible:
            self._log_once(name, int(records.columns.rows[row]["physical_offset"]))
        return placement

    def put(self, placement: Placement, bitmaps: Bitmaps) -> Ends:
        """Write units; return where their queues end.

        Raises:
            RocketLakeError: a queue cannot be written; those before it may have been.
        """
        ends: Ends = {}
        if len(placement.rows) and not self._put_one(placement, ends):
            self._put_sorted(placement.by_queue(), bitmaps, ends)
        for block in placement.light_blocks():
            queue = self._queues.find(block.key) or self._queues.get_or_create(block.key)
            assert isinstance(queue, ConsumeQueue), f"light queue {block.key} is a batch queue"
            queue.put(block.units(), block.offsets)
            ends[block.key.topic, block.key.queue_id] = queue.max_offset
        return ends

    def _put_one(self, placement: Placement, ends: Ends) -> bool:
        """Write the unit of a single record to a plain queue that exists; tell whether it did.

        Why: where each message waits for the one before, every round has one record, and arrays
        of one element cost five times as much as plain integers.
        """
        if len(placement.rows) != 1:
            return False
        row = int(placement.rows[0])
        key = placement.records.key_of(row)
        queue = self._queues.find(key)
        if not isinstance(queue, ConsumeQueue) or queue.ext is not None:
            return False
        found = placement.records.columns.rows[row]
        start, size = int(found["physical_offset"]), int(found["size"])
        unit = QueueUnit(start, size, int(placement.tags_codes[row])).encode()
        number = int(found["queue_offset"])
        queue.append_packed(memoryview(unit), number, 1, start, start + size)
        ends[key.topic, key.queue_id] = queue.max_offset
        return True

    def _put_sorted(self, found: SortedUnits, bitmaps: Bitmaps, ends: Ends) -> None:
        units, view = found.units()
        for key, start, stop, first, physical, end in found.ranges():
            queue = self._find(key)
            if queue is None:
                self._log_once(key.topic, physical)
                continue
            part = slice(start, stop)
            if isinstance(queue, BatchConsumeQueue):
                block = found.block(key, start, stop)
                bases, counts = block.batch_numbers()
                queue.put(units[part], bases, block.column("store_timestamp"), counts)
            elif queue.ext is not None:
                block = found.block(key, start, stop)
                bits = [bitmaps.get(row, b"") for row in block.rows.tolist()]
                times = block.column("store_timestamp")
                queue.put_extended(units[part], block.offsets, times, bits)
            elif found.are_consecutive or found.is_consecutive(start, stop):
                own = view[start * UNIT_SIZE : stop * UNIT_SIZE]
                queue.append_packed(own, first, stop - start, physical, end)
            else:
                queue.put(units[part], found.offsets[part])
            ends[key.topic, key.queue_id] = queue.max_offset

    def _find(self, key: QueueKey) -> AnyQueue | None:
        """Return a queue; None for a topic that cannot have queues.

        Why: no checksum covers the topic. A write that was cut short may leave zeros there, in a
        record that is good otherwise, and the store has to open.
        """
        queue = self._queues.find(key)
        if queue is None:
            if not can_name_queues(key.topic):
                return None
            is_batch = self._is_batch_queue(key.topic)
            queue = self._queues.get_or_create(key, is_batch=is_batch)
        return queue

    def _log_once(self, name: str, physical_offset: int) -> None:
        """Log a name that no queue can have, once."""
        if name not in self._logged and len(self._logged) < _LOGGED_MAX:
            self._logged.add(name)
            log.warning("no queue for a record offset=%d name=%r", physical_offset, name[:300])
