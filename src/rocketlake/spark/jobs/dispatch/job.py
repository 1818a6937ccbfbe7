"""Dispatch as a Spark job: from the end of the queues to the confirmed end of the log.

1. Executors walk parts of the log and make units and keys; the driver appends them, by the store's
   own code: the bytes are those of live dispatch.
2. A store that is not open is recovered as at a start, but Spark makes the units and keys that
   queues and index lack; it is left cleanly closed (`offline_dispatch`).
3. A store that is open with `dispatch="external"` is dispatched as it grows (`live`). One that
   dispatches by itself is refused.
4. A repeated run is harmless: queues and index pass over what they have.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from rocketlake.spark.jobs.dispatch.live import LiveDispatch
from rocketlake.spark.jobs.dispatch.offline_dispatch import OfflineDispatch
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
"""Receives up to where the log is dispatched, and where it ends."""


class DispatchPlan(Struct, frozen=True, kw_only=True):
    """What a round will do; it can be shown, and changes nothing."""

    path: str
    state: str
    dispatched: int
    """Up to where the queues reach."""
    end: int
    queues: int

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
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


class DispatchJob:
    """Dispatches one store, once or until it is stopped.

    Thread-safety: one thread runs; any may call `stop`.
    """

    def __init__(  # noqa: PLR0913 - options of a job
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
        """`functions` are custom dispatchers by name, which receive the DataFrame of records."""
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
        self._live: LiveDispatch | None = None
        self._recovered = ""  # the state that a recovery has left
        self._rounds = self._records = self._units = self._keys = self._where = 0

    def stop(self) -> None:
        """End after the round in progress."""
        self._stopping.set()

    def run(self, *, once: bool = True, poll_s: float = POLL_S) -> DispatchReport:
        """Dispatch what there is; without `once` go on until `stop`, looking every so often.

        Raises:
            StoreLockedError: another job runs, or the store is open and dispatches by itself.
            StoreError: something cannot be read or written.
        """
        with OfflineStore(self._root, ops=self._ops) as view:
            refuse_rocksdb(view.directory)  # Order: before there is a lock file
        lock = self._external.job_lock()
        acquire_within(lock, 0.0, _JOB_WAY_OUT, self._clock)
        try:
            while True:
                self._round()
                if once or self._stopping.wait(poll_s):
                    return self._report()
        finally:
            self._close_live()
            lock.release()

    def _round(self) -> None:
        note, holder = self._external.live_writer(), self._external.holder
        if self._live is not None and (note is None or note.session != self._live.session):
            self._close_live()
        if note is not None:
            if self._live is None:
                self._live = LiveDispatch(
                    self._runner, self._root, note, self._external, self._ops, self._clock
                )
            self._count(self._live.run_round(self._functions, self._on_progress))
        elif holder is not None:
            lock = str(self._root / names.LOCK)
            raise StoreLockedError(lock, holder, way_out=_INTERNAL_WAY_OUT)
        else:
            self._recover()

    def _recover(self) -> None:
        """Recover and dispatch a store that is not open, once for each time it was open."""
        last = self._external.writer()
        state = f"{last.session if last else ''} {self._ops.stat(self._root / names.ABORT)}"
        if state == self._recovered:
            return
        has_no_options = self._conf is None and not self._options
        offline = OfflineDispatch(self._runner, self._on_progress, part_bytes=self._part_bytes)
        try:
            report = recover_with_external_dispatch(
                self._root,
                self._conf,
                offline,
                ops=self._ops,
                clock=self._clock,
                options=self._options,
                known_options=last.options if has_no_options and last is not None else None,
            )
        finally:
            offline.close()
        counts = offline.counts
        self._count((counts.records, counts.units, counts.keys, report.dispatched_where))
        self._recovered = f"{last.session if last else ''} {None}"
        log_files = offline.log_files
        self._functions.run(report.log_min, report.dispatched_where, log_files)

    def _count(self, done: tuple[int, int, int, int]) -> None:
        records, units, keys, where = done
        self._rounds += records > 0
        self._records += records
        self._units += units
        self._keys += keys
        self._where = where

    def _close_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.close()

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
def stopped_by_signals(stop: Callable[[], None], signals: Sequence[int] = ()) -> Iterator[None]:
    """Have Ctrl-C and `kill` stop a job after its round instead of in the middle of it."""
    chosen = signals or (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop()) for number in chosen}
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
    """Dispatch the records that the queues and the index of a store lack; `dry_run` only plans.

    `conf` has the options that `open_store` gets for the store. Without `once` the job runs until
    Ctrl-C. `functions` are custom dispatchers by name: each receives the DataFrame of records and
    the range of the log that they come from.

    Raises:
        StoreNotFoundError: there is no store.
        StoreLockedError: another job runs, or the store is open and dispatches by itself.
        StoreError: something cannot be read or written.
    """
    if dry_run:
        with OfflineStore(absolute_path(store)) as view:
            return plan_dispatch(view)
    job = DispatchJob(
        spark or session(), absolute_path(store), conf, functions=functions, on_progress=on_progress
    )
    with nullcontext() if once else stopped_by_signals(job.stop):
        return job.run(once=once, poll_s=poll_s)
