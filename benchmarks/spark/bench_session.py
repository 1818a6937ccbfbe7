"""One Spark session for all benchmarks, and how long a read or the peak of a worker is."""

import atexit
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rocketlake.errors import ConfigError

CORES = 2


class NoSparkError(Exception):
    """There is no Spark here, or no Java for it."""


@cache
def session() -> Any:
    """Return the session, the first time opened.

    Raises:
        NoSparkError: it cannot be opened here; says why.
    """
    try:
        from rocketlake.spark.session import check_java, open_session  # noqa: PLC0415

        check_java()
    except (ImportError, ConfigError) as error:
        raise NoSparkError(str(error)) from error
    # Workers see what this program sees: the package, and the sources to compare with.
    path = [str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    place = tempfile.mkdtemp()
    conf = {
        "spark.driver.memory": "2g",
        "spark.local.dir": f"{place}/local",
        "spark.sql.warehouse.dir": f"{place}/warehouse",
    }
    opened = open_session(f"local[{CORES}]", name="benchmarks", conf=conf)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    atexit.register(opened.stop)
    return opened


def drain(frame: Any) -> None:
    """Have every row made and thrown away."""
    frame.write.format("noop").mode("overwrite").save()


def seconds(frame: Any) -> float:
    begin = time.perf_counter()
    drain(frame)
    return time.perf_counter() - begin


def tree_cpu() -> float:
    """Return the CPU seconds of this process, of all below it, and of those that these waited for.

    Why not `getrusage`: it tells of children when they have ended, and Spark's Java runs on.
    """
    ticks, mine = 0, str(os.getpid())
    parents: dict[str, str] = {}
    spent: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[entry.name] = fields[1]
            spent[entry.name] = sum(map(int, fields[11:15]))
    for pid, own in spent.items():
        above = pid
        while above != mine and above in parents:
            above = parents[above]
        ticks += own if above == mine else 0
    return ticks / os.sysconf("SC_CLK_TCK")


# --- workers ------------------------------------------------------------------------------------


def worker_peak() -> int:
    """Return the largest peak of resident bytes among this session's Python workers."""
    return max((_peak(pid) for pid in _workers()), default=0)


def _workers() -> Iterator[int]:
    """Yield the processes that are below this one and below a daemon of PySpark."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    daemons = {pid for pid in parents if b"pyspark.daemon" in _command(pid)}
    for pid, parent in parents.items():
        if parent in daemons and os.getpid() in _ancestors(pid, parents):
            yield pid


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return max(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), default=0
    )
