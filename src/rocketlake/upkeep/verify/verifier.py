"""Verify a store: every record, unit, entry and table against each other.

1. `places.look` notes what there is. Then pieces of work, each a plain function whose arguments and
   results can be sent to another process: an index file (`check_index_file`), a file of the log
   with its records' units and keys (`check_log_file`), a queue's remaining units
   (`check_unconfirmed`), the tables.
2. What a start repairs by itself is pending, not wrong: a torn end, records not dispatched, index
   files that are built again. What is wrong after a clean stop, or contradicts itself, is a
   finding.
3. A topic counts as deleted if the table of topics can be read and does not name it, and no queue
   of it is there: its records are no findings. A topic that was made again counts from 0 anew:
   records that lie before its first unit's, and whose numbers were given again, are of its earlier
   life. The table of deleted topics says the same for topics that RocketLake deleted, whatever
   queues are there.

Which changes nothing can show is in `record_checks`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from rocketlake.store.disk.damage import Finding
from rocketlake.store.offline.view import OfflineStore
from rocketlake.upkeep.verify import store_layout as looking
from rocketlake.upkeep.verify.findings import Fault, Ledger, Pending
from rocketlake.upkeep.verify.index_piece import check_index_file, find_starts
from rocketlake.upkeep.verify.log_piece import LogReport, check_log_file
from rocketlake.upkeep.verify.store_layout import IndexPlace, Layout, QueuePlace
from rocketlake.upkeep.verify.tables import check_checkpoint, check_tables
from rocketlake.upkeep.verify.unconfirmed_units import (
    Ends,
    QueueReport,
    check_unconfirmed,
    merged_runs,
)
from rocketlake.upkeep.verify.verdict import Judge

Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Returns the result of a function for each argument, in order; both can be pickled."""

WHAT: Final = frozenset({"log", "queues", "index", "tables"})
_FEW_UNITS: Final = 1 << 20  # are checked in less time than it takes to send them to a process


class VerifyOptions(Struct, frozen=True, kw_only=True):
    """What to check, and with how many threads (0: one per core)."""

    what: frozenset[str] = WHAT
    jobs: int = 0
    kept: int = 100_000
    """At most so many findings are kept; all are counted."""
    is_locked: bool = False
    """The caller has the store's lock: no process writes meanwhile."""

    @property
    def workers(self) -> int:
        """The number of worker threads."""
        return self.jobs or os.cpu_count() or 1


class VerifyPlan(Struct, frozen=True, kw_only=True):
    """What will be checked."""

    path: str
    what: list[str]
    log_files: int
    index_files: int
    bytes: int

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        return [
            f"check {', '.join(self.what)} of {self.path}",
            f"read {self.bytes} bytes in {self.log_files} files of the log and "
            f"{self.index_files} of the index, in parallel; then the rest of each queue",
        ]


class VerifySummary(Struct, kw_only=True, rename="camel"):
    """What was checked, and the result."""

    path: str
    state: str
    files: int = 0
    records: int = 0
    bytes: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    keys: int = 0
    findings: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    pending: Pending = field(default_factory=Pending)
    deleted_topics: dict[str, int] = field(default_factory=dict)
    earlier_lives: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return self.findings == 0


class Verifier:
    """Checks one store.

    Afterwards `ledger` has the findings with their kinds, `layout` what was looked at and `judge`
    what came out of it: a repair is planned with these.
    """

    def __init__(
        self,
        store: OfflineStore | Path | str,
        options: VerifyOptions | None = None,
        *,
        mapper: Mapper | None = None,
    ) -> None:
        """`mapper` runs pieces of work in other processes, without progress; None: in threads."""
        self._mapper = mapper
        self._given = store
        self._options = options or VerifyOptions()
        self.ledger = Ledger()
        self.layout: Layout | None = None
        self.judge: Judge | None = None

    def run(
        self,
        on_finding: Callable[[Finding], None] | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> VerifySummary:
        """Check everything; report findings as they come, and bytes as they are read.

        Raises:
            StoreNotFoundError: there is no store, or it cannot be read.
        """
        self.ledger = Ledger(on_finding, self._options.kept)
        if isinstance(self._given, OfflineStore):
            return self._run(self._given, on_bytes)
        with OfflineStore(self._given) as store:
            return self._run(store, on_bytes)

    def _run(self, store: OfflineStore, on_bytes: Callable[[int], None] | None) -> VerifySummary:
        found = looking.look(store, self._options.what, is_locked=self._options.is_locked)
        ledger = self.ledger
        ledger.add(found.faults)
        with ThreadPoolExecutor(self._options.workers, thread_name_prefix="verify") as pool:
            work = _Work(found, pool, self._mapper, on_bytes)
            index_faults, log_reports = work.files()
            ledger.add(index_faults)
            judge = Judge(found, log_reports, ledger)
            self.layout, self.judge = found, judge
            judge.judge_log()
            queue_reports = work.queues(log_reports, judge) if "queues" in found.what else []
        judge.judge_queues(queue_reports)
        judge.judge_index()
        if "tables" in found.what:
            ledger.add(self._checkpoint(store, found, judge))
            ledger.add(check_tables(store.directory, judge.queue_ends()))
        return self._summary(found, log_reports, queue_reports, judge)

    def _checkpoint(self, store: OfflineStore, found: Layout, judge: Judge) -> Iterator[Fault]:
        if found.held_by is not None:
            return iter(())  # it may speak of records that came after those that were looked at
        # The newest record may be among those that cannot be read.
        is_known = judge.newest and not any(report.bad for report in judge.reports)
        newest = judge.newest if is_known else None
        return check_checkpoint(store.directory, found.checkpoint, newest, judge.log_limit)

    def _summary(
        self,
        found: Layout,
        log_reports: Sequence[LogReport],
        queue_reports: Sequence[QueueReport],
        judge: Judge,
    ) -> VerifySummary:
        state = "clean stop" if found.is_clean else "unclean stop"
        return VerifySummary(
            path=str(found.root),
            state=f"in use by process {found.held_by}" if found.held_by is not None else state,
            files=len(found.log_files),
            records=sum(report.records for report in log_reports),
            bytes=sum(report.bytes for report in log_reports),
            queues=len(found.queues),
            units=sum(report.units for report in queue_reports),
            index_files=len(found.index),
            keys=sum(report.keys for report in log_reports),
            findings=self.ledger.count,
            kinds=dict(self.ledger.kinds),
            pending=self.ledger.pending,
            deleted_topics=judge.deleted_topics,
            earlier_lives=judge.earlier.total() + judge.earlier_records,
        )


class _Work:
    """Runs the pieces of one store."""

    def __init__(
        self,
        found: Layout,
        pool: ThreadPoolExecutor,
        mapper: Mapper | None,
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        self._found = found
        self._pool = pool
        self._map = mapper or self._map_here
        self._on_bytes = on_bytes

    def _map_here(self, action: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
        return list(self._pool.map(action, pieces))

    def files(self) -> tuple[list[Fault], list[LogReport]]:
        """Check the files of index and log, all at a time."""
        found = self._found
        bases = [file.base_offset for file in found.log_files]
        starts = self._map_here(partial(find_starts, bases=bases), found.index)
        check = partial(_check_file, found, on_bytes=self._on_bytes)
        # Order: an index file takes longest.
        done = self._map(check, [*found.index, *enumerate(index_starts(found, starts))])
        count = len(found.index)
        return [fault for faults in done[:count] for fault in faults], done[count:]

    def queues(self, log_reports: Sequence[LogReport], judge: Judge) -> list[QueueReport]:
        runs = [report.units.runs for report in log_reports]
        check = partial(_check_queue, self._found, ends=judge.ends())
        pieces = [(queue, list(merged_runs(runs, queue.number))) for queue in self._found.queues]
        left = sum(_units_left(*piece) for piece in pieces)
        return (self._map_here if left <= _FEW_UNITS else self._map)(check, pieces)


def _check_file(
    found: Layout,
    piece: IndexPlace | tuple[int, tuple[int, int]],
    *,
    on_bytes: Callable[[int], None] | None,
) -> list[Fault] | LogReport:
    if isinstance(piece, IndexPlace):
        return check_index_file(piece, on_bytes)
    return check_log_file(found, *piece, on_bytes=on_bytes)


def _units_left(queue: QueuePlace, runs: list[tuple[int, int]]) -> int:
    """Return how many units no record has confirmed, about."""
    return queue.end_index - queue.first_index - sum(stop - first for first, stop in runs)


def _check_queue(
    found: Layout, piece: tuple[QueuePlace, list[tuple[int, int]]], *, ends: Ends
) -> QueueReport:
    return check_unconfirmed(found, *piece, ends)


def index_starts(found: Layout, starts: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield, for each file of the log, the index file and entry that its keys begin with."""
    for number in range(len(found.log_files)):
        for file, entries in enumerate(starts):
            if entries[number] < found.index[file].count:
                yield file, entries[number]
                break
        else:
            yield len(found.index), 1


def total_bytes(store: OfflineStore, what: frozenset[str] = WHAT) -> int:
    """Return how many bytes `run` goes through, roughly."""
    index = sum(entry.size for entry in store.directory.index_files()) if "index" in what else 0
    return sum(file.size for file in store.log.files) + index


def plan_verify(store: OfflineStore, options: VerifyOptions | None = None) -> VerifyPlan:
    """Look at what there is to check."""
    what = (options or VerifyOptions()).what
    return VerifyPlan(
        path=str(store.directory.root),
        what=sorted(what),
        log_files=len(store.log.files),
        index_files=len(store.directory.index_files()) if "index" in what else 0,
        bytes=total_bytes(store, what),
    )
