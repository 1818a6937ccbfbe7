"""`rocketlake dump --json` of a million messages: rate and memory of the whole command."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
from measure import Figure

COUNT = 1_000_000
COMMAND = """
import sys
from rocketlake.cli.main import run
sys.argv[0] = "rocketlake"
try:
    run()
finally:
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            print(line.split()[1], file=sys.stderr)
"""


def dump_json() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        corpus.store(root, COUNT, 100)
        log_size = sum(path.stat().st_size for path in (root / "commitlog").iterdir())
        seconds, peak = min(_run(root) for _ in range(3))
        rate = COUNT / seconds
        yield Figure("dump.json", rate, 200_000, "messages/s", detail=f"{seconds:.2f} s in all")
        detail = f"log of {log_size >> 20} MiB"
        yield Figure("dump.memory", peak / 2**20, 200, "MiB", at_most=True, detail=detail)


def _run(root: Path) -> tuple[float, int]:
    """Run the command; return seconds and peak resident bytes."""
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        command = [sys.executable, "-c", COMMAND, "dump", str(root), "--json"]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=True)
        seconds = time.perf_counter() - begin
        out.seek(0)
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: out.read(1 << 20), b""))
        if lines != COUNT:
            sys.exit(f"dump printed {lines} lines, not {COUNT}")
    return seconds, int(done.stderr) * 1024


WORKLOADS = {"dump.json": dump_json}
