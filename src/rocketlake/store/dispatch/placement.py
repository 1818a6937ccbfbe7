"""Which queue units records make: the one rule for all that write, show, compare or stage units.

1. A record has a unit in the queue of its topic and queue id, unless its transaction is prepared or
   rolled back. The unit's number is the record's queue offset.
2. The unit's tags code is the hash of the tag. In the schedule topic it is the time at which a
   delayed message is due.
3. A record that is a batch of messages has one unit. In a batch queue that unit stands for the
   numbers of all of them.
4. A record that names light queues (multi-dispatch) has a plain unit in each of them as well.
5. A record of a topic's life before its deletion has no unit (`deleted_topics`).

Units come as blocks: those of one queue, in the order of the log. Nothing here reads or writes a
file. What a queue makes of a block depends on the queue: its kind, whether it has extension units,
and which units it holds already.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.format.dispatch import Trait, dispatch_columns
from rocketlake.format.queue_unit import UNIT_DTYPE, decode_units
from rocketlake.format.record import RecordColumns, decode_properties
from rocketlake.model import properties as names
from rocketlake.model.flags import INNER_BATCH
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC, is_lmq
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.options.delay_levels import delay_of
from rocketlake.store.queue.light_queues import (
    impossible_names,
    inner_batch,
    light_places,
    may_fan_out,
    number_of,
)
from rocketlake.store.queue.unit_kind import Units
from rocketlake.store.queue.unit_queue import packed

UNIT_SIZE: Final = UNIT_DTYPE.itemsize
_COUNTED_MIN: Final = 256  # rows

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


class PlacementRules(Struct, frozen=True, kw_only=True):
    """The options of a store that decide on units."""

    delays_ms: Sequence[int] = ()
    """The delay of each level; needed for tags codes of the schedule topic only."""
    has_light_queues: bool = True
    """Whether records enter the light queues that they name."""


class Records:
    """Records of the log, in order, and what dispatch needs to know of each."""

    __slots__ = ("codes", "columns", "rows", "tags_codes", "topics", "traits")

    def __init__(self, columns: RecordColumns) -> None:
        facts = dispatch_columns(columns)
        self.columns = columns
        self.codes, self.topics = columns.topics()
        self.tags_codes = facts.tags_codes
        self.traits = facts.traits
        self.rows: Rows = np.flatnonzero(facts.traits & Trait.ENTERS_QUEUE)
        """Those that may have a unit in the queue of their own topic."""

    def key_of(self, row: int) -> QueueKey:
        """Return the queue of a record's own topic."""
        topic = self.topics[int(self.codes[row])]
        return QueueKey(topic, int(self.columns.rows[row]["queue_id"]))

    def properties_of(self, row: int) -> dict[str, str]:
        """Return the properties of a record."""
        found = self.columns.rows[row]
        start = int(found["properties_position"])
        raw = memoryview(self.columns.buffer)[start : start + int(found["properties_size"])]
        return decode_properties(raw)


class Placement:
    """The units that records make."""

    __slots__ = ("batches", "impossible", "light", "records", "rows", "tags_codes")

    def __init__(self, records: Records, rows: Rows) -> None:
        self.records = records
        self.rows = rows
        """The records with a unit in the queue of their own topic, in the order of the log.

        A caller may leave some out.
        """
        self.tags_codes = records.tags_codes
        """The tags code of every record's units."""
        self.batches: dict[int, tuple[int, int]] = {}
        """Rows that are batches -> the first number they stand for, and how many messages."""
        self.light: dict[QueueKey, list[tuple[int, int]]] = {}
        """Light queues -> rows, and the number of each."""
        self.impossible: list[tuple[int, str]] = []
        """Rows, and light queues that they name but no queue can be called."""

    def units(self, rows: Rows) -> Units:
        """Return the plain units of rows."""
        columns = self.records.columns
        units = np.empty(len(rows), UNIT_DTYPE)
        units["physical_offset"] = columns["physical_offset"][rows]
        units["size"] = columns["size"][rows]
        units["tags_code"] = self.tags_codes[rows]
        return units

    def by_queue(self) -> "SortedUnits":
        """Return the units in queues of the records' own topics, sorted by queue."""
        return SortedUnits(self)

    def own_blocks(self) -> "Iterator[UnitBlock]":
        """Yield the units in queues of the records' own topics, queue by queue."""
        if len(self.rows):
            yield from self.by_queue().blocks()

    def light_blocks(self) -> "Iterator[UnitBlock]":
        """Yield the units in light queues, queue by queue."""
        for key, entries in self.light.items():
            rows = np.array([row for row, _ in entries], np.intp)
            numbers = np.array([number for _, number in entries], np.int64)
            yield UnitBlock(key, self, rows, numbers)

    def blocks(self) -> "Iterator[UnitBlock]":
        """Yield the units of all queues, queue by queue."""
        yield from self.own_blocks()
        yield from self.light_blocks()


def place(records: Records, rules: PlacementRules, deleted: DeletedTopics = NO_TOPICS) -> Placement:
    """Return the units that records make."""
    rows = deleted.later_rows(records.columns, records.codes, records.topics, records.rows)
    placement = Placement(records, rows)
    for row in np.flatnonzero(records.traits & Trait.IS_SPECIAL).tolist():
        _place_special(placement, row, rules, deleted)
    return placement


def _place_special(
    placement: Placement, row: int, rules: PlacementRules, deleted: DeletedTopics
) -> None:
    """Add the due time, the batch and the light queues that a record's properties name."""
    records = placement.records
    found = records.columns.rows[row]
    topic = records.topics[int(records.codes[row])]
    properties = records.properties_of(row)
    if topic == SCHEDULE_TOPIC:
        level = number_of(properties.get(names.DELAY), 0)
        if level > 0:
            if placement.tags_codes is records.tags_codes:
                placement.tags_codes = records.tags_codes.copy()
            due = int(found["store_timestamp"]) + delay_of(rules.delays_ms, level)
            placement.tags_codes[row] = due
    if int(found["sys_flag"]) & INNER_BATCH:
        placement.batches[row] = inner_batch(properties, int(found["queue_offset"]))
    enters_queue = bool(records.traits[row] & Trait.ENTERS_QUEUE)
    if rules.has_light_queues and enters_queue and may_fan_out(topic):
        placement.impossible += [(row, name) for name in impossible_names(properties)]
        for name, number in light_places(properties):
            if not deleted.is_earlier(name, int(found["physical_offset"])):
                key = QueueKey(name, 0 if is_lmq(name) else int(found["queue_id"]))
                placement.light.setdefault(key, []).append((row, number))


class UnitBlock:
    """The units of one queue, in the order of the log."""

    __slots__ = ("_packed", "key", "offsets", "placement", "rows")

    def __init__(
        self,
        key: QueueKey,
        placement: Placement,
        rows: Rows,
        offsets: Int64s,
        *,
        packed_units: memoryview | None = None,
    ) -> None:
        self.key = key
        self.placement = placement
        self.rows = rows
        """The records that make the units."""
        self.offsets = offsets
        """The number of each unit in a plain queue."""
        self._packed = packed_units

    def units(self) -> Units:
        """Return the units as a plain queue has them."""
        if self._packed is None:
            return self.placement.units(self.rows)
        return decode_units(self._packed)

    def packed(self) -> memoryview:
        """Return the bytes of the units in the files of a plain queue."""
        return self._packed if self._packed is not None else packed(self.units(), UNIT_DTYPE)

    def column(self, name: str) -> Int64s:
        """Return a column of the records."""
        return self.placement.records.columns[name][self.rows].astype(np.int64)

    def tags_codes(self) -> Int64s:
        """Return the tags code of each unit."""
        return self.placement.tags_codes[self.rows]

    @property
    def has_batches(self) -> bool:
        """Whether the first record is a batch: all records of a batch queue are."""
        return int(self.rows[0]) in self.placement.batches

    def batch_numbers(self) -> tuple[Int64s, Int64s]:
        """Return the first number, and how many messages, of each unit in a batch queue."""
        bases, counts = self.offsets.copy(), np.ones(len(self.rows), np.int64)
        batches = self.placement.batches
        for index, row in enumerate(self.rows.tolist() if batches else ()):
            if row in batches:
                bases[index], counts[index] = batches[row]
        return bases, counts

    def following(self) -> int:
        """Return the highest number behind a unit; batches count as in a batch queue."""
        bases, counts = self.batch_numbers()
        return int((bases + counts).max())


class SortedUnits:
    """Units sorted by queue, those of each queue in the order of the log; there are some."""

    def __init__(self, placement: Placement) -> None:
        records, rows = placement.records, placement.rows
        queues = _queue_numbers(records, rows)
        steps = np.flatnonzero(queues[1:] != queues[:-1])
        if len(steps):
            order = np.argsort(queues, kind="stable")
            rows, queues = rows[order], queues[order]
            steps = np.flatnonzero(queues[1:] != queues[:-1])
        self.placement = placement
        self.rows = rows
        self.offsets: Int64s = records.columns["queue_offset"][rows]
        self.starts: Rows = np.concatenate(([0], steps + 1))
        self.stops: Rows = np.concatenate((steps + 1, [len(rows)]))
        self._jumps = np.diff(self.offsets) != 1
        self._jumps[steps] = False
        self.are_consecutive = not self._jumps.any()
        """Whether the numbers of each queue go up by one."""

    def is_consecutive(self, start: int, stop: int) -> bool:
        """Tell whether the numbers in a range of one queue go up by one."""
        return not self._jumps[start : stop - 1].any()

    def units(self) -> tuple[Units, memoryview]:
        """Return the units as plain queues have them, and their bytes."""
        units = self.placement.units(self.rows)
        return units, packed(units, UNIT_DTYPE)

    def ranges(self) -> Iterator[tuple[QueueKey, int, int, int, int, int]]:
        """Yield queue, start, stop, first queue offset, begin and end in the log."""
        records = self.placement.records
        first, last = self.rows[self.starts], self.rows[self.stops - 1]
        physical = records.columns["physical_offset"]
        ends = physical[last] + records.columns["size"][last]
        for code, queue_id, start, stop, number, begin, end in zip(
            records.codes[first].tolist(),
            records.columns["queue_id"][first].tolist(),
            self.starts.tolist(),
            self.stops.tolist(),
            self.offsets[self.starts].tolist(),
            physical[first].tolist(),
            ends.tolist(),
            strict=True,
        ):
            yield QueueKey(records.topics[code], queue_id), start, stop, number, begin, end

    def block(self, key: QueueKey, start: int, stop: int) -> UnitBlock:
        """Return the units in a range of one queue."""
        return UnitBlock(key, self.placement, self.rows[start:stop], self.offsets[start:stop])

    def blocks(self) -> Iterator[UnitBlock]:
        """Yield the units queue by queue."""
        _, view = self.units()
        for key, start, stop, *_ in self.ranges():
            yield UnitBlock(
                key,
                self.placement,
                self.rows[start:stop],
                self.offsets[start:stop],
                packed_units=view[start * UNIT_SIZE : stop * UNIT_SIZE],
            )


def _queue_numbers(records: Records, rows: Rows) -> npt.NDArray[np.integer]:
    """Return a number for each row that rows of one queue share."""
    codes, queue_ids = records.codes[rows], records.columns["queue_id"][rows]
    if len(rows) >= _COUNTED_MIN:
        width = int(queue_ids.max()) + 1
        if int(queue_ids.min()) >= 0 and width * len(records.topics) < 1 << 16:
            # Why: sixteen bits are sorted by counting.
            narrow: npt.NDArray[np.integer] = (codes * width + queue_ids).astype(np.uint16)
            return narrow
    wide: npt.NDArray[np.integer] = codes.astype(np.int64) << 32 | queue_ids.astype(np.uint32)
    return wide
