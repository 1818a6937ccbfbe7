"""The sink as Spark runs it: retries, streams, killed drivers, and what a user reads."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sink_queries import run_query

import rocketlake
from rocketlake.store.offline import OfflineStore
from support.sink_kit import assert_sound, bodies, leftovers, once

HERE = Path(__file__).parent


def failing_once(rows: DataFrame) -> DataFrame:
    """Let the first attempt of every task fail when it has written half of its rows."""

    def pass_on(batches):
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if context.attemptNumber() == 0:
                raise ValueError("the first attempt fails")
            yield batch.slice(batch.num_rows // 2)

    return rows.mapInArrow(pass_on, rows.schema)


def all_bodies(path: Path) -> Counter[bytes]:
    """Return how often each body is in the store, delayed or not."""
    with OfflineStore(path) as store:
        return Counter(
            message.body
            for key in store.queues
            for batch in store.messages(key)
            for message in batch.columns.messages()
        )


def test_batch_write_with_failing_attempts_and_a_write_id(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    rows = spark.range(0, 400, numPartitions=2).selectExpr(
        "format_string('%06d', id) as body",
        "concat('k', id) as keys",
        "map('n', string(id), 'TAGS', 'm') as properties",
        "'t' as tags",
        "if(id = 7, timestamp_millis(0), null) as deliver_at",
    )

    def write(frame: DataFrame, **options: str) -> None:
        writer = frame.write.format("rocketlake").options(path=str(path), topic="orders", **options)
        writer.mode("append").save()

    write(failing_once(rows), writeId="load 1")
    write(rows, writeId="load 1")
    assert bodies(path) == once(range(400))
    assert leftovers(path) == []
    with rocketlake.open_store(path) as store:
        (found,) = store.query("orders", "k17")
        assert (found.body, found.tags, found.properties["n"]) == (b"000017", "m", "17")
        with pytest.raises(PySparkException) as caught:
            write(rows.limit(1), lockTimeout="0s")
        assert f"process {os.getpid()} has it open. A store has one writer" in str(caught.value)
    with pytest.raises(PySparkException, match="only appended to"):
        rows.write.format("rocketlake").option("path", str(path)).mode("overwrite").save()
    with pytest.raises(PySparkException, match="'id' is not a message column"):
        write(spark.range(1).selectExpr("id", "'x' as body"))
    assert bodies(path) == once(range(400))
    assert_sound(path)


def write_lines(folder: Path, number: int, first: int, end: int) -> None:
    """Add a file to a stream; files are read in the order of their times."""
    folder.mkdir(exist_ok=True)
    fresh = folder / f".{number}"
    fresh.write_text("".join(f"{n:06d}\n" for n in range(first, end)))
    os.utime(fresh, (1_700_000_000 + number, 1_700_000_000 + number))
    fresh.rename(folder / f"{number}.txt")


def run_to_death(tmp_path: Path, moment: str) -> None:
    """Run the query in a process of its own until it is killed."""
    paths = [str(HERE / "dying"), str(HERE), *sys.path]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "ROCKETLAKE_SINK_KILL": moment,
    }
    command = [sys.executable, str(HERE / "dying_query.py"), *places(tmp_path)]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        timeout=600,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


def places(tmp_path: Path) -> tuple[str, str, str]:
    return tuple(str(tmp_path / name) for name in ("s", "in", "checkpoint"))  # type: ignore[return-value] # three


def test_stream_whose_driver_is_killed_writes_every_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed in the middle of an append, then when it was done and Spark did not know it yet."""
    path = tmp_path / "s"
    write_lines(tmp_path / "in", 0, 0, 100)
    write_lines(tmp_path / "in", 1, 100, 200)
    run_to_death(tmp_path, "piece.after:12")
    assert 0 < len(all_bodies(path)) < 200
    run_to_death(tmp_path, "done.after:0")
    write_lines(tmp_path / "in", 2, 200, 250)
    run_query(spark, *places(tmp_path))
    assert all_bodies(path) == once(range(250))
    assert bodies(path) == once(n for n in range(250) if n % 10)
    write_lines(tmp_path / "in", 3, 250, 260)
    run_query(spark, *places(tmp_path))
    assert all_bodies(path) == once(range(260))
    assert leftovers(path) == []
    assert_sound(path)
