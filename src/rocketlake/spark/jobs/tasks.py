"""Plain functions as Spark tasks: arguments in, values out, both pickled."""

import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from rocketlake.errors import StoreNotFoundError
from rocketlake.spark.wording import reworded
from rocketlake.spark.worker_process import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Argument = TypeVar("Argument")
Value = TypeVar("Value")

_TASKS_MAX: Final = 256
_TASKS_PER_CORE: Final = 3


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
    spark: "SparkSession", action: Callable[[Argument], Value], arguments: Sequence[Argument]
) -> list[Value]:
    """Return what a function makes of each argument, in order; tasks have neighbours together.

    Raises:
        RocketLakeError: a task failed; the text is the executor's.
    """
    if not arguments:
        return []
    count = min(len(arguments), _tasks_max(spark))
    bounds = [len(arguments) * number // count for number in range(count + 1)]
    pieces = [list(arguments[bounds[n] : bounds[n + 1]]) for n in range(count)]
    try:
        numbers = spark.range(0, count, 1, count)
        rows = numbers.mapInArrow(_task(action, pieces), "number long, value binary").collect()
    except Exception as error:
        raise reworded(error) from error
    found = {row.number: row.value for row in rows}
    # What comes back was made by our own code in our own tasks.
    return [value for n in range(count) for value in pickle.loads(found[n])]  # noqa: S301


def _tasks_max(spark: "SparkSession") -> int:
    """Return how many tasks are enough for all cores; each costs some 50 ms."""
    from rocketlake.spark.session import is_connect  # noqa: PLC0415 - not on executors

    if is_connect(spark):
        return _TASKS_MAX
    context = spark.sparkContext
    # A cluster may get more cores while the job runs.
    is_fixed = str(context.master).startswith("local[") or context.master == "local"
    return context.defaultParallelism * _TASKS_PER_CORE if is_fixed else _TASKS_MAX


def _task(
    action: Callable[[Argument], Value], pieces: Sequence[Sequence[Argument]]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        settle_worker()
        for batch in batches:
            numbers = batch.column(0)
            values = [
                pickle.dumps([action(argument) for argument in pieces[number]])
                for number in numbers.to_pylist()
            ]
            yield pa.record_batch([numbers, pa.array(values, pa.binary())], ["number", "value"])

    return run
