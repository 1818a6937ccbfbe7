"""A directory of tables that may be changed, and the place books are loaded from."""

import shutil
from pathlib import Path

import pytest

from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.book import TableLocation
from support.manual_clock import ManualClock

TABLES = Path(__file__).parent / "tables"


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def place(tmp_path, clock):
    return TableLocation(PosixFileOps(), clock, tmp_path / "config")


@pytest.fixture
def copy_of(tmp_path, clock):
    """Copy the tables of a golden case; return where books find them."""

    def copy(name):
        target = tmp_path / name
        shutil.copytree(TABLES / name, target)
        return TableLocation(PosixFileOps(), clock, target, is_4x=name.startswith("v4"))

    return copy
