"""Nothing acknowledged is lost when a writing process is killed, at any moment.

ROCKETLAKE_CRASH_SEED=11 .venv/bin/python -m pytest tests/crash -k kill_cycles    other processes
.venv/bin/python tests/crash/killing/laboratory.py --cycles 1000                  more of them
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import laboratory
import msgspec
import pytest
from laboratory import Report

pytestmark = pytest.mark.crash

CYCLES = 102
SEED = int(os.environ.get("ROCKETLAKE_CRASH_SEED", "5"))
LONGEST_S = 600


def run(place: Path, mode: str) -> Report:
    """Run the laboratory in a process without threads, which can fork safely."""
    command = [sys.executable, laboratory.__file__, "--json", "--place", str(place)]
    command += ["--modes", mode, "--cycles", str(CYCLES), "--seed", str(SEED)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST_S, env=environment, check=False
    )
    sys.stdout.write(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = msgspec.json.decode(ended.stdout.splitlines()[-1], type=Report)
    # The faults really happened.
    assert report.cycles == CYCLES
    assert report.acknowledged > 1000
    assert report.consumed > 1000
    assert report.inspected > CYCLES // 2
    assert report.killed_opening > 0
    assert report.closed < CYCLES // 2
    assert steps(report.points) == steps(laboratory.points_of(mode))
    return report


def steps(points: Iterable[str]) -> set[str]:
    return {point.partition(".")[0] for point in points}


def test_kill_cycles_with_sync_flush_lose_nothing(tmp_path: Path):
    assert run(tmp_path, "sync").lost == 0


def test_kill_cycles_with_async_flush_lose_nothing(tmp_path: Path):
    """The page cache outlives the process."""
    assert run(tmp_path, "async").lost == 0


def test_kill_cycles_with_write_buffers_lose_what_was_not_committed(tmp_path: Path):
    """No more than that: the laboratory knows how far the process had committed."""
    report = run(tmp_path, "buffers")
    assert report.lost > 0, "no kill came between a put and its commit"
    assert report.lost_max < 200
