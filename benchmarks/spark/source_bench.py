"""The batch source, into the `noop` sink, against a source that yields one constant batch.

Messages carry the seven properties that a client and a broker leave. Both sides have the same
columns, batches and partitions, and take turns in the same session.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import corpus
import pyarrow as pa
from measure import Figure, Result, Skipped, best_of, scaled
from store import our_store

from rocketlake.model.message import Message
from rocketlake.store.offline import OfflineStore
from spark import bench_session

ROUNDS = 5
QUEUES = 8
BATCH = 100
COUNTS = {100: 1_500_000, 1024: 400_000}
FEW = ("queue_id", "queue_offset", "store_timestamp")

LARGE_BYTES, SMALL_BYTES = 2 << 30, 64 << 20
LARGE_BODY = 4096

Shape = tuple[pa.RecordBatch, list[int]]
"""A batch, and the rows of each partition."""


@dataclass(frozen=True)
class Sides:
    """A read of the store, and the same shape from the constant source; each gives seconds."""

    store: Callable[[], None]
    constant: Callable[[], None]
    rows: int


def source_100b() -> Iterator[Result]:
    yield from _against_constant("spark.source_100b", 100)


def source_1k() -> Iterator[Result]:
    yield from _against_constant("spark.source_1k", 1024)


def subset() -> Iterator[Result]:
    try:
        every, few = _sides(100, None), _sides(100, FEW)
    except bench_session.NoSparkError as error:
        yield Skipped("spark.subset", str(error))
        return
    whole, part, constant = best_of(ROUNDS, every.store, few.store, few.constant)
    detail = (
        f"{', '.join(FEW)}: {_rate(few.rows, part)}; constant batch {_rate(few.rows, constant)}"
    )
    yield Figure("spark.subset", whole / part, 3, "x all columns", detail=detail)


def no_body() -> Iterator[Result]:
    for size, text in ((100, "100b"), (1024, "1k")):
        name = f"spark.no_body_{text}"
        try:
            every, rest = _sides(size, None), _sides(size, _all_but("body"))
        except bench_session.NoSparkError as error:
            yield Skipped(name, str(error))
            return
        ours, ours_less, ceiling, ceiling_less = best_of(
            ROUNDS, every.store, rest.store, every.constant, rest.constant
        )
        gain, possible = ours / ours_less, ceiling / ceiling_less
        detail = f"gains {gain:.2f} x, the constant batch {possible:.2f} x"
        yield Figure(name, gain / possible, 0.9, "x the gain", detail=detail)


def memory() -> Iterator[Result]:
    """Peak of the largest worker: with a small log, and then with a large one."""
    try:
        spark = bench_session.session()
    except bench_session.NoSparkError as error:
        yield Skipped("spark.memory", str(error))
        return
    peaks = []
    for size in (SMALL_BYTES, LARGE_BYTES):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            per_record = LARGE_BODY + 250
            _fill(folder, LARGE_BODY, scaled(size // per_record, least=BATCH))
            with OfflineStore(folder) as store:
                log = store.max_offset
            bench_session.drain(_frame(spark, folder, None))
            peaks.append((bench_session.worker_peak(), log))
    (small, small_log), (large, large_log) = peaks
    detail = f"{_peak_text(large, large_log)}, {_peak_text(small, small_log)}"
    yield Figure("spark.memory", large / small, 1.3, "x small log", True, detail)


def _peak_text(peak: int, log: int) -> str:
    return f"{peak >> 20} MiB for a log of {log >> 20} MiB"


# --- sides --------------------------------------------------------------------------------------


def _against_constant(name: str, size: int) -> Iterator[Result]:
    try:
        sides = _sides(size, None)
    except bench_session.NoSparkError as error:
        yield Skipped(name, str(error))
        return
    ours, ceiling = best_of(ROUNDS, sides.store, sides.constant)
    detail = f"{_rate(sides.rows, ours)}; constant batch {_rate(sides.rows, ceiling)}"
    yield Figure(name, ceiling / ours, 0.7, "x constant batch", detail=detail)


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds / 1e6:.2f} M rows/s"


@cache
def _sides(size: int, columns: tuple[str, ...] | None) -> Sides:
    """Return both sides for bodies of a size and some columns, warmed up."""
    spark = bench_session.session()
    folder = store_of(size)
    frame = _frame(spark, folder, columns)
    other = _constant(spark, folder, frame.schema, _shape(folder, frame.schema))
    expected = scaled(COUNTS[size], least=BATCH)
    for each in (frame, other):
        assert each.count() == expected, "both sides have all rows"
    return Sides(lambda: bench_session.drain(frame), lambda: bench_session.drain(other), expected)


def _frame(spark: Any, folder: Path, columns: Sequence[str] | None) -> Any:
    from rocketlake.spark.schema import MESSAGE_SCHEMA  # noqa: PLC0415
    from rocketlake.spark.source import register  # noqa: PLC0415

    register(spark)
    reader = spark.read.format("rocketlake").option("path", str(folder))
    if columns is not None:
        fields = {field.name: field for field in MESSAGE_SCHEMA.fields}
        reader = reader.schema(type(MESSAGE_SCHEMA)([fields[name] for name in columns]))
    return reader.option("topic", our_store.TOPIC).load()


def _shape(folder: Path, schema: Any) -> Shape:
    """Return the first batch of a read, and the rows of each partition."""
    from rocketlake.spark.reading.batch_reader import make_reader  # noqa: PLC0415

    reader = make_reader({"path": str(folder), "topic": our_store.TOPIC}, schema)
    rows, first = [], None
    for partition in reader.partitions():
        count = 0
        for batch in reader.read(partition):
            first = batch if first is None else first
            count += batch.num_rows
        rows.append(count)
    assert first is not None, "the store has messages"
    return first, rows


def _constant(
    spark: Any, folder: Path, schema: Any, shape: tuple[pa.RecordBatch, list[int]]
) -> Any:
    from spark.constant import ConstantSource  # noqa: PLC0415

    batch, parts = shape
    spark.dataSource.register(ConstantSource)
    path = folder / f"constant-{len(schema)}.arrow"
    with pa.ipc.new_stream(str(path), batch.schema) as stream:
        stream.write_batch(batch)
    reader = spark.read.format("constant").option("file", str(path)).schema(schema)
    return reader.option("rows", ",".join(map(str, parts))).load()


def _all_but(name: str) -> tuple[str, ...]:
    from rocketlake.spark.schema import MESSAGE_SCHEMA  # noqa: PLC0415

    return tuple(each for each in MESSAGE_SCHEMA.names if each != name)


# --- stores -------------------------------------------------------------------------------------


@cache
def store_of(size: int) -> Path:
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _fill(Path(place), size, scaled(COUNTS[size], least=BATCH))
    return Path(place)


def _fill(folder: Path, size: int, count: int) -> None:
    """Write messages to a few queues in turn, as clients and a broker leave them."""
    body = our_store.body_of(size)
    with our_store.opened(folder, message_index_enable=False) as store:
        for number in range(0, count, BATCH):
            messages = [
                Message(
                    topic=our_store.TOPIC,
                    body=body,
                    tags="TagA",
                    keys=[f"order-{number + i}"],
                    properties=corpus.client_properties(number + i),
                )
                for i in range(min(BATCH, count - number))
            ]
            store.put_batch(messages, queue_id=number // BATCH % QUEUES)


WORKLOADS = {
    "spark.source_100b": source_100b,
    "spark.source_1k": source_1k,
    "spark.subset": subset,
    "spark.no_body": no_body,
    "spark.memory": memory,
}
