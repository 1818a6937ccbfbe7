"""Records against their queues: each record's unit is where its queue offset says it is.

What fits is only counted, as runs of units that records have confirmed. What does not is told, or
kept for the look at each queue's remaining units (`leftovers`).
"""

from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import layout
from rocketlake.format.dispatch import DispatchColumns, Trait, dispatch_columns
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.format.record import RecordColumns, decode_properties
from rocketlake.model import properties as names
from rocketlake.model.flags import INNER_BATCH
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import SCHEDULE_TOPIC, is_lmq
from rocketlake.store.disk.log import Readers
from rocketlake.store.options.delay_levels import delay_of
from rocketlake.store.queue.light_queues import light_places, may_fan_out, number_of
from rocketlake.upkeep.verify.batch_queue_check import BatchSeats
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
        """Take more of them."""
        self.count += other.count
        self.first_physical = min(self.first_physical, other.first_physical)
        self.last_physical = max(self.last_physical, other.last_physical)
        self.first_offset = min(self.first_offset, other.first_offset)
        self.last_offset = max(self.last_offset, other.last_offset)
        self.places = (self.places + other.places)[:_PLACES_MAX]

    def is_told(self, told: set[int]) -> bool:
        """Whether each of them was spoken of already."""
        return self.count == len(self.places) and told.issuperset(self.places)


class Suspect(Struct, frozen=True):
    """A record whose place in its queue is another's."""

    queue: int
    queue_offset: int
    physical_offset: int
    unit_physical: int


class SeatReport(Struct):
    """What the records of a part of the log say about the queues."""

    runs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By queue: the units that records confirmed, as ranges in the order of the log."""
    behind: dict[int, Lack] = field(default_factory=dict)
    below: dict[int, Lack] = field(default_factory=dict)
    unknown: dict[tuple[str, int], Lack] = field(default_factory=dict)
    earlier: dict[int, int] = field(default_factory=dict)
    """By queue: records of an earlier life of their topic, which was deleted and made again."""
    deleted: dict[str, int] = field(default_factory=dict)
    """By topic: records of before its deletion, by the table of deleted topics."""
    suspects: list[Suspect] = field(default_factory=list)
    suspects_left_out: int = 0
    faults: list[Fault] = field(default_factory=list)
    confirmed: int = 0
    end_confirmed: int = -1
    """The end of the last record that a queue holds."""


class Seen(Struct, frozen=True):
    """Records of a part of the log, and what dispatch would make of them."""

    columns: RecordColumns
    facts: DispatchColumns
    topic_codes: npt.NDArray[np.int32]
    topics: list[str]

    @classmethod
    def of(cls, columns: RecordColumns) -> "Seen":
        """Look at records."""
        return cls(columns, dispatch_columns(columns), *columns.topics())

    def key_of(self, row: int) -> QueueKey:
        """Return the queue of a record."""
        topic = self.topics[int(self.topic_codes[row])]
        return QueueKey(topic, int(self.columns["queue_id"][row]))


class Group(Struct, frozen=True):
    """Records of one queue, in the order of the log."""

    queue: QueuePlace
    offsets: Int64s
    places: Int64s
    sizes: Int64s
    codes: Int64s
    times: Int64s

    @classmethod
    def of(cls, queue: QueuePlace, seen: Seen, rows: Rows, offsets: Int64s) -> "Group":
        """Take the columns of some records."""
        columns = seen.columns
        return cls(
            queue,
            offsets,
            columns["physical_offset"][rows].astype(np.int64),
            columns["size"][rows].astype(np.int64),
            seen.facts.tags_codes[rows],
            columns["store_timestamp"][rows].astype(np.int64),
        )

    def lack(self, chosen: Rows) -> Lack:
        """Sum some of the records up as messages that the queue lacks."""
        return _lack(self.offsets[chosen], self.places[chosen])


class SeatCheck:
    """Takes the records of a part of the log, chunk by chunk."""

    def __init__(self, store: Layout, readers: Readers, where: OffsetFile) -> None:
        """`where` is the file of the log that the records come from."""
        self._by_key = {queue.key: queue for queue in store.queues}
        self._delays_ms = store.delays_ms
        self._deleted = store.deleted
        self._units = UnitReader(readers)
        self._ext = ExtReader(readers)
        self._batches = BatchSeats(readers)
        self._report = SeatReport()
        self._where = where

    def finish(self) -> SeatReport:
        """Return what was found."""
        return self._report

    def take(self, columns: RecordColumns) -> None:
        """Compare some records with the units of their queues."""
        seen = Seen.of(columns)
        specials = _Specials(seen, self._delays_ms)
        rows = self._without_deleted(seen, np.flatnonzero(seen.facts.traits & Trait.ENTERS_QUEUE))
        if len(rows):
            self._take_rows(seen, rows, specials)
        places = columns["physical_offset"]
        for key, found in specials.light.items():
            queue = self._by_key.get(key)
            entries = [e for e in found if not self._deleted.is_earlier(key.topic, places[e[0]])]
            if queue is None or queue.is_batch or not entries:
                continue  # light queues are switched off, or the queue is gone with its topic
            chosen = np.array([row for row, _ in entries])
            offsets = np.array([offset for _, offset in entries], np.int64)
            self._compare(Group.of(queue, seen, chosen, offsets))

    def _without_deleted(self, seen: Seen, rows: Rows) -> Rows:
        """Return rows without records that a deletion of their topic took; those are counted."""
        left = self._deleted.later_rows(seen.columns, seen.topic_codes, seen.topics, rows)
        if len(left) < len(rows):
            gone = np.setdiff1d(rows, left, assume_unique=True)
            for code, count in enumerate(np.bincount(seen.topic_codes[gone]).tolist()):
                if count:
                    topic, counts = seen.topics[code], self._report.deleted
                    counts[topic] = counts.get(topic, 0) + count
        return left

    def _take_rows(self, seen: Seen, rows: Rows, specials: "_Specials") -> None:
        """Compare all records at once; only what differs is looked at queue by queue."""
        columns = seen.columns
        queue_ids = columns["queue_id"]
        rows, starts = _sorted_by_queue(rows, seen.topic_codes[rows], queue_ids[rows])
        offsets = columns["queue_offset"][rows].astype(np.int64)
        places = columns["physical_offset"][rows].astype(np.int64)
        sizes = columns["size"][rows].astype(np.int64)
        units = np.zeros(len(rows), UNIT_DTYPE)
        parts = [slice(*pair) for pair in pairwise([*starts, len(rows)])]
        is_straight = _are_straight(offsets, starts)
        queues: list[QueuePlace | None] = []
        for part, straight in zip(parts, is_straight, strict=True):
            key = seen.key_of(int(rows[part.start]))
            queue = self._by_key.get(key)
            if queue is None:
                lack = _lack(offsets[part], places[part])
                add_lack(self._report.unknown, (key.topic, key.queue_id), lack)
            elif queue.is_batch:
                self._take_batches(queue, seen, rows[part], specials)
                queue = None
            elif straight:
                self._units.fill(queue, units[part], int(offsets[part.start]))
            else:
                self._units.fill_runs(queue, units[part], offsets[part])
            queues.append(queue)
        is_same = units["physical_offset"] == places
        is_good = is_same & (units["size"] == sizes)
        is_good &= units["tags_code"] == seen.facts.tags_codes[rows]
        are_good = is_straight & np.logical_and.reduceat(is_good, starts)
        for part, queue, good in zip(parts, queues, are_good, strict=True):
            if queue is None:
                continue
            if good:
                last = part.stop - 1
                self._confirm_all(queue, int(offsets[part.start]), part.stop - part.start)
                self._reach(int(places[last]) + int(sizes[last]))
            else:
                group = Group.of(queue, seen, rows[part], offsets[part])
                self._judge(group, units[part], is_same[part], is_good[part])

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
        seated = np.flatnonzero(is_same)
        if len(seated):
            report.confirmed += len(seated)
            self._reach(int(group.places[seated[-1]] + group.sizes[seated[-1]]))
        self._without(group, units, inside, is_same)

    def _without(self, group: Group, units: Units, inside: Bools, is_same: Bools) -> None:
        queue, report = group.queue, self._report
        # Why: a topic that is deleted and made again counts from 0 anew. Its old records lie before
        # the one that its first unit points to, and have numbers that the new ones take again.
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
        """Say what is wrong with a unit that points to its record, but says something else."""
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

    def _take_batches(
        self, queue: QueuePlace, seen: Seen, rows: Rows, specials: "_Specials"
    ) -> None:
        report = self._report
        bases = seen.columns["queue_offset"][rows].astype(np.int64)
        counts = np.ones(len(rows), np.int64)
        for index, row in enumerate(rows.tolist()):
            if row in specials.batches:
                bases[index], counts[index] = specials.batches[row]
        good = (bases >= 0) & (counts > 0) & (counts <= layout.MAX_I16)
        if not good.any():
            return
        group = Group.of(queue, seen, rows[good], bases[good])
        own = seen.columns["queue_offset"][rows[good]]
        for index in np.flatnonzero(own != group.offsets).tolist():
            report.faults.append(self._odd_base(group, index, int(own[index])))
        found = self._batches.compare(
            queue,
            group.places,
            {
                "size": group.sizes,
                "tags_code": group.codes,
                "store_timestamp": group.times,
                "base_queue_offset": group.offsets,
                "batch_size": counts[good],
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


class _Specials:
    """The few records whose properties say more: due times, inner batches, light queues."""

    def __init__(self, seen: Seen, delays_ms: list[int]) -> None:
        self.batches: dict[int, tuple[int, int]] = {}
        self.light: dict[QueueKey, list[tuple[int, int]]] = {}
        self._delays_ms = delays_ms
        for row in np.flatnonzero(seen.facts.traits & Trait.IS_SPECIAL).tolist():
            self._look_at(seen, row)

    def _look_at(self, seen: Seen, row: int) -> None:
        found = seen.columns.rows[row]
        start = int(found["properties_position"])
        view = memoryview(seen.columns.buffer)
        properties = decode_properties(view[start : start + int(found["properties_size"])])
        topic = seen.topics[int(seen.topic_codes[row])]
        if topic == SCHEDULE_TOPIC:
            level = number_of(properties.get(names.DELAY), 0)
            if level > 0:
                due = int(found["store_timestamp"]) + delay_of(self._delays_ms, level)
                seen.facts.tags_codes[row] = due
        if int(found["sys_flag"]) & INNER_BATCH:
            base = number_of(properties.get(names.INNER_BASE), int(found["queue_offset"]))
            self.batches[row] = (base, number_of(properties.get(names.INNER_NUM), 1))
        if seen.facts.traits[row] & Trait.ENTERS_QUEUE and may_fan_out(topic):
            for name, offset in light_places(properties):
                queue_id = 0 if is_lmq(name) else int(found["queue_id"])
                self.light.setdefault(QueueKey(name, queue_id), []).append((row, offset))


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


def _are_straight(offsets: Int64s, starts: list[int]) -> Bools:
    """Tell for each queue whether its numbers go up by one."""
    steps = np.ones(len(offsets), np.bool_)
    steps[1:] = np.diff(offsets) == 1
    steps[starts] = True
    result: Bools = np.logical_and.reduceat(steps, starts)
    return result


def _sorted_by_queue(
    rows: Rows, topic_codes: npt.NDArray[np.int32], queue_ids: npt.NDArray[np.int32]
) -> tuple[Rows, list[int]]:
    """Return rows sorted by queue, each queue's in the order of the log, and where each begins."""
    width = int(queue_ids.max()) + 1
    if int(queue_ids.min()) >= 0 and width * (int(topic_codes.max()) + 1) < 1 << 16:
        # Why: sixteen bits are sorted by counting.
        both: npt.NDArray[np.integer] = (topic_codes * width + queue_ids).astype(np.uint16)
    else:
        both = topic_codes.astype(np.int64) << 32 | queue_ids.astype(np.uint32)
    steps = np.flatnonzero(both[1:] != both[:-1])
    if len(steps):
        order = np.argsort(both, kind="stable")
        rows, both = rows[order], both[order]
        steps = np.flatnonzero(both[1:] != both[:-1])
    return rows, [0, *(steps + 1).tolist()]


def _ranges(numbers: Int64s) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive numbers as ranges."""
    if not len(numbers):
        return
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    cuts = [0, *breaks.tolist(), len(numbers)]
    for start, stop in pairwise(cuts):
        yield int(numbers[start]), int(numbers[stop - 1]) + 1
