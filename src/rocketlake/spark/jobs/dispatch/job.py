"""The middle stage as a Spark job: from where the queues end to the confirmed end of the log.

1. Executors walk parts of the log and make units and keys; the driver appends them, by the store's
   own code: the bytes are those of live dispatch.
2. A store that nobody has open is recovered as a start would, only that what queues and index lack
   comes from Spark; it is left cleanly closed.
3. A store that is open with `dispatch="external"` is followed: see `following`. One that dispatches
   by itself is refused.
4. Doing it again does no harm: queues and index pass over what they have.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from rocketlake.clock import Clock, SystemClock
from rocketlake.config import Source
from rocketlake.embedded.dispatch_files import DISPATCH, ExternalDispatch, acquire_within
from rocketlake.embedded.external_dispatch import recover_with_external_dispatch
from rocketlake.errors import StoreLockedError
from rocketlake.files.local_path import absolute_path
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format import names
from rocketlake.spark.jobs.dispatch.functions import DispatchFunction, Functions
from rocketlake.spark.jobs.dispatch.live import Following
from rocketlake.spark.jobs.dispatch.offline_dispatch import Settling
from rocketlake.spark.jobs.dispatch.run import Runner, as_runner
from rocketlake.spark.jobs.tasks import session
from rocketlake.store.offline import OfflineStore, refuse_rocksdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 1.0
_STAGED: Final = "staged"
_JOB_WAY_OUT: Final = "another dispatch job runs: one is enough"
_INTERNAL_WAY_OUT: Final = (
    'it dispatches by itself; nothing is left to do, unless it is opened with dispatch="external"'
)

OnProgress = Callable[[int, int], None]
"""Is told up to where the log is dispatched, and where it ends."""


class DispatchPlan(Struct, frozen=True, kw_only=True):
    """What a round will do; it can be shown, and changes nothing."""

    path: str
    state: str
    dispatched: int
    """Up to where the queues reach."""
    end: int
    queues: int

    def lines(self) -> list[str]:
        """Say in words what will be done."""
        left = max(self.end - self.dispatched, 0)
        return [
            f"{self.path} is {self.state}; its {self.queues} queues reach to {self.dispatched}",
            f"dispatch up to {self.end}: {left} bytes of log" if left else "nothing is left to do",
        ]


class DispatchReport(Struct, frozen=True, kw_only=True):
    """What was done."""

    path: str
    rounds: int = 0
    """Rounds that had something to do."""
    records: int = 0
    units: int = 0
    keys: int = 0
    where: int = 0
    """Up to where everything is dispatched."""


def plan_dispatch(store: OfflineStore) -> DispatchPlan:
    """Look at how far the queues of a store reach, and where its log ends.

    Raises:
        StoreError: queues, tables or the timer's progress are in RocksDB.
    """
    refuse_rocksdb(store.directory)
    external = ExternalDispatch(store.directory.ops, store.directory.root)
    note = external.live_writer()
    if note is not None:
        found = external.progress()
        where = found.where if found.session == note.session else note.dispatch_from
        state, end = f"open in process {note.pid}, which leaves dispatch to a job", 0
        end = external.confirmed()
    else:
        held_by, is_clean = store.traits.held_by, store.traits.is_clean
        end = store.max_offset
        owed = (queue.owed.places() for queue in store.queues.values() if len(queue.owed))
        where = min((int(places["physical_offset"][0]) for places in owed), default=end)
        state = "closed" if is_clean else "not closed cleanly"
        if held_by is not None:
            state = f"open in process {held_by}, which dispatches by itself"
    return DispatchPlan(
        path=str(store.directory.root),
        state=state,
        dispatched=where,
        end=end,
        queues=len(store.queues),
    )


class Stoppable(Protocol):
    """A job that goes on until it is told."""

    def stop(self) -> None:
        """Have it end after the round it is in."""
        ...


class DispatchJob:
    """Dispatches one store, once or as long as it is let.

    Thread-safety: one thread runs; any may call `stop`.
    """

    def __init__(  # noqa: PLR0913 - each says one thing a job can be told
        self,
        runner: "Runner | SparkSession",
        root: Path,
        conf: Source | None = None,
        *,
        options: Mapping[str, object] | None = None,
        functions: Mapping[str, DispatchFunction] | None = None,
        on_progress: OnProgress | None = None,
        part_bytes: int | None = None,
        ops: FileOps | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`functions` get the DataFrame of records by name: custom dispatchers."""
        self._ops = ops or PosixFileOps()
        self._clock = clock or SystemClock()
        self._root = absolute_path(root)
        self._conf = conf
        self._part_bytes = part_bytes
        self._options = dict(options or {})
        self._external = ExternalDispatch(self._ops, self._root)
        self._staged = self._root / DISPATCH / _STAGED
        self._runner = as_runner(runner, self._staged)
        spark = runner if self._runner is not runner else None
        self._functions = Functions(spark, self._root, functions or {}, self._external)
        self._on_progress = on_progress
        self._stopping = threading.Event()
        self._following: Following | None = None
        self._settled = ""
        self._rounds = self._records = self._units = self._keys = self._where = 0

    def stop(self) -> None:
        """Let it end after the round in progress."""
        self._stopping.set()

    def run(self, *, once: bool = True, poll_s: float = POLL_S) -> DispatchReport:
        """Dispatch what there is; without `once` go on until `stop`, looking every so often.

        Raises:
            StoreLockedError: another job runs, or somebody has the store open who dispatches.
            StoreError: something cannot be read or written.
        """
        with OfflineStore(self._root, ops=self._ops) as view:
            refuse_rocksdb(view.directory)  # Order: before there is a lock file
        lock = self._external.job_lock()
        acquire_within(lock, 0.0, _JOB_WAY_OUT)
        try:
            while True:
                self._round()
                if once or self._stopping.wait(poll_s):
                    return self._report()
        finally:
            self._let_go()
            lock.release()

    def _round(self) -> None:
        note, holder = self._external.live_writer(), self._external.holder
        if self._following is not None and (
            note is None or note.session != self._following.session
        ):
            self._let_go()
        if note is not None:
            if self._following is None:
                self._following = Following(
                    self._runner, self._root, note, self._external, self._ops, self._clock
                )
            self._count(self._following.go_on(self._functions, self._on_progress))
        elif holder is not None:
            lock = str(self._root / names.LOCK)
            raise StoreLockedError(lock, holder, way_out=_INTERNAL_WAY_OUT)
        else:
            self._settle()

    def _settle(self) -> None:
        """Bring a store that nobody has open to its end, once for each time it was open."""
        last = self._external.writer()
        state = f"{last.session if last else ''} {self._ops.stat(self._root / names.ABORT)}"
        if state == self._settled:
            return
        is_told_nothing = self._conf is None and not self._options
        settling = Settling(self._runner, self._on_progress, part_bytes=self._part_bytes)
        try:
            report = recover_with_external_dispatch(
                self._root,
                self._conf,
                settling,
                ops=self._ops,
                clock=self._clock,
                options=self._options,
                known_options=last.options if is_told_nothing and last is not None else None,
            )
        finally:
            settling.close()
        tally = settling.tally
        self._count((tally.records, tally.units, tally.keys, report.dispatched_where))
        self._settled = f"{last.session if last else ''} {None}"
        log_files = settling.log_files
        self._functions.run(report.log_min, report.dispatched_where, log_files)

    def _count(self, done: tuple[int, int, int, int]) -> None:
        records, units, keys, where = done
        self._rounds += records > 0
        self._records += records
        self._units += units
        self._keys += keys
        self._where = where

    def _let_go(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.close()

    def _report(self) -> DispatchReport:
        return DispatchReport(
            path=str(self._root),
            rounds=self._rounds,
            records=self._records,
            units=self._units,
            keys=self._keys,
            where=self._where,
        )


@contextmanager
def stopped_by_signals(job: Stoppable, signals: Sequence[int] = ()) -> Iterator[None]:
    """Let Ctrl-C, and `kill`, end a job after its round, in place of in the middle of it."""
    chosen = signals or (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: job.stop()) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def dispatch(
    spark: "SparkSession | None",
    store: str | Path,
    conf: Source | None = None,
    *,
    once: bool = True,
    poll_s: float = POLL_S,
    functions: Mapping[str, DispatchFunction] | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> DispatchReport | DispatchPlan:
    """Bring the records of a store that queues and index lack there; `dry_run` only plans.

    `conf` has the options the store is opened with, as `open_store` takes them. Without `once` the
    store is followed until Ctrl-C. `functions` are custom dispatchers by name: each is given the
    DataFrame of records, and which range of the log they are of.

    Raises:
        StoreNotFoundError: there is no store.
        StoreLockedError: another job runs, or somebody has the store open who dispatches.
        StoreError: something cannot be read or written.
    """
    if dry_run:
        with OfflineStore(absolute_path(store)) as view:
            return plan_dispatch(view)
    job = DispatchJob(
        spark or session(), absolute_path(store), conf, functions=functions, on_progress=on_progress
    )
    with nullcontext() if once else stopped_by_signals(job):
        return job.run(once=once, poll_s=poll_s)
