"""Slices, holds, and files that go away while somebody reads."""

import sys
import threading

import numpy as np
import pytest
from file_fakes import BASE

from rocketlake.errors import FileAccessError, FlushFailedError
from rocketlake.files.file_traits import QUEUE_FILES


def is_mapped(path):
    with open("/proc/self/maps") as maps:  # noqa: PTH123 - not a file
        return any(str(path) in line for line in maps)


@pytest.fixture
def file(make):
    found = make()
    found.append(b"0123456789")
    return found


# --- slices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "size", "want"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (9, None, b"9"),
        (10, None, None),  # nothing there yet
        (11, None, None),
        (-1, None, None),
        (0, 10, b"0123456789"),
        (2, 3, b"234"),
        (10, 0, b""),
        (0, 11, None),  # not all of it is readable
        (9, 2, None),
        (11, 0, None),
        (-1, 2, None),
        (0, -1, None),
    ],
)
def test_slices_lie_within_what_is_readable(file, position, size, want):
    found = file.slice(position, size)
    if want is None:
        assert found is None
    else:
        with found:
            assert bytes(found.view) == want
            assert (found.start_offset, found.size) == (BASE + position, len(want))


def test_slice_cannot_be_written_to(file):
    with file.slice(0) as found, pytest.raises(TypeError, match="read-only"):
        found.view[0] = 1


def test_view_ends_with_its_slice(file):
    with file.slice(0) as found:
        view = found.view
    with pytest.raises(ValueError, match="released"):
        view[0]
    found.close()


def test_slice_shows_the_file_itself(file):
    """What is appended later is not copied into an old slice, but the same memory shows it."""
    with file.slice(0, 10) as found:
        file.buffer[0] = ord("X")
        assert bytes(found.view[:2]) == b"X1"


def test_array_made_from_a_slice_outlives_it(file, path):
    with file.slice(0) as found:
        array = np.frombuffer(found.view, np.uint8)
    file.destroy(0)
    assert array.tobytes() == b"0123456789"
    assert is_mapped(path)
    del array, found
    assert not is_mapped(path)


def test_slice_that_cannot_be_mapped_holds_nothing(ops, make, path):
    file = make(QUEUE_FILES)
    file.append(b"abc")
    file._map.close()
    file._map = None
    ops.faults["open"] = FileAccessError(str(path), "Too many open files")
    with pytest.raises(FileAccessError):
        file.slice(0)
    ops.faults.clear()
    assert file.shutdown(1000), "no hold was left"


def test_file_is_mapped_once_by_many_readers(ops, make):
    file = make(QUEUE_FILES)
    file.append(b"abc")
    file._map.close()
    file._map = None
    start = threading.Barrier(8)
    seen = []

    def read():
        start.wait()
        with file.slice(0) as found:
            seen.append(bytes(found.view))

    threads = [threading.Thread(target=read) for _ in range(8)]
    maps = ops.count("map")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [b"abc"] * 8
    assert ops.count("map") == maps + 1
    assert ops.open_writers == 0


# --- holds -------------------------------------------------------------------------------------


def test_unused_file_closes_at_once(file, ops, path):
    assert file.is_available
    assert file.shutdown(1000)
    assert (file.is_available, file.is_closed) == (False, True)
    assert ops.open_writers == 0
    assert not is_mapped(path)
    assert path.exists(), "shutting down deletes nothing"
    assert file.shutdown(1000)


def test_file_going_away_is_not_held_again(file):
    file.shutdown(1000)
    assert not file.hold()
    assert file.slice(0) is None


def test_last_release_closes(file, path):
    assert file.hold()
    assert file.hold()
    assert not file.shutdown(1000)
    file.release()
    assert not file.is_closed
    file.release()
    assert file.is_closed
    assert not is_mapped(path)


def test_unlinked_file_is_readable_until_the_slice_ends(file, path):
    found = file.slice(2, 3)
    assert not file.destroy(1000)
    assert not path.exists()
    assert bytes(found.view) == b"234"
    assert is_mapped(path)
    found.close()
    assert file.is_closed
    assert not is_mapped(path)


def test_name_goes_and_the_directory_is_flushed(file, ops, path):
    file.destroy(0)
    assert ops.calls[-2:] == [f"unlink {path.name}", "sync_dir log"]
    file.destroy(0)
    assert ops.count("unlink") == 1


def test_hold_that_is_never_given_back_is_overruled_in_time(file, clock, path):
    found = file.slice(0)
    assert not file.destroy(120_000)
    clock.advance_ms(119_999)
    assert not file.destroy(120_000)
    assert is_mapped(path)
    clock.advance_ms(1)
    assert file.destroy(120_000)
    assert file.is_closed
    # The memory is safe as long as the view lives; it no longer keeps the file from closing.
    assert bytes(found.view) == b"0123456789"
    assert is_mapped(path)
    found.close()
    assert not is_mapped(path)
    assert file.destroy(120_000)


def test_first_call_never_overrules(file):
    file.hold()
    assert not file.shutdown(0)
    assert file.shutdown(0)
    file.release()
    assert file.is_closed


def test_file_that_cannot_be_removed_stays_in_use(file, ops, path):
    ops.faults["unlink"] = FileAccessError(str(path), "Permission denied")
    with pytest.raises(FileAccessError):
        file.destroy(0)
    assert file.is_available
    with file.slice(0) as found:
        assert found.size == 10
    ops.faults.clear()
    assert file.destroy(0)
    assert not path.exists()


def test_removed_name_that_cannot_be_flushed_is_told_once(file, ops, path):
    ops.faults["sync_dir"] = FlushFailedError(str(path), "flush failed")
    with pytest.raises(FlushFailedError):
        file.destroy(0)
    ops.faults.clear()
    assert file.destroy(0)
    assert ops.count("unlink") == 1


def test_closed_file_has_no_buffer_to_write_to(file):
    file.shutdown(0)
    assert len(file.buffer) == 0
    with pytest.raises((ValueError, TypeError)):
        file.buffer[0:1] = b"x"


@pytest.fixture
def _busy_threads():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_busy_threads")
def test_holds_of_many_threads_are_counted(file):
    def work():
        for _ in range(2000):
            assert file.hold()
            file.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (file._holds, file.is_closed) == (1, False)
    assert file.shutdown(1000), "every hold was given back"


def test_file_tells_its_positions(file, path):
    file.commit(0)
    assert repr(file) == f"MappedFile({str(path)!r}, 0/10/10)"
