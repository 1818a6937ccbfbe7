"""The driver of the tests' cluster: a process of its own that takes one step per line of JSON.

The environment of this process has rocketlake, that of the executors has not; so what Spark's Java
hands on to them must not name this source tree.
"""

import contextlib
import io
import json
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.pop("PYTHONPATH", None)

import msgspec
from hashing import read
from hindered import HinderedDataSource

import rocketlake
from rocketlake.cli.main import main as main_command
from rocketlake.spark import jobs
from rocketlake.spark.session import command_session
from rocketlake.spark.wording import reworded

EXECUTORS = 2
DEADLINE_S = 300


def what_executors_have(spark, **_):
    """Python, place and kernel of rocketlake on each executor."""

    def look(_):
        import rocketlake  # noqa: PLC0415 - that of the executor

        return sys.prefix, rocketlake.__file__, rocketlake.KERNEL

    found = set()
    deadline = time.monotonic() + DEADLINE_S
    while len({prefix for prefix, _, _ in found}) < EXECUTORS and time.monotonic() < deadline:
        found.update(spark.sparkContext.parallelize(range(8), 8).map(look).collect())
    return {
        "prefixes": sorted({prefix for prefix, _, _ in found}),
        "places": sorted({place for _, place, _ in found}),
        "kernels": sorted({kernel for _, _, kernel in found}),
        "driver": [sys.prefix, rocketlake.__file__, rocketlake.KERNEL],
    }


def read_killed(spark, *, options, kill):
    """Read, and kill an executor, or a Python worker of it, in the middle of the first part."""
    marks = Path(options["marks"])
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read, spark, options=options, name="rocketlake_hindered")
        begun = marks / "begun-0-0"
        while not reading.done() and not begun.exists():
            time.sleep(0.02)
        if begun.exists():
            pid = int(begun.read_text())
            os.kill(executor_of(pid) if kill == "executor" else pid, signal.SIGKILL)
        (marks / "go").touch()
        return {**reading.result(), "begun": sorted(mark.name for mark in marks.glob("begun-*"))}


def executor_of(pid):
    """The Java process above a Python worker."""
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


def write(spark, *, options, target):
    """Copy the messages of a store into another one."""
    frame = spark.read.format("rocketlake").options(**options).load()
    wanted = frame.select("topic", "body", "keys", "tags", "queue_id").repartition(4)
    wanted.write.format("rocketlake").mode("append").options(**target).save()


def archive(spark, *, store, directory):
    """Run a job; how many rows it wrote."""
    told = []
    report = jobs.archive(spark, store, directory, on_progress=lambda *n: told.append(n))
    rows = spark.read.parquet(*map(str, Path(directory).rglob("*.parquet"))).count()
    return {"lines": list(report.lines()), "rows": rows, "told": told[-1:]}


def job(spark, *, name, store):
    """Run a job that keeps a store; its report."""
    return msgspec.to_builtins(getattr(jobs, name)(spark, store))


def command(spark, *, words):
    """Run a command, which takes the session that there is; its exit code and all that it said."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main_command.main(words, prog_name="rocketlake", standalone_mode=False)
    said.seek(0)
    return {"code": code or 0, "said": said.read()}


STEPS = {
    step.__name__: step
    for step in (what_executors_have, read, read_killed, write, archive, job, command)
}


def main():
    given = json.loads(sys.stdin.readline())
    with command_session(given["master"], name="cluster tests", conf=given["conf"]) as spark:
        spark.dataSource.register(HinderedDataSource)
        answer({"ready": spark.version})
        for line in sys.stdin:
            step = json.loads(line)
            try:
                answer({"answer": STEPS[step.pop("step")](spark, **step)})
            except Exception as error:  # noqa: BLE001 - the test judges it
                answer({"error": str(reworded(error)), "whole": traceback.format_exc()})


def answer(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
