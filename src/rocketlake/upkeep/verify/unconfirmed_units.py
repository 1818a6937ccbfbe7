"""One queue after the log was walked: its units that no record has confirmed."""

import bisect
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct, field

from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format import layout
from rocketlake.format.record import scan
from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.findings import Fault, Kind, Pending
from rocketlake.upkeep.verify.log_file_walk import BadPart
from rocketlake.upkeep.verify.queue_check import Suspect
from rocketlake.upkeep.verify.store_layout import Layout, QueuePlace, Units, is_prefill

_PART: Final = 65_536
_REPORTED_MAX: Final = 1000


class Ends(Struct, frozen=True):
    """What the walk of the log found: its end, its bad parts, and records in the wrong place."""

    log_end: int
    bad: list[BadPart]
    suspects: dict[int, Suspect]
    """By physical offset."""
    names: list[str]
    """The names of the queues, by number."""


class QueueReport(Struct):
    """What is wrong with the units of a queue."""

    number: int
    faults: list[Fault] = field(default_factory=list)
    pending: Pending = field(default_factory=Pending)
    units: int = 0
    last_lost: int = -1
    """The last of the places in bad parts of the log that units point to."""
    reported: set[int] = field(default_factory=set)
    """Physical offsets of suspects that a unit's fault names."""
    left_out: int = 0


def check_unconfirmed(
    store: Layout,
    queue: QueuePlace,
    runs: list[tuple[int, int]],
    ends: Ends,
    *,
    ops: FileOps | None = None,
) -> QueueReport:
    """Check the units of a queue that are not in `runs`, which are those that records confirmed."""
    return _UnconfirmedUnits(store, queue, ends, ops or PosixFileOps()).run(runs)


class _UnconfirmedUnits:
    def __init__(self, store: Layout, queue: QueuePlace, ends: Ends, ops: FileOps) -> None:
        self._ops = ops
        self._store = store
        self._queue = queue
        self._ends = ends
        self._readers = Readers(ops)
        self._report = QueueReport(queue.number)
        self._bad_begins = [part.begin for part in ends.bad]
        self._own = {
            suspect.queue_offset: suspect
            for suspect in ends.suspects.values()
            if suspect.queue == queue.number
        }

    def run(self, runs: list[tuple[int, int]]) -> QueueReport:
        try:
            return self._run(runs)
        finally:
            self._readers.close()

    def _run(self, runs: list[tuple[int, int]]) -> QueueReport:
        queue, report = self._queue, self._report
        report.units = queue.end_index - queue.first_real
        at = queue.first_index
        first_confirmed = min((first for first, _ in runs), default=queue.end_index)
        for first, stop in sorted(runs):
            if first < at:
                for number in range(first, min(stop, at)):
                    self._fault(number, "stands for two records")
                    break
            if first > at:
                self._look_at(at, first, first_confirmed)
            at = max(at, stop)
        if at < queue.end_index:
            self._look_at(at, queue.end_index, first_confirmed)
        if report.left_out:
            self._fault(at, f"and {report.left_out} more units like these")
        return report

    def _look_at(self, first: int, stop: int, first_confirmed: int) -> None:
        begin = first
        while begin < stop:
            units = self._queue.read(self._readers, begin, min(_PART, stop - begin))
            self._look_at_some(units, begin, first_confirmed)
            begin += len(units)
            held = min(self._queue.next_held(begin), stop)
            if held - begin > _PART:
                # Why: between two files there may be more missing ones than time to count them.
                self._pass_hole(held - begin)
                begin = held

    def _pass_hole(self, count: int) -> None:
        """Count units that no file holds as the other missing ones are."""
        if self._store.is_cleanly_stopped:
            self._report.left_out += count
        else:
            self._report.pending.not_dispatched += count

    def _look_at_some(self, units: Units, begin: int, first_confirmed: int) -> None:
        places = units["physical_offset"].astype(np.int64)
        numbers = np.arange(begin, begin + len(units))
        # What stands before the first message that the log still has may be pre-fill or expired.
        quiet = numbers < first_confirmed
        fine = quiet & (is_prefill(units) | ((places >= 0) & (places < self._store.log_min)))
        fine &= units["size"] > 0
        for index in np.flatnonzero(~fine).tolist():
            self._judge(int(numbers[index]), int(places[index]), units, index)

    def _judge(self, number: int, place: int, units: Units, index: int) -> None:
        size = int(units["size"][index])
        if not self._store.is_cleanly_stopped and size > 0 and place >= self._ends.log_end:
            self._report.pending.units_to_cut += 1
            return
        if size > 0 and self._is_in_bad_part(place):
            self._report.last_lost = max(self._report.last_lost, place)
            return  # its record is reported
        if self._store.is_gone(place, self._ops):
            return
        if not self._store.is_cleanly_stopped and not any(units[index].tobytes()):
            self._report.pending.not_dispatched += 1  # a start cuts the queue here and goes on
            return
        if len(self._report.faults) >= _REPORTED_MAX:
            self._report.left_out += 1  # the words would cost a look into the log each
            return
        self._fault(number, self._text(number, place, size))

    def _is_in_bad_part(self, place: int) -> bool:
        at = bisect.bisect_right(self._bad_begins, place) - 1
        return at >= 0 and place < self._ends.bad[at].end

    def _text(self, number: int, place: int, size: int) -> str:
        own = self._own.get(number)
        where = ""
        if own is not None:
            self._report.reported.add(own.physical_offset)
            where = f"; its record lies at {own.physical_offset}"
        if size <= 0 or place < 0:
            return f"is no valid unit (offset {place}, size {size}){where}"
        if place == 0 and size == layout.PREFILL_SIZE:
            return f"is a pre-filled one behind real ones{where}"
        return f"points to {place}, {self._what_is_at(place)}{where}"

    def _what_is_at(self, place: int) -> str:
        if place >= self._ends.log_end:
            return "behind the end of the log"
        if place < self._store.log_min:
            return "which is before the log's first record, but units before it are not"
        suspect = self._ends.suspects.get(place)
        if suspect is not None:
            self._report.reported.add(place)
            name = self._ends.names[suspect.queue]
            return f"whose record says that it is message {suspect.queue_offset} of {name}"
        return self._record_at(place)

    def _record_at(self, place: int) -> str:
        number = bisect.bisect_right([file.base_offset for file in self._store.log_files], place)
        if number == 0:
            return "which no file holds"
        file = self._store.log_files[number - 1]
        position = place - file.base_offset
        if position >= self._store.room(number - 1):
            return "which no file holds"
        head = self._readers.read(file.path, position, layout.RECORD_MIN_SIZE)
        size = max(int.from_bytes(head[:4], "big", signed=True), 0)
        data = self._readers.read(file.path, position, min(size, file.size - position))
        found = scan(data, base_offset=place, checks=self._store.checks, rows_max=1)
        if not len(found.columns):
            return "where no record begins"
        message = found.columns.message(0)
        self._report.reported.add(place)
        return f"where message {message.queue_offset} of {message.topic}/{message.queue_id} lies"

    def _fault(self, number: int, text: str) -> None:
        queue = self._queue
        path, position = queue.place_of(number)
        reason = f"queue {queue.name}: unit {number} {text}"
        self._report.faults.append(Fault(path, position, reason, kind=Kind.UNIT, about=queue.name))


def merged_runs(
    reports: list[dict[int, list[tuple[int, int]]]], number: int
) -> Iterator[tuple[int, int]]:
    """Yield the confirmed units of a queue, of all parts of the log."""
    for runs in reports:
        yield from runs.get(number, [])
