"""How the CPU of a row grows with messages and with queues: source, stream, sink and jobs.

    python benchmarks/run.py scaling               1 to 8 million messages; 1,000 to 10,000 queues
    python benchmarks/run.py --scale 0.05 scaling  with a twentieth of the messages: does it run?

CPU seconds are those of the process tree (this process, Spark's Java, its Python workers), so that
neighbours on the machine count little. From each the CPU of the same job on a store of 2,000
messages in 8 queues is taken off; the exponent is the slope of what is left over rows, both as
logarithms. 1 is linear. Below a second of CPU left no exponent is given: it would be that of the
noise.
"""

import json
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from measure import Figure, Result, Skipped, scaled
from store import our_store

import rocketlake
from rocketlake.model.message import Message
from spark import bench_session

MESSAGES = (1_000_000, 2_000_000, 4_000_000, 8_000_000)
QUEUES = (1_000, 3_000, 10_000)
PER_QUEUE = 100
QUEUES_PER_TOPIC = 100
BODY = 100
BATCH = 25
SMALL = (2_000, 8)
ROUNDS = 2
"""Of each job on each store; the least counts."""
EXPONENT_MAX = 1.05
LEAST_CPU_S = 1.0
PLAN_MS = 0.1
TRIGGERS = 5
CHANGED = 100
"""Queues that get messages between two micro-batches."""

SIZES = {
    "mapped_file_size_commit_log": 256 << 20,
    "mapped_file_size_consume_queue": 20 * 12_000,
}


@dataclass(frozen=True)
class Shape:
    """How many messages are in how many queues."""

    messages: int
    queues: int

    @property
    def topics(self) -> int:
        return -(-self.queues // QUEUES_PER_TOPIC)

    def __str__(self) -> str:
        return f"{self.messages:,} messages in {self.queues:,} queues"


Job = Callable[[Any, Path, Shape], None]


# --- jobs ---------------------------------------------------------------------------------------


def read_batch(spark: Any, store: Path, _shape: Shape) -> None:
    frame = spark.read.format("rocketlake").option("path", str(store))
    bench_session.drain(frame.option("topicPattern", "Scale.*").load())


def read_stream(spark: Any, store: Path, shape: Shape) -> None:
    with _folder() as place:
        frame = spark.readStream.format("rocketlake").option("path", str(store))
        frame = frame.option("topicPattern", "Scale.*")
        frame = frame.option("maxOffsetsPerTrigger", -(-shape.messages // TRIGGERS)).load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{place}/checkpoint").start().awaitTermination()


def write_batch(spark: Any, _store: Path, shape: Shape) -> None:
    with _folder() as place:
        with rocketlake.open_store(place / "store", **SIZES) as store:
            _create_topics(store, shape)
        rows = spark.range(0, shape.messages, numPartitions=bench_session.CORES)
        queue = f"cast(id div {BATCH} % {shape.queues} as int)"
        rows = rows.selectExpr(
            f"concat('Scale', {queue} div {QUEUES_PER_TOPIC}) as topic",
            f"cast({queue} % {QUEUES_PER_TOPIC} as int) as queue_id",
            f"cast(repeat('x', {BODY}) as binary) as body",
        )
        writer = rows.write.format("rocketlake").option("path", str(place / "store"))
        writer.mode("append").save()


def archive(spark: Any, store: Path, _shape: Shape) -> None:
    from rocketlake.spark import jobs  # noqa: PLC0415 - needs Spark

    with _folder() as place:
        jobs.archive(spark, store, place / "archive")


def verify(spark: Any, store: Path, _shape: Shape) -> None:
    from rocketlake.spark import jobs  # noqa: PLC0415 - needs Spark

    report = jobs.verify(spark, store)
    assert report.summary.is_sound, report.faults[:3]


def rebuild(spark: Any, store: Path, _shape: Shape) -> None:
    from rocketlake.spark import jobs  # noqa: PLC0415 - needs Spark

    jobs.rebuild(spark, store)
    shutil.rmtree(store / "repair", ignore_errors=True)


JOBS: dict[str, Job] = {
    "source": read_batch,
    "stream": read_stream,
    "sink": write_batch,
    "archive": archive,
    "verify": verify,
    "rebuild": rebuild,
}


# --- series -------------------------------------------------------------------------------------


def by_messages() -> Iterator[Result]:
    shapes = [Shape(scaled(count, least=20_000), QUEUES[0]) for count in MESSAGES]
    yield from _series("messages", shapes)


def by_queues() -> Iterator[Result]:
    counts = [scaled(queues, least=100 * number) for number, queues in enumerate(QUEUES, 1)]
    yield from _series("queues", [Shape(queues * PER_QUEUE, queues) for queues in counts])


def _series(name: str, shapes: Sequence[Shape]) -> Iterator[Result]:
    """Measure every job on a store of each shape; the stores are made one at a time."""
    try:
        spark = _session()
    except bench_session.NoSparkError as error:
        yield Skipped(f"scaling.{name}", str(error))
        return
    spent: dict[str, list[float]] = {job: [] for job in JOBS}
    for shape in shapes:
        with _store(shape) as store:
            for job, run in JOBS.items():
                spent[job].append(_cpu_of(run, spark, store, shape))
    for job in JOBS:
        yield _growth(f"scaling.{name}.{job}", shapes, spent[job], _fixed()[job])


def _growth(name: str, shapes: Sequence[Shape], spent: Sequence[float], fixed: float) -> Figure:
    rows = [shape.messages for shape in shapes]
    left = [seconds - fixed for seconds in spent]
    per_row = ", ".join(
        f"{seconds / count * 1e6:.2f}" for seconds, count in zip(left, rows, strict=True)
    )
    detail = (
        f"{per_row} us of CPU a row at {', '.join(f'{count:,}' for count in rows)} rows;"
        f" {fixed:.2f} s fixed"
    )
    if min(left) < LEAST_CPU_S:
        return Figure(
            name, max(left), None, "s of CPU", detail=f"too little for an exponent; {detail}"
        )
    return Figure(name, slope(rows, left), EXPONENT_MAX, "exponent", True, detail)


def slope(rows: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent of the power of rows that fits best."""
    xs, ys = [math.log(row) for row in rows], [math.log(value) for value in seconds]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


# --- planning -----------------------------------------------------------------------------------


def planning() -> Iterator[Result]:
    """A plan with the opening of the store, and a micro-batch that finds messages in few queues."""
    try:
        from rocketlake.spark.reading.batch_reader import make_reader  # noqa: PLC0415
        from rocketlake.spark.reading.options import SourceOptions  # noqa: PLC0415
    except ImportError as error:
        yield Skipped("scaling.plan", str(error))
        return
    counts = [scaled(queues, least=100 * number) for number, queues in enumerate(QUEUES, 1)]
    plans = []
    for queues in counts:
        shape = Shape(queues * PER_QUEUE, queues)
        with _store(shape) as store:
            given = {"path": str(store), "topicPattern": "Scale.*"}
            schema = SourceOptions.parse(given).schema
            plans.append(min(_seconds(make_reader(given, schema).partitions) for _ in range(4)))
            batch_ms, json_bytes = _micro_batch(store, shape)
    per_queue = [seconds / queues * 1e3 for seconds, queues in zip(plans, counts, strict=True)]
    detail = ", ".join(f"{ms:.3f}" for ms in per_queue) + f" ms at {counts} queues"
    yield Figure("scaling.plan", max(per_queue), PLAN_MS, "ms a queue", True, detail)
    yield Figure("scaling.plan_growth", slope(counts, plans), EXPONENT_MAX, "exponent", True)
    detail = f"{CHANGED} queues of {counts[-1]:,} got messages, {json_bytes} bytes of offset"
    yield Figure("scaling.micro_batch", batch_ms, 50, "ms of CPU", True, detail)


def _micro_batch(path: Path, shape: Shape) -> tuple[float, int]:
    from rocketlake.spark.reading.options import SourceOptions  # noqa: PLC0415
    from rocketlake.spark.stream.stream_reader import make_stream_reader  # noqa: PLC0415

    given = {"path": str(path), "topicPattern": "Scale.*", "startingOffsets": "latest"}
    reader = make_stream_reader(given, SourceOptions.parse(given).schema)
    limit = reader.getDefaultReadLimit()
    chance = random.Random(14)
    spent, size = [], 0
    with rocketlake.open_store(path, **SIZES, message_index_enable=False) as store:
        at = _kept(reader.latestOffset(_kept(reader.initialOffset()), limit))
        for _ in range(10):
            for number in chance.sample(range(shape.queues), min(CHANGED, shape.queues)):
                _put(store, number, 10)
            store.flush()
            begin = time.process_time()
            new = _kept(reader.latestOffset(at, limit))
            reader.partitions(at, new)
            reader.reportLatestOffset()
            spent.append(time.process_time() - begin)
            size, at = len(json.dumps(new)), new
    reader.stop()
    return min(spent) * 1e3, size


def _kept(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


# --- stores -------------------------------------------------------------------------------------


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


@contextmanager
def _store(shape: Shape) -> Iterator[Path]:
    with _folder() as place:
        path = place / "store"
        with rocketlake.open_store(path, **SIZES) as store:
            _create_topics(store, shape)
            for number in range(0, shape.messages, BATCH):
                count = min(BATCH, shape.messages - number)
                _put(store, number // BATCH % shape.queues, count, first=number)
        os.sync()
        yield path


def _create_topics(store: Any, shape: Shape) -> None:
    for number in range(shape.topics):
        store.create_topic(f"Scale{number}", queues=min(QUEUES_PER_TOPIC, shape.queues))


def _put(store: Any, queue: int, count: int, *, first: int = 0) -> None:
    body = our_store.body_of(BODY)
    messages = [
        Message(
            topic=f"Scale{queue // QUEUES_PER_TOPIC}",
            body=body,
            tags="TagA",
            keys=[f"k{first + number}"],
        )
        for number in range(count)
    ]
    store.put_batch(messages, queue_id=queue % QUEUES_PER_TOPIC)


# --- CPU ----------------------------------------------------------------------------------------


@cache
def _session() -> Any:
    spark = bench_session.session()
    from rocketlake.spark.source import register  # noqa: PLC0415 - needs Spark

    register(spark)
    return spark


@cache
def _fixed() -> dict[str, float]:
    """Return the CPU of each job on next to nothing; this also gets them warm."""
    spark, shape = _session(), Shape(*SMALL)
    with _store(shape) as store:
        return {job: _cpu_of(run, spark, store, shape) for job, run in JOBS.items()}


def _cpu_of(run: Job, spark: Any, store: Path, shape: Shape) -> float:
    return min(_cpu(lambda: run(spark, store, shape)) for _ in range(ROUNDS))


def _cpu(action: Callable[[], object]) -> float:
    begin = bench_session.tree_cpu()
    action()
    return bench_session.tree_cpu() - begin


def _seconds(action: Callable[[], object]) -> float:
    """Return the CPU of what starts no other process, more finely than the system counts."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


WORKLOADS = {
    "scaling.plan": planning,
    "scaling.messages": by_messages,
    "scaling.queues": by_queues,
}
