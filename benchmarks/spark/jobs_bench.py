"""rebuild and verify on Spark: what two cores gain, beside what they gain for bare crc32.

Each side runs on one processor and on two: a process tree with its Java is held there by the
scheduler's affinity, so that "one core" is one. Figures are (one / two) of the job over (one / two)
of crc32 over the same bytes, in the same run.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from measure import Figure, Result, Skipped, scaled
from store import our_store

from rocketlake.model.message import Message

# Why so many: to start a job and to look at the store take half a second, on one core as on two.
BYTES = {"rebuild": 1 << 30, "verify": 8 << 30}
FILE_SIZE = 64 << 20
BODY = 1024
TOPICS = 4
BATCH = 100
ROUNDS = 3
WANTED = 0.8

_JOB = """
import json, os, shutil, sys, time
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:int(sys.argv[2])]))
from rocketlake.spark import jobs
from rocketlake.spark.session import open_session
spark = open_session(f"local[{sys.argv[2]}]")
job, best = getattr(jobs, sys.argv[3]), []
for _ in range(1 + int(sys.argv[4])):  # the first one is to get warm
    begin = time.perf_counter()
    report = job(spark, sys.argv[1])
    best.append(time.perf_counter() - begin)
    shutil.rmtree(os.path.join(sys.argv[1], "repair"), ignore_errors=True)
spark.stop()
print(json.dumps(min(best[1:])))
"""

_CRC = """
import json, os, sys, time, zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:int(sys.argv[2])]))

def crc(path):
    return zlib.crc32(Path(path).read_bytes())

if __name__ == "__main__":
    files = sorted(str(path) for path in Path(sys.argv[1], "commitlog").iterdir())
    with ProcessPoolExecutor(int(sys.argv[2])) as pool:
        list(pool.map(crc, files[:2]))
        best = []
        for _ in range(int(sys.argv[4])):
            begin = time.perf_counter()
            list(pool.map(crc, files))
            best.append(time.perf_counter() - begin)
    print(json.dumps(min(best)))
"""


def rebuild() -> Iterator[Result]:
    yield from _figure("rebuild")


def verify() -> Iterator[Result]:
    yield from _figure("verify")


def _figure(job: str) -> Iterator[Result]:
    name = f"spark.{job}"
    if len(os.sched_getaffinity(0)) < 2:
        yield Skipped(name, "two processors are needed")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "store"
        size = _write(folder, scaled(BYTES[job], least=4 << 20))
        crc = [_run(_CRC, folder, cores, job) for cores in (1, 2)]
        ran = [_run(_JOB, folder, cores, job) for cores in (1, 2)]
    if None in (*crc, *ran):
        yield Skipped(name, "Spark did not run: is Java 17 there?")
        return
    gains = [one / two for one, two in (crc, ran)]
    detail = (
        f"{size / ran[1] / 1e9:.2f} GB/s on 2 cores; gain {gains[1]:.2f} x, crc32 {gains[0]:.2f} x"
    )
    yield Figure(name, gains[1] / gains[0], WANTED, "x crc32's gain", detail=detail)


def _run(code: str, folder: Path, cores: int, job: str) -> float | None:
    command = [sys.executable, "-c", textwrap.dedent(code), str(folder), str(cores), job]
    done = subprocess.run([*command, str(ROUNDS)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr[-2000:])
        return None
    return float(json.loads(done.stdout.splitlines()[-1]))


def _write(folder: Path, total: int) -> int:
    """Fill a store with messages of a few topics and queues, each with a key."""
    body = our_store.body_of(BODY)
    with our_store.opened(folder, file_size=min(FILE_SIZE, total // 4)) as store:
        for topic in range(TOPICS):
            store.create_topic(f"Topic{topic}", queues=4)
        for number in range(0, total // (BODY + 150), BATCH):
            messages = [
                Message(
                    topic=f"Topic{number // BATCH % TOPICS}",
                    body=body,
                    tags="TagA",
                    keys=[f"7F00000100002A9F{number + i:016X}"],
                )
                for i in range(BATCH)
            ]
            store.put_batch(messages, queue_id=number // BATCH // TOPICS % 4)
    return total


WORKLOADS = {"spark.rebuild": rebuild, "spark.verify": verify}
