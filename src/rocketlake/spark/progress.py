"""Progress of the Spark jobs of a block of code: tasks done, of the tasks known so far.

Spark plans a job when it starts, and a query may start several: the total can grow.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, cast

from pyspark import StatusTracker
from pyspark.sql import SparkSession

from rocketlake.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

OnProgress = Callable[[int, int], None]
"""Gets (tasks done, tasks known): from a thread of its own, and finally from the caller's."""

_EVERY_S: Final = 0.2


@contextmanager
def watching(
    spark: SparkSession, on_progress: OnProgress | None, *, every_s: float = _EVERY_S
) -> Iterator[None]:
    """Report the tasks of all jobs of a session that start inside the block.

    Nothing is reported without `on_progress`. Over Spark Connect the server reports after each of
    its own steps. An error that `on_progress` raises ends the reports, not the jobs.
    """
    if on_progress is None:
        yield
        return
    if is_connect(spark):
        with _connect(spark, on_progress):
            yield
        return
    jobs = _Jobs(spark.sparkContext.statusTracker())
    reporter = _Reporter(jobs, on_progress, every_s)
    thread = threading.Thread(target=reporter.run, name="rocketlake-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        reporter.stopped.set()
        thread.join()
        # Short jobs start and end between two polls.
        reporter.report()


class _Reporter:
    """Polls the jobs and reports what changed, until it is stopped."""

    def __init__(self, jobs: "_Jobs", on_progress: OnProgress, every_s: float) -> None:
        self.stopped = threading.Event()
        self._jobs = jobs
        self._on_progress: OnProgress | None = on_progress
        self._every_s = every_s
        self._reported = (0, 0)

    def run(self) -> None:
        """Report at intervals, until stopped."""
        while not self.stopped.wait(self._every_s):
            self.report()

    def report(self) -> None:
        """Report once, if the counts have changed."""
        if self._on_progress is None:
            return
        try:
            now = self._jobs.count()
            if now != self._reported:
                self._on_progress(*now)
                self._reported = now
        except Exception:  # noqa: BLE001 - the session is gone, or the screen: the jobs matter more
            self._on_progress = None


class _Jobs:
    """The jobs that started since this was made: Spark numbers jobs consecutively."""

    def __init__(self, tracker: StatusTracker) -> None:
        self._tracker = tracker
        self._next = self._first_unused()
        self._open: list[int] = []
        self._finished = 0

    def count(self) -> tuple[int, int]:
        """Tasks done and tasks known, of all of them."""
        while self._tracker.getJobInfo(self._next) is not None:
            self._open.append(self._next)
            self._next += 1
        done = total = 0
        still_open = []
        stages_seen: set[int] = set()
        for job_id in self._open:
            job = self._tracker.getJobInfo(job_id)
            if job is None:  # forgotten by Spark, after very many others
                continue
            wanted = [stage for stage in job.stageIds if stage not in stages_seen]
            stages = [stage for stage in map(self._tracker.getStageInfo, wanted) if stage]
            stages_seen.update(wanted)
            done_here = sum(stage.numCompletedTasks for stage in stages)
            if job.status == "RUNNING":
                still_open.append(job_id)
                done += done_here
                total += sum(stage.numTasks for stage in stages)
            else:
                # Its tasks that are not done never will be: stages that were skipped.
                self._finished += done_here
        self._open = still_open
        return self._finished + done, self._finished + total

    def _first_unused(self) -> int:
        # `None` stands for the jobs without a group; those of streams have one.
        known = [*self._tracker.getJobIdsForGroup(None), *self._tracker.getActiveJobsIds()]
        unused = max(known, default=-1) + 1
        while self._tracker.getJobInfo(unused) is not None:
            unused += 1
        return unused


@contextmanager
def _connect(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """The same over Spark Connect, which has no status tracker but tells handlers by itself."""
    counts: dict[str | None, tuple[int, int]] = {}

    def handler(
        stages: Iterable["StageInfo"] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,  # noqa: FBT001 - Spark's
    ) -> None:
        del inflight_tasks
        stages = list(stages or ())
        if not stages and operation_id not in counts:
            return
        if stages:
            finished = sum(stage.num_completed_tasks for stage in stages)
            counts[operation_id] = (finished, sum(stage.num_tasks for stage in stages))
        if done:
            finished, _ = counts[operation_id]
            counts[operation_id] = (finished, finished)
        with suppress(Exception):
            on_progress(sum(n for n, _ in counts.values()), sum(n for _, n in counts.values()))

    # PySpark declares an abstract class here, and takes any function.
    declared = cast("ProgressHandler", handler)
    spark.registerProgressHandler(declared)
    try:
        yield
    finally:
        spark.removeProgressHandler(declared)
