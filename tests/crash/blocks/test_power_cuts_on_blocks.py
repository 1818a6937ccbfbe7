"""The power goes below the file system: every promise holds on every image of the device.

python tests/crash/blocks/power_cut_lab.py --images 10000     many more (make power-cuts)
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import power_cut_lab
import pytest
from block_images import FATES
from logged_device import lacking
from power_cut_lab import Report

pytestmark = pytest.mark.crash

IMAGES = 102
SEED = os.environ.get("ROCKETLAKE_CRASH_SEED", "5")
LONGEST_S = 900


def run_lab(place: Path, *arguments: str) -> tuple[Report, str]:
    """Run the laboratory in a process without threads, which can fork and mount."""
    command = [sys.executable, power_cut_lab.__file__, "--json", "--seed", SEED]
    command += ["--place", str(place), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST_S, env=environment, check=False
    )
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=Report), ended.stdout


def require(kind: str) -> None:
    if lack := lacking(kind):
        pytest.skip(f"a logged block device with {kind} needs {lack}")


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cut_below_the_file_system(tmp_path: Path, kind: str):
    require(kind)
    report, text = run_lab(tmp_path, "--kinds", kind, "--images", str(IMAGES))
    assert not report.failures, text
    # The faults really happened, and there was something to lose.
    assert report.images == IMAGES
    assert {*report.fates} == {*FATES}
    assert report.flushes > IMAGES
    assert report.checked > 20 * IMAGES


def test_store_that_syncs_nothing_is_found(tmp_path: Path):
    """The laboratory sees a promise that is not kept."""
    require("ext4")
    report, _ = run_lab(
        tmp_path, "--kinds", "ext4", "--modes", "sync", "--images", "12", "--without-sync"
    )
    assert report.images > 0
    assert any("acknowledged" in text for text in report.failures)
