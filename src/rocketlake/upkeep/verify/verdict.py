"""The result of all pieces of work: what is wrong, and what a start repairs by itself."""

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from rocketlake.files.ops import PosixFileOps
from rocketlake.format.index import IndexEntry
from rocketlake.format.layout import INDEX_ENTRY_SIZE
from rocketlake.format.record import StopReason
from rocketlake.model.queues import QueueKey
from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.findings import Fault, Kind, Ledger, Pending
from rocketlake.upkeep.verify.index_piece import strays_between
from rocketlake.upkeep.verify.key_cursor import MissingKeys
from rocketlake.upkeep.verify.log_file_walk import BadPart, bad_text
from rocketlake.upkeep.verify.log_piece import LogReport
from rocketlake.upkeep.verify.queue_check import Lack, LackKey, Suspect, add_lack
from rocketlake.upkeep.verify.store_layout import IndexPlace, Layout
from rocketlake.upkeep.verify.unconfirmed_units import Ends, QueueReport

_STRAYS_MAX = 1000
_REPEATS_MAX = 256
_PAGE_SIZE = 4096


class Judge:
    """Combines reports, and adds what is wrong to a ledger."""

    def __init__(self, store: Layout, reports: Sequence[LogReport], ledger: Ledger) -> None:
        self._store = store
        self.reports = reports
        self._ledger = ledger
        self._ops = PosixFileOps()
        self.deleted_topics: dict[str, int] = {}
        self.earlier: Counter[int] = Counter()
        self.earlier_records = 0  # of earlier lives, by the table of deleted topics
        for report in reports:
            # A first unit that no record confirms says nothing about where its queue began.
            self.earlier.update(
                {n: count for n, count in report.units.earlier.items() if self._begins_well(n)}
            )
        self.log_limit = max((report.end for report in reports if report.records), default=0)
        self.log_limit = max(self.log_limit, store.log_min)
        self.newest = max((report.max_timestamp for report in reports), default=0)
        self._dispatched = max((report.units.end_confirmed for report in reports), default=-1)
        if "queues" not in store.what:
            self._dispatched = self.log_limit
        self._behind: dict[int, Lack] = {}
        self._reported: set[int] = set()
        self.last_lost: dict[int, int] = {}
        """By queue: the last place in a bad part of the log that a unit points to."""

    def _begins_well(self, number: int) -> bool:
        first = self._store.queues[number].first_real
        runs = (report.units.runs.get(number, []) for report in self.reports)
        return any(begin <= first < end for found in runs for begin, end in found)

    @property
    def _is_cleanly_stopped(self) -> bool:
        return self._store.is_cleanly_stopped

    # --- the log -------------------------------------------------------------------------------

    def judge_log(self) -> None:
        """Judge what is between and behind the records."""
        for report in self.reports:
            self._ledger.add(report.faults)
            self._ledger.add(self._bad_parts(report))
            self._ledger.add(self._end(report))

    def goes_on(self, report: LogReport) -> bool:
        """Tell whether a later file has records."""
        return any(later.records for later in self.reports[report.number + 1 :])

    def _bad_parts(self, report: LogReport) -> Iterator[Fault]:
        file = self._store.log_files[report.number]
        for part in report.bad:
            is_end = not part.has_record_behind and not self.goes_on(report)
            position = part.begin - file.base_offset
            is_page_rest = part.reason is StopReason.BAD_MAGIC and self._is_page_rest(
                part.begin, part.written_end
            )
            if is_end and (not self._is_cleanly_stopped or is_page_rest):
                if self._store.held_by is None:
                    self._ledger.pending.torn_bytes += part.written_end - part.begin
                continue
            kind = Kind.LOG_END if is_end else Kind.RECORD
            text = bad_text(part)
            if is_end:
                text += ", and no good record follows: a start cuts the log here"
            yield Fault(str(file.path), position, text, kind=kind, about="log")

    def _is_page_rest(self, begin: int, end: int) -> bool:
        """Tell whether bytes behind the last record are what `writeWithoutMmap` of 5.5 leaves.

        It writes a record and, up to the end of its page, what its buffer had before. No unit may
        point there: the bytes could be a record that was damaged.
        """
        page_end = -(-begin // _PAGE_SIZE) * _PAGE_SIZE
        return self._store.is_5_5 and end <= page_end and self._store.dispatched <= begin

    def _end(self, report: LogReport) -> Iterator[Fault]:
        if report.stop is not StopReason.END_OF_DATA or self._store.held_by is not None:
            return  # a running broker writes on
        file = self._store.log_files[report.number]
        position = report.end - file.base_offset
        if self.goes_on(report) and position < self._store.room(report.number):
            text = "the records of the file end here, without a blank record, but the log goes on"
            yield Fault(str(file.path), position, text, kind=Kind.RECORD, about="log")
        if report.rest_position < 0:
            return
        if not self._is_cleanly_stopped:
            self._ledger.pending.torn_bytes += file.size - report.rest_position
            return
        if self._is_page_rest(report.end, report.rest_end) and not self.goes_on(report):
            self._ledger.pending.torn_bytes += report.rest_end - report.end
            return
        text = "bytes behind the end of the log that are not zero"
        yield Fault(str(file.path), report.rest_position, text, kind=Kind.LOG_END, about="log")

    # --- queues --------------------------------------------------------------------------------

    def ends(self) -> Ends:
        """Return what the look at each queue needs to know of the log."""
        suspects: dict[int, Suspect] = {}
        for report in self.reports:
            suspects.update({one.physical_offset: one for one in report.units.suspects})
        return Ends(
            log_end=self.log_limit,
            bad=self._bad(),
            suspects=suspects,
            names=[queue.name for queue in self._store.queues],
        )

    def _bad(self) -> list[BadPart]:
        return [part for report in self.reports for part in report.bad]

    def judge_queues(self, queue_reports: Sequence[QueueReport]) -> None:
        """Judge what queues have and records do not explain, and the other way round."""
        for found in queue_reports:
            self._ledger.add(found.faults)
            self._ledger.pending.add(found.pending)
            self._reported |= found.reported
            self.last_lost[found.number] = found.last_lost
        for report in self.reports:
            self._ledger.add(report.units.faults)
            self._ledger.add(self._suspects(report))
        self._ledger.add(self._lacks())
        self._count_deleted()
        if self._store.earlier_queues:
            named = ", ".join(f"{q.topic}/{q.queue_id}" for q in self._store.earlier_queues[:5])
            note = f"a start removes queues that the deletion of their topic left: {named}"
            self._ledger.pending.add(Pending(notes=[note]))

    def _count_deleted(self) -> None:
        """Count records that a deletion took: of a topic that is gone, or of an earlier life."""
        for report in self.reports:
            for topic, count in report.units.deleted.items():
                if self._is_deleted(topic):
                    self.deleted_topics[topic] = self.deleted_topics.get(topic, 0) + count
                else:
                    self.earlier_records += count

    def _suspects(self, report: LogReport) -> Iterator[Fault]:
        file = self._store.log_files[report.number]
        for one in report.units.suspects:
            if one.physical_offset in self._reported:
                continue
            queue = self._store.queues[one.queue]
            reason = (
                f"the record is message {one.queue_offset} of {queue.name}, but that unit points "
                f"to {one.unit_physical}"
            )
            position = one.physical_offset - file.base_offset
            yield Fault(str(file.path), position, reason, kind=Kind.LACKS_UNITS, about=queue.name)
        if report.units.suspects_left_out:
            count = report.units.suspects_left_out
            reason = f"{count} more records whose units point elsewhere"
            yield Fault(str(file.path), 0, reason, kind=Kind.LACKS_UNITS, about="queues")

    def _lacks(self) -> Iterator[Fault]:
        below: dict[int, Lack] = {}
        unknown: dict[tuple[str, int], Lack] = {}
        for report in self.reports:
            _gather(self._behind, report.units.behind)
            _gather(below, report.units.below)
            _gather(unknown, report.units.unknown)
        for number, lack in self._behind.items():
            queue = self._store.queues[number]
            if not self._is_pending(lack):
                where = f"queue {queue.name}: it ends at {queue.end_offset}"
                yield from self._lack(queue.name, lack, where, queue.place_of(queue.end_index))
        for number, lack in below.items():
            queue = self._store.queues[number]
            if not self._is_pending(lack):
                where = f"queue {queue.name}: it begins at {queue.first_real}"
                yield from self._lack(queue.name, lack, where, queue.place_of(queue.first_index))
        for (topic, queue_id), lack in unknown.items():
            if self._is_deleted(topic):
                self.deleted_topics[topic] = self.deleted_topics.get(topic, 0) + lack.count
            elif not self._is_pending(lack):
                path = str(self._store.root / "consumequeue" / topic / str(queue_id))
                where = f"queue {topic}/{queue_id}: there is none"
                yield from self._lack(f"{topic}/{queue_id}", lack, where, (path, 0))

    def _lack(self, about: str, lack: Lack, where: str, place: tuple[str, int]) -> Iterator[Fault]:
        if lack.is_reported(self._reported):
            return
        what = f"a message of it at {lack.first_physical}"
        if lack.count > 1:
            what = f"{lack.count} messages of it from {lack.first_physical} on"
        reason = f"{where}, but the log holds {what}"
        yield Fault(*place, reason, kind=Kind.LACKS_UNITS, about=about)

    def _is_pending(self, lack: Lack) -> bool:
        """Tell whether the next start puts these messages into their queue by itself."""
        if self._is_cleanly_stopped and lack.first_physical < self._dispatched:
            return False
        self._ledger.pending.not_dispatched += lack.count
        return True

    def _is_deleted(self, topic: str) -> bool:
        configured = self._store.configured_topics
        if configured is None or topic in configured:
            return False
        return all(queue.key.topic != topic for queue in self._store.queues)

    def queue_ends(self) -> Mapping[QueueKey, int]:
        """Return where each queue ends, what is not dispatched yet included."""
        ends = {}
        for queue in self._store.queues:
            end = queue.end_offset
            lack = self._behind.get(queue.number)
            ends[queue.key] = max(end, lack.last_offset + 1) if lack is not None else end
        return ends

    # --- the index -----------------------------------------------------------------------------

    def judge_index(self) -> None:
        """Judge keys without entries, and entries without keys."""
        store, pending = self._store, self._ledger.pending
        if "index" not in store.what:
            return
        if not store.index:
            keys = sum(report.keys for report in self.reports)
            if keys and (store.index_sizes or not self._is_cleanly_stopped):
                pending.keys_to_index += keys
            elif keys:
                note = "there is no index: a start builds it, unless messageIndexEnable is off"
                pending.add(Pending(notes=[note]))
            return
        missing: list[MissingKeys] = []
        for report in self.reports:
            self._ledger.add(report.index.faults)
            missing += report.index.missing
            behind = report.index.behind
            if behind is None:
                continue
            if self._is_cleanly_stopped and behind.first_physical < self._dispatched:
                missing.append(behind)
            else:
                pending.keys_to_index += behind.count
        self._ledger.add(self._missing(keys) for keys in _joined(missing))
        self._ledger.add(self._strays())

    def _missing(self, keys: MissingKeys) -> Fault:
        files = self._store.index
        file = files[min(keys.file, len(files) - 1)]
        entry = keys.entry if keys.file < len(files) else file.count
        records = f"of the record at {keys.first_physical}"
        if keys.last_physical != keys.first_physical:
            records = f"of records from {keys.first_physical} to {keys.last_physical}"
        count = "a key" if keys.count == 1 else f"{keys.count} keys"
        reason = f"the index lacks {count} {records}, before entry {entry} of {file.path.name}"
        return Fault(
            str(file.path),
            file.position(entry),
            reason,
            kind=Kind.LACKS_KEYS,
            about=file.path.name,
        )

    def _strays(self) -> Iterator[Fault]:
        places: list[tuple[int, int]] = []
        before: tuple[int, int] | None = None
        for report in self.reports:
            places += report.index.strays
        ends = [report.index.end for report in self.reports]
        # Entries behind what the last record of the log has.
        if ends:
            before = max(ends)
            last = (len(self._store.index), 1)
            places += islice(strays_between(self._store.index, before, last), _STRAYS_MAX)
        readers = Readers(self._ops)
        try:
            for file, entry in places:
                yield from self._stray(readers, file, entry)
        finally:
            readers.close()

    def _stray(self, readers: Readers, file: int, number: int) -> Iterator[Fault]:
        place = self._store.index[file]
        data = readers.read(place.path, place.position(number), INDEX_ENTRY_SIZE)
        if len(data) < INDEX_ENTRY_SIZE:
            return
        entry = IndexEntry.decode(data)
        offset = entry.physical_offset
        if _is_repeat(readers, place, number, entry):
            return
        if 0 <= offset < self._store.log_min or self._is_bad(offset):
            return
        if offset >= self.log_limit and not self._is_cleanly_stopped:
            return
        if self._store.is_gone(offset, self._ops):
            return
        where = "behind the end of the log"
        if offset < self.log_limit:
            where = "where no record with such a key begins"
        reason = f"index file {place.path.name}: entry {number} points to {offset}, {where}"
        yield Fault(
            str(place.path),
            place.position(number),
            reason,
            kind=Kind.INDEX,
            about=place.path.name,
        )

    def _is_bad(self, offset: int) -> bool:
        parts = self._bad()
        at = bisect.bisect_right([part.begin for part in parts], offset) - 1
        return at >= 0 and offset < parts[at].end


def _is_repeat(readers: Readers, place: IndexPlace, number: int, entry: IndexEntry) -> bool:
    """Tell whether the same key of the same record stands just before an entry.

    Compat: the reference puts all keys of the last record again when it starts.
    """
    for before in range(number - 1, max(number - _REPEATS_MAX, 0), -1):
        data = readers.read(place.path, place.position(before), INDEX_ENTRY_SIZE)
        found = IndexEntry.decode(data)
        if found.physical_offset != entry.physical_offset:
            return False
        if found.key_hash == entry.key_hash:
            return True
    return False


def _joined(missing: list[MissingKeys]) -> list[MissingKeys]:
    """Take keys together that are missing at one place of the index."""
    joined: list[MissingKeys] = []
    for keys in missing:
        before = joined[-1] if joined else None
        if before is not None and (before.file, before.entry) == (keys.file, keys.entry):
            before.count += keys.count
            before.last_physical = keys.last_physical
        else:
            joined.append(keys)
    return joined


def _gather(into: dict[LackKey, Lack], found: dict[LackKey, Lack]) -> None:
    for key, lack in found.items():
        add_lack(into, key, lack)
