"""Units of a queue whose files are far apart: what is missing between is passed in one step."""

from pathlib import Path

import pytest

from rocketlake.files.ops import PosixFileOps
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.spark.reading.units import UnitFiles, UnitRun
from rocketlake.store.disk.log import Readers

PER_FILE = 5
SIZE = 20 * PER_FILE
FAR = 10**15


@pytest.fixture
def files(tmp_path: Path):
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    for number in (0, 2, FAR):
        units = b"".join(QueueUnit(i, 10, 0).encode() for i in range(PER_FILE))
        (directory / f"{number * SIZE:020d}").write_bytes(units)
    readers = Readers(PosixFileOps())
    yield UnitFiles(tmp_path, readers)
    readers.close()


def test_units_behind_missing_files_are_found(files: UnitFiles):
    run = UnitRun("T", 0, False, SIZE, 2, (FAR + 1) * PER_FILE)
    found = [(index, len(units)) for index, units in files.pieces(run, 100)]
    assert found == [(2, 3), (2 * PER_FILE, 5), (FAR * PER_FILE, 5)]


def test_missing_files_are_ranges(files: UnitFiles):
    run = UnitRun("T", 0, False, SIZE, 2, (FAR + 3) * PER_FILE)
    assert files.lost(run) == [
        (PER_FILE, 2 * PER_FILE),
        (3 * PER_FILE, FAR * PER_FILE),
        ((FAR + 1) * PER_FILE, (FAR + 3) * PER_FILE),
    ]
