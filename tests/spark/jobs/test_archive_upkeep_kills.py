"""A drop or a compaction that is killed at any step is there as a whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.crash
def test_a_drop_and_a_compaction_killed_at_each_step(tmp_path: Path) -> None:
    paths = [str(HERE), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_archive_upkeep.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env={"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"},
    )
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"drop", "compact"}, done.stderr
    assert len(lines) == 10 + 18, done.stdout
    for line in lines:
        assert "status=0 killed=True fine" in line, f"{line}\n{done.stderr}"
