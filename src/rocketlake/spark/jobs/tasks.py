"""Plain functions as Spark tasks: arguments in, values out, both pickled."""

import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from rocketlake.errors import StoreNotFoundError
from rocketlake.spark.wording import reworded
from rocketlake.spark.worker_process import tune_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Argument = TypeVar("Argument")
Value = TypeVar("Value")

_TASKS_MAX: Final = 256
_LAST_TASKS: Final = 16
"""The last tasks of a core are one part in so many of its work."""


def session() -> "SparkSession":
    """Return the session there is, or one on this machine."""
    from rocketlake.spark.session import open_session  # noqa: PLC0415 - not on executors

    return open_session()


def seeing(path: Path, action: Callable[[Argument], Value]) -> Callable[[Argument], Value]:
    """Return a function that first makes sure that its process sees a directory.

    Why: to a reader, a file that is not there is one that expired.
    """

    def checked(argument: Argument) -> Value:
        if not path.is_dir():
            raise StoreNotFoundError(
                f"the executor on {socket.gethostname()} cannot see {path}; it must be a shared or "
                "copied directory"
            )
        return action(argument)

    return checked


def map_on(
    spark: "SparkSession",
    action: Callable[[Argument], Value],
    arguments: Sequence[Argument],
    *,
    weight: Callable[[Argument], float] = lambda _: 1.0,
) -> list[Value]:
    """Return what a function makes of each argument, in order; tasks have neighbours together.

    `weight` is about how long an argument takes, in any unit.

    Raises:
        RocketLakeError: a task failed; the text is the executor's.
    """
    if not arguments:
        return []
    weights = [weight(argument) for argument in arguments]
    cores = _fixed_cores(spark)
    bounds = even_bounds(weights, _TASKS_MAX) if cores is None else falling_bounds(weights, cores)
    pieces = [list(arguments[begin:end]) for begin, end in pairwise(bounds)]
    count = len(pieces)
    try:
        numbers = spark.range(0, count, 1, count)
        rows = numbers.mapInArrow(_task(action, pieces), "number long, value binary").collect()
    except Exception as error:
        raise reworded(error) from error
    found = {row.number: row.value for row in rows}
    # What comes back was made by our own code in our own tasks.
    return [value for n in range(count) for value in pickle.loads(found[n])]  # noqa: S301


def _fixed_cores(spark: "SparkSession") -> int | None:
    """Return how many cores work on a job; None if a cluster may get more while it runs."""
    from rocketlake.spark.session import is_connect  # noqa: PLC0415 - not on executors

    if is_connect(spark):
        return None
    context = spark.sparkContext
    is_fixed = str(context.master).startswith("local[") or context.master == "local"
    return int(context.defaultParallelism) if is_fixed else None


def even_bounds(weights: Sequence[float], tasks: int) -> list[int]:
    """Return where arguments are cut into at most so many tasks of about one weight."""
    each = np.array(weights, np.float64)
    ends = np.cumsum(each)
    wanted = ends[-1] * np.arange(1, tasks) / tasks
    inner = np.searchsorted(ends - each / 2, wanted)
    return sorted({0, *inner.tolist(), len(weights)})


def falling_bounds(weights: Sequence[float], cores: int) -> list[int]:
    """Return where arguments are cut into tasks that become smaller towards the end.

    Why: a task costs some 50 ms, so few are better; and a core that has no more work waits for the
    longest task of the others, so that the last ones must be short.
    """
    left = sum(weights)
    least = left / (cores * _LAST_TASKS)
    bounds, held = [0], 0.0
    wanted = left / (2 * cores)
    for number, weight in enumerate(weights):
        if held and held + weight / 2 > wanted:
            bounds.append(number)
            left -= held
            held, wanted = 0.0, max(left / (2 * cores), least)
        held += weight
    return [*bounds, len(weights)]


def _task(
    action: Callable[[Argument], Value], pieces: Sequence[Sequence[Argument]]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        tune_worker()
        for batch in batches:
            numbers = batch.column(0)
            values = [
                pickle.dumps([action(argument) for argument in pieces[number]])
                for number in numbers.to_pylist()
            ]
            yield pa.record_batch([numbers, pa.array(values, pa.binary())], ["number", "value"])

    return run
