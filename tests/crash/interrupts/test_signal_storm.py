"""Real signals raise in the main thread every few milliseconds while it puts, and while it closes.

`ROCKETLAKE_STORM_S=180` lets the storms last so many seconds together, `ROCKETLAKE_STORM_SEED=…`
has another seed. A failure shows the command that repeats it.
"""

import json
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("storm_run.py")
MODES = ["async", "sync", "write buffers"]
SECONDS = float(os.environ.get("ROCKETLAKE_STORM_S", "3")) / len(MODES)
SEED = int(os.environ.get("ROCKETLAKE_STORM_SEED") or random.SystemRandom().randrange(1 << 30))
CLOSES = {"async": 20, "sync": 20, "write buffers": 10}


def run(*arguments):
    """Run the script in a process of its own; return its figures."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    print(shlex.join(command), ended.stdout)  # noqa: T201 - shown with a failure, or with -s
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout)


@pytest.mark.parametrize("mode", MODES)
def test_puts_under_a_storm_of_signals_lose_nothing(tmp_path, mode):
    """Every acknowledged message is at its own offset, and the store closes under the storm."""
    found = run("puts", tmp_path / "store", mode, SEED, SECONDS)
    assert found["interrupts"] > 10
    assert found["acknowledged"] > 10
    assert found["log files"] > 1


@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_at_any_moment_of_close_leaves_a_closed_store(tmp_path, mode):
    """No thread is left, the lock is free, and the next open recovers nothing."""
    found = run("close", tmp_path / "store", mode, SEED, CLOSES[mode])
    assert found["interrupted"] > 0
