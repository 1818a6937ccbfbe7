"""Memory of a store that has nothing to do: resident, without the files it mapped."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator

from measure import Figure, Result

WANTED_MIB = 80

# Runs in a process of its own: opens a store with the reference's sizes, puts one message, rests.
IDLE = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from store import our_store

def resident(place):
    total = mapped = 0
    is_mapped = False
    for line in open("/proc/self/smaps"):
        name, _, rest = line.partition(":")
        if name == "Rss":
            size = int(rest.split()[0])
            total += size
            mapped += size if is_mapped else 0
        elif "-" in line.split()[0]:
            is_mapped = place in line
    return total, mapped

with our_store.opened(Path(sys.argv[1])) as store:
    our_store.put(store, our_store.Load(b"x", 1))
    time.sleep(2)  # until every service has had its turn and the store is idle
    print(*resident(sys.argv[1]))
"""


def memory() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as place:
        folder = __file__.rpartition("/store/")[0]
        command = [sys.executable, "-c", IDLE, place, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    total, mapped = (int(text) / 1024 for text in done.stdout.split())
    detail = f"{total:.0f} MiB in all, {mapped:.0f} of them mapped files"
    yield Figure("idle.memory", total - mapped, WANTED_MIB, "MiB", at_most=True, detail=detail)


WORKLOADS = {"idle.memory": memory}
