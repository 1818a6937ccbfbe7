"""One mapped file: appending, positions, the rules of commit and flush, cutting."""

import errno
import os

import pytest
from file_fakes import PAGE, SIZE, Loan

from rocketlake.errors import DiskFullError, FileAccessError, FlushFailedError
from rocketlake.files.file_traits import LOG_FILES, QUEUE_FILES, FilePlace
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_factory import MappedFileMaker
from support.manual_clock import ManualClock


def opened(ops, path, traits=LOG_FILES):
    maker = MappedFileMaker(ops, ManualClock(), traits)
    return maker.open(FilePlace(path, 81_920, path.stat().st_size))


# --- creating ----------------------------------------------------------------------------------


def test_new_file_is_empty_whole_and_on_the_disk(make, ops, path):
    file = make()
    assert (file.wrote, file.committed, file.flushed, file.allocated) == (0, 0, 0, SIZE)
    assert (file.base_offset, file.size, file.path) == (81_920, SIZE, path)
    assert (file.readable_end, file.is_full, file.append_room) == (0, False, SIZE)
    assert path.stat().st_blocks * 512 == SIZE
    steps = [f"create {path.name}", f"sync {path.name}", "sync_dir log", f"map {path.name}"]
    assert ops.calls[-4:] == steps


def test_new_file_of_a_queue_is_sparse_and_not_waited_for(make, ops, path):
    file = make(QUEUE_FILES)
    assert file.allocated == 0
    assert path.stat().st_blocks == 0
    assert ops.count("sync") == 0
    assert ops.open_writers == 0


def test_creation_without_space_leaves_nothing_and_returns_the_buffer(make, ops, path):
    loan = Loan()
    ops.faults["create"] = DiskFullError(str(path), SIZE, 0)
    with pytest.raises(DiskFullError):
        make(loan=loan)
    assert loan.returns == 1
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("step", ["sync", "sync_dir", "map"])
def test_creation_that_fails_late_leaves_nothing(make, ops, path, step):
    ops.mkdirs(path.parent)
    ops.faults[step] = FlushFailedError(str(path), "flush failed")
    with pytest.raises(FlushFailedError):
        make()
    assert list(path.parent.iterdir()) == []
    assert ops.open_writers == 0


# --- appending ---------------------------------------------------------------------------------


def test_appended_bytes_follow_each_other(make, path):
    file = make()
    assert file.append(b"abc")
    assert file.append(memoryview(b"defg"))
    assert file.wrote == 7
    assert path.read_bytes()[:8] == b"abcdefg\0"


def test_append_as_the_hot_path_does_it(make, path):
    file = make()
    file.buffer[file.wrote : file.wrote + 3] = b"abc"
    file.wrote += 3
    file.buffer[file.wrote : file.wrote + 2] = b"de"
    file.advance(2)
    assert file.readable_end == 5
    assert path.read_bytes()[:6] == b"abcde\0"


def test_advance_stays_in_the_file(make):
    file = make()
    file.advance(SIZE)
    with pytest.raises(AssertionError, match="cannot take 1 bytes"):
        file.advance(1)


def test_append_that_does_not_fit_changes_nothing(make, path):
    file = make()
    file.append(bytes(SIZE - 2))
    assert not file.append(b"abc")
    assert file.wrote == SIZE - 2
    assert file.append(b"ab")
    assert file.is_full
    assert file.append_room == 0


def test_sparse_file_takes_space_in_steps(make, path):
    size = 1 << 20
    file = make(QUEUE_FILES, size=size)
    file.append(b"unit")
    assert file.allocated == path.stat().st_blocks * 512 == 64 << 10
    file.append(bytes((64 << 10) - 4))
    assert file.allocated == 64 << 10
    file.append(b"x")
    assert file.allocated == path.stat().st_blocks * 512 == 128 << 10


def test_sparse_file_takes_no_more_space_than_it_has(make):
    file = make(QUEUE_FILES)
    file.append(b"unit")
    assert file.allocated == SIZE
    file.append(bytes(SIZE - 4))
    assert not file.append(b"x")


def test_sparse_file_without_space_stays_as_it_is(make, ops, path):
    file = make(QUEUE_FILES)
    ops.faults["allocate"] = DiskFullError(str(path), 65_536, 0)
    with pytest.raises(DiskFullError):
        file.append(b"unit")
    assert (file.wrote, file.allocated) == (0, 0)
    ops.faults.clear()
    assert file.append(b"unit")


def test_reserve_asks_only_for_what_is_missing(make, ops):
    file = make()
    file.reserve(SIZE)
    file.prepare_append()
    assert ops.count("allocate") == 0


def test_end_of_a_file_is_filled_with_zeros(make, path):
    file = make()
    file.append(bytes(SIZE - 20))
    file.fill_to_end(b"blank hd")
    assert file.is_full
    assert path.read_bytes()[-20:] == b"blank hd" + bytes(12)


def test_end_of_a_borrowed_buffer_holds_no_old_bytes(make, path):
    file = make(loan=Loan())
    file.append(b"\x11" * (SIZE - 20))
    file.fill_to_end(b"blank hd")
    file.commit(0)
    assert path.read_bytes()[-21:] == b"\x11blank hd" + bytes(12)


def test_header_that_does_not_fit_is_a_mistake(make):
    file = make()
    file.append(bytes(SIZE - 7))
    with pytest.raises(AssertionError, match="no room"):
        file.fill_to_end(b"blank hd")


# --- flushing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrote", "flushed", "least_pages", "want"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (1, 1, 0, False),
        (PAGE, PAGE - 1, 0, True),
        (PAGE - 1, 0, 1, False),
        (PAGE, 0, 1, True),
        (PAGE, PAGE - 1, 1, True),  # pages are counted by their numbers, not by bytes
        (2 * PAGE - 1, PAGE, 1, False),
        (4 * PAGE - 1, 0, 4, False),
        (4 * PAGE, 0, 4, True),
        (5 * PAGE - 1, PAGE, 4, False),
        (5 * PAGE, PAGE, 4, True),
        (SIZE, SIZE - 1, 4, True),  # a full file needs no full page
        (SIZE, 0, 100, True),
        (SIZE, SIZE, 0, False),  # the reference flushes a full file again
        (SIZE, SIZE, 4, False),
    ],
)
def test_flush_waits_for_enough_pages(make, ops, wrote, flushed, least_pages, want):
    file = make()
    file.wrote, file.flushed = wrote, flushed
    syncs = ops.count("sync")
    assert file.flush(least_pages) == file.flushed == (wrote if want else flushed)
    assert ops.count("sync") - syncs == want


def test_failed_flush_moves_nothing(make, ops, path):
    file = make()
    file.append(b"abc")
    ops.faults["sync"] = FlushFailedError(str(path), "flush failed")
    with pytest.raises(FlushFailedError):
        file.flush(0)
    assert file.flushed == 0
    assert file.hold(), "the hold of the flush was given back, and the file is in use"
    file.release()


def test_descriptor_is_kept_until_the_file_is_full_and_flushed(make, ops):
    file = make()
    assert ops.open_writers == 1
    file.append(b"abc")
    file.flush(0)
    assert (ops.open_writers, ops.count("open")) == (1, 0)
    file.fill_to_end(b"blank hd")
    file.flush(0)
    assert (file.flushed, ops.open_writers) == (SIZE, 0)


def test_descriptor_of_a_queue_is_opened_for_each_flush(make, ops):
    file = make(QUEUE_FILES)
    for count in range(1, 4):
        file.append(b"unit")
        opens = ops.count("open")
        assert file.flush(0) == 4 * count
        assert ops.count("open") == opens + 1
        assert ops.open_writers == 0


def test_flush_of_a_file_that_goes_away_counts(make, ops):
    """The next file must have its turn."""
    file = make()
    file.append(b"abc")
    assert file.destroy(0)
    syncs = ops.count("sync")
    assert file.flush(0) == 3
    assert ops.count("sync") == syncs


def test_flush_of_a_queue_file_removed_meanwhile_counts(make, ops, path):
    file = make(QUEUE_FILES)
    file.append(b"abc")
    hold = file.hold

    def hold_and_lose():
        held = hold()
        file.destroy(0)
        return held

    type(file).hold, original = lambda _: hold_and_lose(), type(file).hold
    try:
        assert file.flush(0) == 3
    finally:
        type(file).hold = original


def test_flush_that_cannot_open_its_file_fails_and_can_be_tried_again(make, ops, path):
    file = make(QUEUE_FILES)
    file.append(b"abc")
    ops.faults["open"] = FileAccessError(str(path), "Too many open files")
    with pytest.raises(FileAccessError):
        file.flush(0)
    assert file.flushed == 0
    ops.faults.clear()
    assert file.flush(0) == 3


# --- committing --------------------------------------------------------------------------------


def test_without_a_borrowed_buffer_everything_is_committed(make):
    file = make()
    file.append(b"abc")
    assert file.commit(100) == file.committed == file.readable_end == 3


def test_borrowed_bytes_are_readable_when_they_are_committed(make, path):
    file = make(loan=Loan())
    file.append(b"abc")
    assert (file.wrote, file.readable_end) == (3, 0)
    assert file.slice(0) is None
    assert path.read_bytes()[:3] == bytes(3)
    assert file.commit(0) == 3
    assert file.readable_end == 3
    assert path.read_bytes()[:5] == b"abc\0\0", "old bytes of the buffer stay out"
    with file.slice(0) as found:
        assert bytes(found.view) == b"abc"


@pytest.mark.parametrize(
    ("wrote", "committed", "least_pages", "want"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (4 * PAGE - 1, 0, 4, False),
        (4 * PAGE, 0, 4, True),
        (5 * PAGE - 1, PAGE, 4, False),
        (SIZE, SIZE - 1, 4, True),
    ],
)
def test_commit_waits_for_enough_pages(make, ops, wrote, committed, least_pages, want):
    file = make(loan=Loan())
    file.wrote, file.committed = wrote, committed
    assert file.commit(least_pages) == file.committed == (wrote if want else committed)
    assert ops.count("write") == want


def test_only_committed_bytes_are_flushed(make, ops):
    file = make(loan=Loan())
    file.append(b"abc")
    assert file.flush(0) == 0
    file.commit(0)
    file.append(b"def")
    assert file.flush(0) == 3


def test_full_and_committed_file_returns_the_buffer(make):
    loan = Loan()
    file = make(loan=loan)
    file.append(b"a" * (SIZE - 1))
    file.commit(0)
    assert loan.returns == 0
    file.append(b"b")
    assert file.commit(4) == SIZE
    assert loan.returns == 1
    assert file.readable_end == SIZE
    assert bytes(file.buffer[-2:]) == b"ab"


def test_commit_that_fails_moves_nothing(make, ops, path):
    file = make(loan=Loan())
    file.append(b"abc")
    ops.faults["write"] = DiskFullError(str(path), 3, 0)
    with pytest.raises(DiskFullError):
        file.commit(0)
    assert (file.committed, file.readable_end) == (0, 0)
    ops.faults.clear()
    assert file.commit(0) == 3


def test_file_that_goes_away_returns_the_buffer(make):
    loan = Loan()
    file = make(loan=loan)
    file.append(b"abc")
    file.destroy(0)
    assert loan.returns == 1
    assert file.commit(0) == 3


# --- cutting -----------------------------------------------------------------------------------


def test_cut_leaves_zeros_behind(make, ops, path):
    file = make()
    file.append(b"\xff" * SIZE)
    file.flush(0)
    file.cut(100)
    assert (file.wrote, file.committed, file.flushed) == (100, 100, 100)
    assert path.read_bytes() == b"\xff" * 100 + bytes(SIZE - 100)
    assert ops.calls[-1] == f"sync {path.name}", "the zeros are on the disk"


def test_record_cut_off_does_not_come_back_behind_a_new_one_of_its_size(make, path):
    file = make()
    for letter in (b"a", b"b", b"c"):
        file.append(letter * 50)
    file.cut(50)
    file.append(b"B" * 50)
    assert path.read_bytes()[:151] == b"a" * 50 + b"B" * 50 + bytes(51)


def test_cut_of_a_borrowed_buffer_keeps_what_was_not_committed(make, path):
    file = make(loan=Loan())
    file.append(b"a" * 50 + b"b" * 50)
    file.cut(70)
    assert path.read_bytes()[:101] == b"a" * 50 + b"b" * 20 + bytes(31)
    assert (file.readable_end, file.flushed) == (70, 70)
    file.append(b"c" * 10)
    file.commit(0)
    assert path.read_bytes()[60:90] == b"b" * 10 + b"c" * 10 + bytes(10)


def test_cut_of_a_queue_waits_for_the_disk_only_if_it_changed_something(make, ops):
    """Thousands of queues are cut at every start, most of them where they end anyway."""
    file = make(QUEUE_FILES)
    file.append(b"unitunit")
    file.cut(8)
    assert ops.count("sync") == 0
    file.cut(4)
    assert ops.count("sync") == 1


def test_cut_that_fails_moves_nothing(make, ops, path):
    file = make()
    file.append(b"\xff" * 200)
    ops.faults["sync"] = FlushFailedError(str(path), "flush failed")
    with pytest.raises(FlushFailedError):
        file.cut(100)
    assert file.wrote == 200


def test_cut_behind_the_end_is_a_mistake(make):
    file = make()
    with pytest.raises(AssertionError, match="no position 1"):
        file.cut(1)


# --- a file that was there -----------------------------------------------------------------------


def test_file_that_exists_counts_as_full(ops, path):
    path.parent.mkdir()
    path.write_bytes(b"x" * SIZE)
    file = opened(ops, path)
    assert (file.wrote, file.committed, file.flushed) == (SIZE, SIZE, SIZE)
    assert ops.count("open") == 0, "it is opened when it is needed"
    with file.slice(SIZE - 3) as found:
        assert bytes(found.view) == b"xxx"
    assert ops.open_writers == 0
    file.shutdown(0)


def test_sparse_file_of_the_reference_gets_its_space_before_it_is_written(ops, path):
    path.parent.mkdir()
    with path.open("wb") as sparse:
        sparse.write(b"record")
        sparse.truncate(SIZE)
    file = opened(ops, path)
    file.cut(6)
    assert file.allocated == 6
    file.prepare_append()
    assert file.allocated == SIZE
    assert path.stat().st_blocks * 512 == SIZE
    assert path.read_bytes() == b"record" + bytes(SIZE - 6)
    file.append(b"more")
    assert path.read_bytes()[:11] == b"recordmore\0"
    file.shutdown(0)


def test_queue_file_that_exists_takes_space_when_it_is_needed(ops, path):
    path.parent.mkdir()
    with path.open("wb") as sparse:
        sparse.write(b"unit")
        sparse.truncate(1 << 20)
    file = opened(ops, path, QUEUE_FILES)
    file.cut(4)
    file.prepare_append()
    assert path.stat().st_blocks * 512 == PAGE
    assert ops.count("map") == 0
    assert file.append(b"unit")
    assert path.read_bytes()[:9] == b"unitunit\0"
    assert path.stat().st_blocks * 512 == 64 << 10
    file.shutdown(0)


def test_time_of_the_last_change_is_the_file_systems(make, path):
    file = make()
    os.utime(path, ns=(0, 1_234_567_890_123_456))
    assert file.last_modified_ms() == 1_234_567_890
    path.unlink()
    assert file.last_modified_ms() == 0


def test_what_anybody_wrote_is_flushed_on_demand(ops, path):
    path.parent.mkdir()
    path.write_bytes(b"x" * SIZE)
    file = opened(ops, path)
    file.sync()
    assert ops.calls[-1] == f"sync {path.name}"
    file.shutdown(0)


def test_error_numbers_of_the_machine_reach_the_caller(make, monkeypatch):
    file = make()
    file.append(b"abc")

    def fail(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(FlushFailedError, match="Input/output error") as caught:
        file.flush(0)
    assert isinstance(caught.value.__cause__, OSError)
    assert isinstance(file, MappedFile)
