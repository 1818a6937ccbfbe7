"""Records -> units of their queues, many at a time.

Records are sorted by queue, keeping their order, and each queue gets its units in one piece. What a
few records have beside that (a due time, light queues, a batch inside) is looked at one by one.

Records of a topic's life before it was deleted get no units (`deleted_topics`).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocketlake.format.dispatch import Trait, dispatch_columns
from rocketlake.format.queue_unit import UNIT_DTYPE, QueueUnit
from rocketlake.format.record import RecordColumns, decode_properties
from rocketlake.model import properties as names
from rocketlake.model.flags import INNER_BATCH
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC, can_name_queues, is_lmq
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.options.delay_levels import delay_of
from rocketlake.store.ports import TopicCatalog
from rocketlake.store.queue.batch import BatchConsumeQueue
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.light_queues import (
    impossible_names,
    inner_batch,
    light_places,
    may_fan_out,
    number_of,
)
from rocketlake.store.queue.queue_set import AnyQueue
from rocketlake.store.queue.unit_queue import packed

log = logging.getLogger(__name__)

_UNIT_SIZE = UNIT_DTYPE.itemsize
_TOLD_MAX = 20  # names that are logged; a log may hold any number of them

Int64s = npt.NDArray[np.int64]
Ends = dict[tuple[str, int], int]
"""Topic and queue id -> the queue offset behind the last message."""


class QueueFinder(Protocol):
    """Has the queues that units go to: a ConsumeQueueSet, or somebody who keeps units for one."""

    def find(self, key: QueueKey) -> AnyQueue | None:
        """Return a queue; None if there is none."""
        ...

    def get_or_create(self, key: QueueKey, *, is_batch: bool = False) -> AnyQueue:
        """Return a queue, a new one if there is none."""
        ...


class Round:
    """Records that are dispatched together, and what becomes of them."""

    def __init__(self, columns: RecordColumns) -> None:
        facts = dispatch_columns(columns)
        self.columns = columns
        self.tags_codes = facts.tags_codes
        self.traits = facts.traits
        self.codes, self.topics = columns.topics()
        self.bitmaps: dict[int, bytes] = {}  # row -> bits of the filters that may want the record
        self.rows = np.flatnonzero(facts.traits & Trait.ENTERS_QUEUE)
        self.special_rows: list[int] = np.flatnonzero(facts.traits & Trait.IS_SPECIAL).tolist()
        self.batches: dict[int, tuple[int, int]] = {}  # row -> first queue offset, messages
        self.light: dict[QueueKey, list[tuple[int, int]]] = {}  # rows and their queue offsets
        self.ends: Ends = {}

    def topic_of(self, row: int) -> str:
        """Return the topic of a record."""
        return self.topics[int(self.codes[row])]

    def properties_of(self, row: int) -> dict[str, str]:
        """Return the properties of a record."""
        found = self.columns.rows[row]
        start = int(found["properties_position"])
        raw = memoryview(self.columns.buffer)[start : start + int(found["properties_size"])]
        return decode_properties(raw)

    def units(self, rows: Int64s) -> npt.NDArray[np.void]:
        """Return the plain units of rows."""
        units = np.empty(len(rows), UNIT_DTYPE)
        units["physical_offset"] = self.columns["physical_offset"][rows]
        units["size"] = self.columns["size"][rows]
        units["tags_code"] = self.tags_codes[rows]
        return units


class UnitBuilder:
    """Writes the units of dispatched records. Owned by the dispatcher."""

    def __init__(
        self,
        queues: QueueFinder,
        catalog: TopicCatalog,
        *,
        delay_levels_ms: Sequence[int],
        has_light_queues: bool,
        deleted: Callable[[], DeletedTopics] = lambda: NO_TOPICS,
    ) -> None:
        self._queues = queues
        self._deleted = deleted
        self._catalog = catalog
        self._delays_ms = delay_levels_ms
        self._has_light_queues = has_light_queues
        self._told: set[str] = set()

    def put(self, records: Round) -> None:
        """Write the units of records.

        Raises:
            RocketLakeError: a queue cannot be written; those before it may have been.
        """
        self.look_at(records)
        is_put = len(records.rows) == 1 and self._put_one(records, int(records.rows[0]))
        if len(records.rows) and not is_put:
            self._put_sorted(records, _Sorted(records.columns, records.codes, records.rows))
        for key, entries in records.light.items():
            rows = np.array([row for row, _ in entries])
            queue = self._queues.find(key) or self._queues.get_or_create(key)
            assert isinstance(queue, ConsumeQueue), f"light queue {key} is a batch queue"
            queue.put(records.units(rows), np.array([at for _, at in entries]))
            records.ends[key.topic, key.queue_id] = queue.max_offset

    def look_at(self, records: Round) -> None:
        """Leave out what is of deleted topics, and note what a few records have beside a unit."""
        deleted = self._deleted()
        records.rows = deleted.later_rows(
            records.columns, records.codes, records.topics, records.rows
        )
        for row in records.special_rows:
            self._look_at(records, row, deleted)

    def _put_one(self, records: Round, row: int) -> bool:
        """Write the unit of a single record to a plain queue that exists; tell whether it did.

        Why: where each message waits for the one before, every round has one record, and arrays
        of one element cost five times as much as plain integers.
        """
        found = records.columns.rows[row]
        key = QueueKey(records.topic_of(row), int(found["queue_id"]))
        queue = self._queues.find(key)
        if not isinstance(queue, ConsumeQueue) or queue.ext is not None:
            return False
        start, size = int(found["physical_offset"]), int(found["size"])
        unit = QueueUnit(start, size, int(records.tags_codes[row])).encode()
        number = int(found["queue_offset"])
        queue.append_packed(memoryview(unit), number, 1, start, start + size)
        records.ends[key.topic, key.queue_id] = queue.max_offset
        return True

    def _put_sorted(self, records: Round, by_queue: "_Sorted") -> None:
        units = records.units(by_queue.rows)
        view = packed(units, UNIT_DTYPE)
        for code, queue_id, start, stop, first, physical, end in by_queue.ranges():
            topic = records.topics[code]
            queue = self._find(topic, queue_id)
            if queue is None:
                self._tell(topic, physical)
                continue
            part = slice(start, stop)
            if isinstance(queue, BatchConsumeQueue):
                self._put_batch(queue, records, by_queue.rows[part], units[part])
            elif queue.ext is not None:
                rows = by_queue.rows[part]
                queue.put_extended(
                    units[part],
                    by_queue.offsets[part],
                    records.columns["store_timestamp"][rows],
                    [records.bitmaps.get(row, b"") for row in rows.tolist()],
                )
            elif by_queue.are_consecutive:
                own = view[start * _UNIT_SIZE : stop * _UNIT_SIZE]
                queue.append_packed(own, first, stop - start, physical, end)
            else:
                queue.put(units[part], by_queue.offsets[part])
            records.ends[topic, queue_id] = queue.max_offset

    def _put_batch(
        self,
        queue: BatchConsumeQueue,
        records: Round,
        rows: Int64s,
        units: npt.NDArray[np.void],
    ) -> None:
        bases = records.columns["queue_offset"][rows].copy()
        counts = np.ones(len(rows), np.int64)
        for index, row in enumerate(rows.tolist()):
            if row in records.batches:
                bases[index], counts[index] = records.batches[row]
        queue.put(units, bases, records.columns["store_timestamp"][rows], counts)

    def _find(self, topic: str, queue_id: int) -> ConsumeQueue | BatchConsumeQueue | None:
        """Return a queue; None for a topic that nobody can have named.

        Why: no checksum covers the topic. A write that was cut short may leave zeros there, in a
        record that is good otherwise, and the store has to open.
        """
        key = QueueKey(topic, queue_id)
        queue = self._queues.find(key)
        if queue is None:
            if not can_name_queues(topic):
                return None
            is_batch = self._catalog.is_batch_queue(topic)
            queue = self._queues.get_or_create(key, is_batch=is_batch)
        return queue

    def _tell(self, name: str, physical_offset: int) -> None:
        """Log a name that no queue can have, once."""
        if name not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(name)
            log.warning("no queue for a record offset=%d name=%r", physical_offset, name[:300])

    def _look_at(self, records: Round, row: int, deleted: DeletedTopics) -> None:
        """Take note of a due time, a batch inside the record, and light queues."""
        found = records.columns.rows[row]
        topic = records.topic_of(row)
        properties = records.properties_of(row)
        if topic == SCHEDULE_TOPIC:
            level = number_of(properties.get(names.DELAY), 0)
            if level > 0:
                delay_ms = delay_of(self._delays_ms, level)
                records.tags_codes[row] = int(found["store_timestamp"]) + delay_ms
        if int(found["sys_flag"]) & INNER_BATCH:
            records.batches[row] = inner_batch(properties, int(found["queue_offset"]))
        enters_queue = bool(records.traits[row] & Trait.ENTERS_QUEUE)
        if self._has_light_queues and enters_queue and may_fan_out(topic):
            for name in impossible_names(properties):
                self._tell(name, int(found["physical_offset"]))
            for name, offset in light_places(properties):
                if deleted.is_earlier(name, int(found["physical_offset"])):
                    continue
                queue_id = 0 if is_lmq(name) else int(found["queue_id"])
                records.light.setdefault(QueueKey(name, queue_id), []).append((row, offset))


class _Sorted:
    """Rows sorted by queue, each queue's in the order of the log."""

    def __init__(self, columns: RecordColumns, codes: npt.NDArray[np.int32], rows: Int64s) -> None:
        self._columns = columns
        both = codes[rows].astype(np.int64) << 32 | columns["queue_id"][rows].astype(np.uint32)
        steps = np.flatnonzero(np.diff(both))
        if len(steps):
            order = np.argsort(both, kind="stable")
            rows, both = rows[order], both[order]
            steps = np.flatnonzero(np.diff(both))
        self.rows = rows
        self.offsets: Int64s = columns["queue_offset"][rows]
        self._starts = np.concatenate(([0], steps + 1))
        self._stops = np.concatenate((steps + 1, [len(rows)]))
        self._both = both
        # True if within every queue each queue offset is the one before and one more.
        jumps = np.flatnonzero(np.diff(self.offsets) != 1)
        self.are_consecutive = len(jumps) == 0 or bool(np.isin(jumps, steps).all())

    def ranges(self) -> Iterator[tuple[int, int, int, int, int, int, int]]:
        """Yield topic code, queue id, start, stop, first queue offset, begin and end in the log."""
        numbers = self._both[self._starts]
        last = self.rows[self._stops - 1]
        first = self.rows[self._starts]
        physical = self._columns["physical_offset"]
        yield from zip(
            (numbers >> 32).tolist(),
            numbers.astype(np.uint32).astype(np.int32).tolist(),
            self._starts.tolist(),
            self._stops.tolist(),
            self.offsets[self._starts].tolist(),
            physical[first].tolist(),
            (physical[last] + self._columns["size"][last]).tolist(),
            strict=True,
        )
