"""Mapped files on a disk that can be made to fail."""

import pytest
from file_fakes import BASE, SIZE, FaultyOps

from rocketlake.files.file_traits import LOG_FILES, FilePlace
from rocketlake.files.mapped_file_factory import MappedFileMaker
from support.manual_clock import ManualClock


@pytest.fixture
def ops():
    return FaultyOps()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log" / f"{BASE:020d}"


@pytest.fixture
def make(ops, clock, path):
    """Make the file, as often as a test removes it."""
    made = []

    def make(traits=LOG_FILES, loan=None, size=SIZE):
        maker = MappedFileMaker(ops, clock, traits, (lambda: loan) if loan else None)
        made.append(maker.create(FilePlace(path, BASE, size)))
        return made[-1]

    yield make
    for file in made:
        file.shutdown(0)
