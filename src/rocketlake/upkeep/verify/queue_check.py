"""Records against their queues: each unit that `placement` gives a record is in its place.

Matches are only counted, as runs of units that records have confirmed. Mismatches are reported, or
kept for the look at each queue's remaining units (`unconfirmed_units`).
"""

from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import layout
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.format.record import RecordColumns
from rocketlake.model.topics import SCHEDULE_TOPIC
from rocketlake.store.disk.log import Readers
from rocketlake.store.dispatch.placement import (
    Placement,
    PlacementRules,
    Records,
    UnitBlock,
    place,
)
from rocketlake.upkeep.verify.batch_queue_check import BatchQueueCheck
from rocketlake.upkeep.verify.ext_units import ExtReader
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.store_layout import Layout, QueuePlace, Units
from rocketlake.upkeep.verify.unit_reader import UnitReader

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

LackKey = TypeVar("LackKey", bound=Hashable)

SUSPECTS_MAX: Final = 50_000
_PLACES_MAX: Final = 16


class Lack(Struct):
    """Messages of one queue that the log has and the queue does not."""

    count: int
    first_physical: int
    last_physical: int
    first_offset: int
    last_offset: int
    places: list[int] = field(default_factory=list)
    """The first few of them."""

    def add(self, other: "Lack") -> None:
        """Add more messages."""
        self.count += other.count
        self.first_physical = min(self.first_physical, other.first_physical)
        self.last_physical = max(self.last_physical, other.last_physical)
        self.first_offset = min(self.first_offset, other.first_offset)
        self.last_offset = max(self.last_offset, other.last_offset)
        self.places = (self.places + other.places)[:_PLACES_MAX]

    def is_reported(self, reported: set[int]) -> bool:
        """Whether each of them was reported already."""
        return self.count == len(self.places) and reported.issuperset(self.places)


class Suspect(Struct, frozen=True):
    """A record whose place in its queue another record has taken."""

    queue: int
    queue_offset: int
    physical_offset: int
    unit_physical: int


class UnitReport(Struct):
    """What the records of a part of the log say about the queues."""

    runs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By queue: the units that records confirmed, as ranges in the order of the log."""
    behind: dict[int, Lack] = field(default_factory=dict)
    below: dict[int, Lack] = field(default_factory=dict)
    unknown: dict[tuple[str, int], Lack] = field(default_factory=dict)
    earlier: dict[int, int] = field(default_factory=dict)
    """By queue: records of an earlier life of their topic, which was deleted and made again."""
    deleted: dict[str, int] = field(default_factory=dict)
    """By topic: records from before its deletion, by the table of deleted topics."""
    suspects: list[Suspect] = field(default_factory=list)
    suspects_left_out: int = 0
    faults: list[Fault] = field(default_factory=list)
    confirmed: int = 0
    end_confirmed: int = -1
    """The end of the last record that a queue holds."""


class Group(Struct, frozen=True):
    """Records of one queue, in the order of the log."""

    queue: QueuePlace
    offsets: Int64s
    places: Int64s
    sizes: Int64s
    codes: Int64s
    times: Int64s

    @classmethod
    def of(cls, queue: QueuePlace, block: UnitBlock, offsets: Int64s | None = None) -> "Group":
        """Take the columns of the records of a block; `offsets` are those of a batch queue."""
        return cls(
            queue,
            block.offsets.astype(np.int64) if offsets is None else offsets,
            block.column("physical_offset"),
            block.column("size"),
            block.tags_codes(),
            block.column("store_timestamp"),
        )

    def lack(self, chosen: Rows) -> Lack:
        """Return some of the records as messages that the queue lacks."""
        return _lack(self.offsets[chosen], self.places[chosen])


class UnitCheck:
    """Takes the records of a part of the log, chunk by chunk."""

    def __init__(self, store: Layout, readers: Readers, where: OffsetFile) -> None:
        """`where` is the file of the log that the records come from."""
        self._by_key = {queue.key: queue for queue in store.queues}
        self._rules = PlacementRules(delays_ms=store.delays_ms)
        self._deleted = store.deleted
        self._units = UnitReader(readers)
        self._ext = ExtReader(readers)
        self._batches = BatchQueueCheck(readers)
        self._report = UnitReport()
        self._where = where

    def finish(self) -> UnitReport:
        """Return what was found."""
        return self._report

    def take(self, columns: RecordColumns) -> None:
        """Compare some records with the units of their queues."""
        records = Records(columns)
        placement = place(records, self._rules, self._deleted)
        self._count_deleted(records, placement)
        if len(placement.rows):
            self._take_rows(placement)
        for block in placement.light_blocks():
            queue = self._by_key.get(block.key)
            # Without one, light queues are switched off, or the queue is gone with its topic.
            if queue is not None and not queue.is_batch:
                self._compare(Group.of(queue, block))

    def _count_deleted(self, records: Records, placement: Placement) -> None:
        """Count the records that a deletion of their topic took."""
        if len(placement.rows) < len(records.rows):
            gone = np.setdiff1d(records.rows, placement.rows, assume_unique=True)
            for code, count in enumerate(np.bincount(records.codes[gone]).tolist()):
                if count:
                    topic, counts = records.topics[code], self._report.deleted
                    counts[topic] = counts.get(topic, 0) + count

    def _take_rows(self, placement: Placement) -> None:
        """Compare all records at once; only differences are judged queue by queue."""
        found, columns = placement.by_queue(), placement.records.columns
        rows, offsets = found.rows, found.offsets.astype(np.int64)
        places = columns["physical_offset"][rows].astype(np.int64)
        sizes = columns["size"][rows].astype(np.int64)
        units = np.zeros(len(rows), UNIT_DTYPE)
        compared: list[tuple[QueuePlace, slice, bool]] = []
        for key, start, stop, first, *_ in found.ranges():
            part, queue = slice(start, stop), self._by_key.get(key)
            if queue is None:
                lack = _lack(offsets[part], places[part])
                add_lack(self._report.unknown, (key.topic, key.queue_id), lack)
                continue
            if queue.is_batch:
                self._take_batches(queue, found.block(key, start, stop))
                continue
            is_straight = found.are_consecutive or found.is_consecutive(start, stop)
            if is_straight:
                self._units.fill(queue, units[part], first)
            else:
                self._units.fill_runs(queue, units[part], offsets[part])
            compared.append((queue, part, is_straight))
        is_same = units["physical_offset"] == places
        is_good = is_same & (units["size"] == sizes)
        is_good &= units["tags_code"] == placement.tags_codes[rows]
        are_all_good = bool(is_good.all())
        for queue, part, is_straight in compared:
            if is_straight and (are_all_good or is_good[part].all()):
                last = part.stop - 1
                self._confirm_all(queue, int(offsets[part.start]), part.stop - part.start)
                self._reach(int(places[last]) + int(sizes[last]))
            else:
                block = found.block(queue.key, part.start, part.stop)
                self._judge(Group.of(queue, block), units[part], is_same[part], is_good[part])

    def _confirm_all(self, queue: QueuePlace, first: int, count: int) -> None:
        self._confirm(queue.number, first, first + count)
        self._report.confirmed += count

    def _reach(self, end: int) -> None:
        self._report.end_confirmed = max(self._report.end_confirmed, end)

    # --- plain queues --------------------------------------------------------------------------

    def _compare(self, group: Group) -> None:
        """Compare the records of one queue, whatever their order."""
        units = np.zeros(len(group.offsets), UNIT_DTYPE)
        self._units.fill_runs(group.queue, units, group.offsets)
        is_same = units["physical_offset"] == group.places
        is_good = is_same & (units["size"] == group.sizes) & (units["tags_code"] == group.codes)
        self._judge(group, units, is_same, is_good)

    def _judge(self, group: Group, units: Units, is_same: Bools, is_good: Bools) -> None:
        """Sort records of a queue into confirmed units, wrong ones, and those without."""
        queue, report = group.queue, self._report
        inside = (group.offsets >= queue.first_index) & (group.offsets < queue.end_index)
        # A unit of zeros is none, even for the record at 0.
        is_same = is_same & inside & (units["size"] != 0)
        is_good = is_good & inside
        odd = np.flatnonzero(is_same & ~is_good)
        if len(odd) and queue.ext_files:
            held = self._ext.confirm(queue, units[odd], group.codes[odd], group.times[odd])
            held &= units["size"][odd] == group.sizes[odd]
            odd = odd[~held]
        report.faults += [self._odd(group, units, index) for index in odd.tolist()]
        for first, stop in _ranges(group.offsets[is_same]):
            self._confirm(queue.number, first, stop)
        confirmed = np.flatnonzero(is_same)
        if len(confirmed):
            report.confirmed += len(confirmed)
            self._reach(int(group.places[confirmed[-1]] + group.sizes[confirmed[-1]]))
        self._without(group, units, inside, is_same)

    def _without(self, group: Group, units: Units, inside: Bools, is_same: Bools) -> None:
        queue, report = group.queue, self._report
        # Why: a topic that is deleted and made again counts from 0 anew. Its old records are
        # before the one that its first unit points to, with numbers that the new ones take again.
        is_earlier = (group.places < queue.first_physical) & (group.offsets >= queue.first_real)
        is_earlier &= ~is_same
        if is_earlier.any():
            count = report.earlier.get(queue.number, 0) + int(np.count_nonzero(is_earlier))
            report.earlier[queue.number] = count
        is_behind = (group.offsets >= queue.end_index) & ~is_earlier
        is_below = (group.offsets < queue.first_real) & ~is_behind & ~is_same
        for mask, table in ((is_behind, report.behind), (is_below, report.below)):
            chosen = np.flatnonzero(mask)
            if len(chosen):
                add_lack(table, queue.number, group.lack(chosen))
        rest = np.flatnonzero(inside & ~is_same & ~is_below & ~is_earlier)
        for index in rest.tolist():
            if len(report.suspects) >= SUSPECTS_MAX:
                report.suspects_left_out += 1
                continue
            report.suspects.append(
                Suspect(
                    queue.number,
                    int(group.offsets[index]),
                    int(group.places[index]),
                    int(units["physical_offset"][index]),
                )
            )

    def _odd(self, group: Group, units: Units, index: int) -> Fault:
        """Describe what is wrong with a unit that points to its record."""
        queue, number = group.queue, int(group.offsets[index])
        size, code = int(units["size"][index]), int(units["tags_code"][index])
        record = int(group.places[index])
        if size != int(group.sizes[index]):
            what = f"says {size} bytes, its record at {record} has {int(group.sizes[index])}"
        elif code <= layout.EXT_ADDRESS_MAX:
            what = f"names an extension that is not of its record at {record}"
        elif queue.key.topic == SCHEDULE_TOPIC:
            due = int(group.codes[index])
            what = (
                f"says it is due at {code}, its record at {record} is due at {due} (if the store "
                "has a messageDelayLevel of its own, give it with --options)"
            )
        else:
            what = f"has the tags code {code}, its record at {record} {int(group.codes[index])}"
        path, position = queue.place_of(number)
        reason = f"queue {queue.name}: unit {number} {what}"
        return Fault(path, position, reason, kind=Kind.UNIT, about=queue.name)

    def _confirm(self, number: int, first: int, stop: int) -> None:
        runs = self._report.runs.setdefault(number, [])
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], stop)
        else:
            runs.append((first, stop))

    # --- batch queues --------------------------------------------------------------------------

    def _take_batches(self, queue: QueuePlace, block: UnitBlock) -> None:
        report = self._report
        good = block.batch_numbers()[0] >= 0  # the queue passes over the others
        if not good.any():
            return
        block = UnitBlock(block.key, block.placement, block.rows[good], block.offsets[good])
        bases, counts = block.batch_numbers()
        group = Group.of(queue, block, bases)
        for index in np.flatnonzero(block.offsets != bases).tolist():
            report.faults.append(self._odd_base(group, index, int(block.offsets[index])))
        found = self._batches.compare(
            queue,
            group.places,
            {
                "size": group.sizes,
                "tags_code": group.codes,
                "store_timestamp": group.times,
                "base_queue_offset": group.offsets,
                "batch_size": counts,
            },
        )
        report.faults += found.faults
        for first, stop in found.runs:
            self._confirm_all(queue, first, stop - first)
        self._reach(found.end)
        lacking = np.flatnonzero(found.lacking)
        if len(lacking):
            is_behind = int(group.places[lacking[0]]) >= queue.max_physical_offset
            table = report.behind if is_behind else report.below
            add_lack(table, queue.number, group.lack(lacking))

    def _odd_base(self, group: Group, index: int, own: int) -> Fault:
        base = int(group.offsets[index])
        reason = f"the record says that it is message {own}, but its batch begins at {base}"
        position = int(group.places[index]) - self._where.base_offset
        return Fault(str(self._where.path), position, reason, kind=Kind.RECORD, about="log")


def add_lack(table: dict[LackKey, Lack], key: LackKey, lack: Lack) -> None:
    """Count messages that a queue lacks."""
    if key in table:
        table[key].add(lack)
    else:
        table[key] = lack


def _lack(offsets: Int64s, places: Int64s) -> Lack:
    return Lack(
        len(offsets),
        int(places.min()),
        int(places.max()),
        int(offsets.min()),
        int(offsets.max()),
        places[:_PLACES_MAX].tolist(),
    )


def _ranges(numbers: Int64s) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive numbers as ranges."""
    if not len(numbers):
        return
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    cuts = [0, *breaks.tolist(), len(numbers)]
    for start, stop in pairwise(cuts):
        yield int(numbers[start]), int(numbers[stop - 1]) + 1
