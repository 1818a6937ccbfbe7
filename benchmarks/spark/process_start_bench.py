"""What a start of Spark's Python processes costs, and of which our part is how much.

CPU of processes that import what Spark's do, the least of several: `spark.start_task` is a task
that reads, `spark.start_stream` the process of a stream, which must be there within 10 s,
`spark.start_sink` a task that writes; each beside what Spark itself needs. `spark.start_zip` is
what the Python of `rocketlake.spark.session()` saves. `spark.start_first_batch` is the time from
`start()` to the end of a stream's first batch, in a session that has read before.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from measure import Figure, Result, Skipped
from store import our_store

from spark import bench_session

ROUNDS = 7
MESSAGES = 1000
_TASK: Final = "pyspark.worker"
_READ: Final = "pyspark.sql.worker.plan_data_source_read"
_STREAM: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_OURS: Final = {
    "task": (_TASK, _READ, "rocketlake.spark.reading.batch_reader"),
    "stream": (_STREAM, "rocketlake.spark.stream.stream_driver"),
    "sink": (_TASK, "pyspark.sql.datasource", "pyarrow.compute", "rocketlake.spark.sink.writer"),
}


def start() -> Iterator[Result]:
    try:
        import pyspark  # noqa: PLC0415 - it may be missing

        from rocketlake.spark.worker_python import worker_python  # noqa: PLC0415 - it needs Spark
    except ImportError as error:
        yield Skipped("spark.start", str(error))
        return
    for name, modules in _OURS.items():
        spark_alone, whole = _cpu(sys.executable, modules[:-1]), _cpu(sys.executable, modules)
        detail = f"Spark alone {spark_alone:.3f} s"
        yield Figure(
            f"spark.start_{name}", whole - spark_alone, 0.1, "s of CPU", at_most=True, detail=detail
        )
    zips = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
    path = os.pathsep.join(map(str, zips))
    zipped = _cpu(sys.executable, (_STREAM,), path)
    unpacked = _cpu(worker_python(), (_STREAM,), path)
    yield Figure(
        "spark.start_zip", zipped / unpacked, 2, "x the unpacked", detail=f"{zipped:.3f} s"
    )
    yield from _first_batch()


def _cpu(python: str, modules: tuple[str, ...], path: str = "") -> float:
    """Return the least CPU that a process takes to import modules."""
    least = float("inf")
    environment = {**os.environ, "PYTHONPATH": path} if path else None
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, "-c", f"import {', '.join(modules)}"], check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least, spent)
    return least


def _first_batch() -> Iterator[Result]:
    name = "spark.start_first_batch"
    try:
        spark = bench_session.session()
    except bench_session.NoSparkError as error:
        yield Skipped(name, str(error))
        return
    import rocketlake  # noqa: PLC0415 - beside the import of Spark

    with tempfile.TemporaryDirectory() as place:
        store = f"{place}/store"
        with rocketlake.open_store(store) as opened:
            for number in range(MESSAGES):
                opened.put(rocketlake.Message(topic=our_store.TOPIC, body=b"%d" % number))
        options = {"path": store, "topic": our_store.TOPIC}
        bench_session.drain(spark.read.format("rocketlake").options(**options).load())
        took = []
        for turn in range(3):
            frame = spark.readStream.format("rocketlake").options(**options).load()
            writer = frame.writeStream.format("noop").trigger(availableNow=True)
            begin = time.perf_counter()
            writer.option("checkpointLocation", f"{place}/{turn}").start().awaitTermination()
            took.append(time.perf_counter() - begin)
    yield Figure(name, min(took), 10, "s", at_most=True, detail=f"first of three {took[0]:.1f} s")


WORKLOADS = {"spark.start": start}
