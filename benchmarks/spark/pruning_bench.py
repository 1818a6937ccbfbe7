"""What queries cost that need no body: CPU of reading all columns, of `columns`, of the rule.

CPU of this process tree but for Spark's start: the JVM's threads and its Python workers.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import Figure, Result, Skipped, scaled
from store import our_store

from spark import bench_session, source_bench

SIZE = 1024
ROUNDS = 3


def count() -> Iterator[Result]:
    yield from _pruned("spark.count", "queue_id", lambda frame: frame.count())


def tags() -> Iterator[Result]:
    yield from _pruned(
        "spark.count_by_tags", "tags", lambda frame: frame.groupBy("tags").count().collect()
    )


def _pruned(name: str, columns: str, query: Callable[[Any], object]) -> Iterator[Result]:
    """Compare a query on all columns with the same on those it needs, named or found."""
    try:
        spark = bench_session.session()
    except bench_session.NoSparkError as error:
        yield Skipped(name, str(error))
        return
    from rocketlake.spark.optimizer.column_pruning import enable_column_pruning  # noqa: PLC0415

    folder = source_bench.store_of(SIZE)
    own = spark.newSession()
    enable_column_pruning(own)
    frames = {
        "all columns": _frame(spark, folder),
        f"columns={columns}": _frame(spark, folder, columns=columns),
        "the rule": _frame(own, folder),
    }
    seconds: dict[str, list[float]] = {each: [] for each in frames}
    for frame in frames.values():
        query(frame)  # workers and classes are there afterwards
    for _ in range(ROUNDS):
        for each, frame in frames.items():
            begin = cpu_seconds()
            query(frame)
            seconds[each].append(cpu_seconds() - begin)
    best = {each: min(found) for each, found in seconds.items()}
    rows = scaled(source_bench.COUNTS[SIZE], least=source_bench.BATCH)
    detail = ", ".join(f"{each} {used:.2f} s" for each, used in best.items())
    gain = best["all columns"] / best["the rule"]
    yield Figure(name, gain, 2, "x less CPU", detail=f"{rows} messages of {SIZE} B: {detail}")


def _frame(spark: Any, folder: Path, **options: str) -> Any:
    from rocketlake.spark.source import register  # noqa: PLC0415

    register(spark)
    return (
        spark.read.format("rocketlake")
        .options(path=str(folder), topic=our_store.TOPIC, **options)
        .load()
    )


def cpu_seconds() -> float:
    """Return the CPU time of all processes below this one, those that ended too."""
    return sum(_ticks(pid) for pid in _tree()) / os.sysconf("SC_CLK_TCK")


def _tree() -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])


def _ticks(pid: int) -> int:
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) if fields else 0  # its own, and of children that ended


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


WORKLOADS = {"spark.count": count, "spark.count_by_tags": tags}
