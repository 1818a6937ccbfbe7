"""An archive run that is killed at any step leaves nothing half visible, and the next goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from rocketlake import failpoint

HERE = Path(__file__).resolve().parent


@pytest.mark.crash
def test_a_run_killed_at_each_step_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_archive.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={
            "PYTHONPATH": ":".join(p for p in [str(HERE), *sys.path] if p),
            "PATH": "/usr/bin:/bin",
        },
    )
    lines = done.stdout.splitlines()
    points = [point for point in failpoint.ARCHIVE_POINTS if "table" not in point]
    assert {line.split()[0] for line in lines} == set(points), done.stderr
    assert len(lines) == len(points) + 4
    for line in lines:
        assert "killed=True status=0 fine" in line, f"{line}\n{done.stderr}"
