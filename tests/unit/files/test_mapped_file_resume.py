"""MappedFile that is gone on with, and is written below its end too, as index files are."""

import pytest
from file_fakes import BASE, PAGE, SIZE

from rocketlake.errors import DiskFullError
from rocketlake.files.file_traits import INDEX_FILES, QUEUE_FILES, FilePlace
from rocketlake.files.mapped_file import MappedFile
from support.manual_clock import ManualClock


@pytest.fixture
def file(ops, path):
    """A file of holes, with a page written in the middle."""
    path.parent.mkdir()
    with path.open("wb") as sparse:
        sparse.seek(4 * PAGE)
        sparse.write(b"x" * PAGE)
        sparse.truncate(SIZE)
    file = MappedFile(ops, ManualClock(), FilePlace(path, BASE, SIZE), INDEX_FILES)
    yield file
    file.shutdown(0)


def test_resumed_file_ends_where_it_was_told_and_nothing_is_changed(file, ops, path):
    before = path.read_bytes()
    file.resume(5 * PAGE)
    assert (file.wrote, file.flushed, file.readable_end) == (5 * PAGE, 5 * PAGE, 5 * PAGE)
    assert not file.is_full
    assert ops.count("allocate") == 0
    assert path.read_bytes() == before
    assert path.stat().st_blocks * 512 == PAGE


def test_resumed_file_has_space_below_its_end_when_it_has_space_behind_it(file, path):
    before = path.read_bytes()
    file.resume(5 * PAGE)
    file.reserve(1)
    assert path.stat().st_blocks * 512 >= 5 * PAGE + 1
    assert path.read_bytes() == before
    file.buffer[:5] = b"begin"
    assert file.append(b"more")
    assert path.read_bytes()[5 * PAGE :][:5] == b"more\0"


def test_resumed_file_without_space_stays_as_it_is(file, ops, path):
    file.resume(5 * PAGE)
    ops.faults["allocate"] = DiskFullError(str(path), SIZE, 0)
    with pytest.raises(DiskFullError):
        file.reserve(0)
    assert (file.wrote, file.allocated) == (5 * PAGE, 0)
    ops.faults.clear()
    file.reserve(0)
    assert file.allocated >= 5 * PAGE


@pytest.mark.parametrize("position", [-1, SIZE + 1])
def test_resumed_file_ends_inside_itself(file, position):
    with pytest.raises(AssertionError):
        file.resume(position)


def test_file_that_ends_at_a_position_gets_its_zeros_with_the_next_append(make, ops, path):
    make(QUEUE_FILES).append(b"abcdefgh")
    file = MappedFile(ops, ManualClock(), FilePlace(path, BASE, SIZE), QUEUE_FILES)
    calls = len(ops.calls)
    file.end_at(3)
    assert (file.wrote, file.flushed, file.allocated) == (3, 3, 3)
    assert len(ops.calls) == calls  # nothing is touched before
    assert path.read_bytes().startswith(b"abcdefgh")
    assert file.append(b"X")
    assert path.read_bytes() == b"abcX" + bytes(SIZE - 4)
    assert ops.count("sync") == 1


def test_zeros_that_are_owed_are_made_once(make, ops, path):
    make(QUEUE_FILES).append(b"abcdefgh")
    file = MappedFile(ops, ManualClock(), FilePlace(path, BASE, SIZE), QUEUE_FILES)
    file.end_at(3)
    file.cut(2)
    file.append(b"XYZ")
    file.append(bytes(file.append_room))
    assert path.read_bytes() == b"abXYZ" + bytes(SIZE - 5)
    assert ops.count("zero") == 1
