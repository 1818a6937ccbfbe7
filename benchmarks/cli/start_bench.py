"""What a start costs: importing the package, and asking the command for help."""

import subprocess
import sys
import time
from collections.abc import Iterator

from measure import Figure

HELP = "import sys; sys.argv = ['rocketlake', '--help']; from rocketlake.cli.main import run; run()"


def start() -> Iterator[Figure]:
    yield Figure("start.import", _least("import rocketlake"), 0.15, "s", at_most=True)
    yield Figure("start.help", _least(HELP), 0.3, "s", at_most=True)


def _least(code: str) -> float:
    least = float("inf")
    for _ in range(7):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        least = min(least, time.perf_counter() - begin)
    return least


WORKLOADS = {"start": start}
