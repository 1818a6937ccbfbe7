"""Runs the executors' part of a plan, and yields the parts in order while others are still made."""

import contextlib
import shutil
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from uuid import uuid4

import pyarrow as pa

from rocketlake.errors import StoreError
from rocketlake.spark.jobs.dispatch import staging
from rocketlake.spark.jobs.dispatch.parts import LogShape, Part, tasks_of
from rocketlake.spark.jobs.dispatch.unit_blocks import PartResult, Rules, make_part
from rocketlake.spark.wording import reworded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S: Final = 0.005


Results = Generator[PartResult, None, None]
"""Parts in order; closing it ends what still runs."""


ArrowAction = Callable[[Iterator[Any]], Iterator[Any]]
"""What an executor makes of record batches."""


class Runner(Protocol):
    """Makes parts, with or without Spark."""

    def run(self, shape: LogShape, parts: Sequence[Part], rules: Rules) -> Results:
        """Yield the result of each part, in order."""
        ...


class SparkRunner:
    """Makes parts as tasks of one Spark job, which stage them in a directory.

    The driver takes them while later ones are made; its memory holds one part.
    """

    def __init__(self, spark: "SparkSession", place: Path) -> None:
        """`place` is a directory that executors can write and the driver can read."""
        self._spark = spark
        self._place = place

    def run(self, shape: LogShape, parts: Sequence[Part], rules: Rules) -> Results:
        """Yield the result of each part, in order.

        Raises:
            RocketLakeError: a task failed; the text is the executor's.
        """
        if not parts:
            return
        place = self._place / uuid4().hex
        place.mkdir(parents=True)
        tasks = tasks_of(parts)
        job = _Job(self._spark, _stage_tasks(shape, tasks, rules, place), len(tasks), place)
        job.start()
        try:
            for part in parts:
                job.wait_for(part.number)
                yield staging.load(place, part.number)
                staging.drop(place, part.number)
        finally:
            job.stop()
            shutil.rmtree(place, ignore_errors=True)


class _Job(threading.Thread):
    """One Spark job, in a thread of its own."""

    def __init__(self, spark: "SparkSession", action: ArrowAction, count: int, place: Path) -> None:
        super().__init__(name="rocketlake-spark-job", daemon=True)
        self._spark = spark
        self._place = place
        self._tag = f"rocketlake-{place.name}"
        self._count = count
        self._action = action
        self._is_done = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Run the job to its end."""
        try:
            self._spark.addTag(self._tag)
            numbers = self._spark.range(0, self._count, 1, self._count)
            numbers.mapInArrow(self._action, "done long").collect()
        except Exception as error:  # noqa: BLE001 - the driver's thread raises it
            self._error = error
        finally:
            self._is_done.set()

    def wait_for(self, number: int) -> None:
        """Wait until a part is there.

        Raises:
            RocketLakeError: the job failed.
        """
        while not staging.is_staged(self._place, number):
            if self._is_done.wait(_LOOK_S):
                if self._error is not None:
                    raise reworded(self._error) from self._error
                if not staging.is_staged(self._place, number):
                    raise StoreError(
                        "Spark's tasks are done, but what they staged cannot be seen here; the "
                        "staging directory must be shared by driver and executors"
                    )

    def stop(self) -> None:
        """End the job if it still runs, and wait for it."""
        if not self._is_done.is_set():
            with contextlib.suppress(Exception):  # the session may be gone
                self._spark.interruptTag(self._tag)
        self.join()


def _stage_tasks(
    shape: LogShape, tasks: list[list[Part]], rules: Rules, place: Path
) -> ArrowAction:
    """Return what an executor does: the tasks whose numbers it is given."""

    def action(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in tasks[number]:
                    if not staging.is_staged(place, part.number):
                        staging.stage(make_part(shape, part, rules), place)
            yield pa.record_batch([batch.column(0)], names=["done"])

    return action


def as_runner(runner: "Runner | SparkSession", place: Path) -> Runner:
    """Return what runs tasks: what was given, or a session with a directory to stage in."""
    return SparkRunner(runner, place) if not hasattr(runner, "run") else cast(Runner, runner)
