"""The queue of files: cutting the end, deleting the begin, files in use."""

import os
import struct

import pytest
from file_fakes import Loan

from rocketlake import failpoint
from rocketlake.errors import DiskFullError, FileAccessError
from rocketlake.files.file_traits import LOG_FILES
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import Expiry, MappedFileQueue, QueuePaths

SIZE = 8192
HOUR_MS = 3_600_000
EXPIRY = Expiry(reserved_ms=72 * HOUR_MS)


def name(offset):
    return f"{offset:020d}"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def queues():
    made = []
    yield made
    for queue in made:
        queue.close()


@pytest.fixture
def make_queue(ops, clock, log, queues):
    """A queue of full files, the last with some bytes; each file is of its own letter."""

    def make_queue(full=3, tail=100, lend=None):
        maker = MappedFileMaker(ops, clock, LOG_FILES, lend)
        queue = MappedFileQueue(ops, clock, maker, log, file_size=SIZE)
        for number in range(full + 1):
            queue.last_file(0).append(bytes([65 + number]) * (SIZE if number < full else tail))
        queues.append(queue)
        return queue

    return make_queue


@pytest.fixture
def reload(ops, clock, log, queues):
    def reload():
        queues.append(MappedFileQueue(ops, clock, MappedFileMaker(ops, clock), log, file_size=SIZE))
        queues[-1].load()
        return queues[-1]

    return reload


def never(_):
    return False


def bases(queue):
    return [file.base_offset for file in queue.files]


def age(clock, log, *hours):
    """Say how many hours ago each file was changed."""
    for path, count in zip(sorted(log.iterdir()), hours, strict=True):
        os.utime(path, ns=(0, (clock.now_ms() - count * HOUR_MS) * 1_000_000))


# --- truncate ------------------------------------------------------------------------------------


def test_truncate_removes_later_files_and_zeros_later_bytes(make_queue, log):
    queue = make_queue()
    queue.truncate(SIZE + 100)
    assert bases(queue) == [0, SIZE]
    assert sorted(path.name for path in log.iterdir()) == [name(0), name(SIZE)]
    assert (log / name(SIZE)).read_bytes() == b"B" * 100 + bytes(SIZE - 100)
    last = queue.files[-1]
    assert (last.wrote, last.committed, last.flushed) == (100, 100, 100)
    assert queue.max_offset == SIZE + 100
    assert (queue.files[0].wrote, queue.files[0].flushed) == (SIZE, 0)


def test_truncated_queue_takes_new_bytes_at_the_cut(make_queue, log):
    queue = make_queue()
    queue.truncate(SIZE + 100)
    queue.last_file(0).append(b"new")
    assert (log / name(SIZE)).read_bytes()[98:105] == b"BBnew\0\0"


@pytest.mark.parametrize(
    ("offset", "left", "end"),
    [
        (4 * SIZE, [0, SIZE, 2 * SIZE, 3 * SIZE], 3 * SIZE + 100),  # behind the end: nothing
        (3 * SIZE + 100, [0, SIZE, 2 * SIZE, 3 * SIZE], 3 * SIZE + 100),
        (3 * SIZE + 99, [0, SIZE, 2 * SIZE, 3 * SIZE], 3 * SIZE + 99),
        (3 * SIZE, [0, SIZE, 2 * SIZE, 3 * SIZE], 3 * SIZE),  # the file stays, empty
        (3 * SIZE - 1, [0, SIZE, 2 * SIZE], 3 * SIZE - 1),
        (0, [0], 0),
    ],
)
def test_truncate_at_the_borders_of_files(make_queue, offset, left, end):
    queue = make_queue()
    queue.truncate(offset)
    assert (bases(queue), queue.max_offset) == (left, end)
    assert queue.flushed_where <= end
    assert queue.committed_where <= end


def test_truncate_below_the_first_file_leaves_none(make_queue, log):
    queue = make_queue()
    queue.delete_expired(EXPIRY, never, is_forced=True)
    assert bases(queue) == [3 * SIZE]
    queue.truncate(10)
    assert (queue.files, list(log.iterdir())) == ((), [])


def test_truncate_takes_back_what_was_flushed(make_queue):
    queue = make_queue()
    while queue.flush(0):
        pass
    while queue.commit(0):
        pass
    queue.truncate(SIZE + 7)
    assert (queue.flushed_where, queue.committed_where) == (SIZE + 7, SIZE + 7)
    queue.last_file(0).append(b"x")
    assert queue.flush(0)
    assert queue.flushed_where == SIZE + 8


def test_truncate_removes_the_newest_file_first(make_queue, ops):
    """A crash on the way then leaves no gap."""
    queue = make_queue()
    queue.truncate(5)
    gone = [call for call in ops.calls if call.startswith("unlink")]
    assert gone == [f"unlink {name(number * SIZE)}" for number in (3, 2, 1)]


def test_loaded_queue_is_cut_to_what_recovery_found(make_queue, reload, log):
    make_queue().close()
    queue = reload()
    assert queue.max_offset == 4 * SIZE
    queue.truncate(3 * SIZE + 50)
    assert queue.max_offset == queue.flushed_where == queue.committed_where == 3 * SIZE + 50
    assert queue.files[-1].allocated == SIZE
    queue.last_file(0).append(b"new")
    assert (log / name(3 * SIZE)).read_bytes() == b"D" * 50 + b"new" + bytes(SIZE - 53)


def test_crash_while_cutting_leaves_what_can_be_cut_again(make_queue, reload, log):
    class PowerCutError(Exception):
        pass

    def crash():
        raise PowerCutError

    for point in ("delete.before", "delete.after", "truncate.before", "truncate.after"):
        for path in log.glob("*"):
            path.unlink()
        queue = make_queue()
        with failpoint.switched_on(point, crash), pytest.raises(PowerCutError):
            queue.truncate(SIZE + 10)
        again = reload()
        assert again.check_self() == []
        again.truncate(SIZE + 10)
        assert bases(again) == [0, SIZE]
        assert (log / name(SIZE)).read_bytes() == b"B" * 10 + bytes(SIZE - 10)


def test_full_disk_does_not_keep_a_store_from_opening(make_queue, reload, ops, log):
    make_queue().close()
    queue = reload()
    ops.faults["allocate"] = DiskFullError(str(log), SIZE, 0)
    queue.truncate(3 * SIZE + 50)
    file = queue.last_file(0)
    assert file.allocated < file.size
    with pytest.raises(DiskFullError):
        file.append(b"new")
    assert file.wrote == 50
    ops.faults.clear()
    assert file.append(b"new")


def test_truncate_keeps_what_a_borrowed_buffer_holds(make_queue, log):
    queue = make_queue(full=1, lend=lambda: Loan(SIZE))
    queue.truncate(SIZE + 60)
    assert queue.max_offset == SIZE + 60
    assert (log / name(SIZE)).read_bytes()[:61] == b"B" * 60 + b"\0"


# --- expiry --------------------------------------------------------------------------------------


def test_files_that_are_old_enough_go_and_the_rest_stays(make_queue, clock, log):
    queue = make_queue()
    age(clock, log, 100, 72, 71, 0)
    assert queue.delete_expired(EXPIRY, never) == 2
    assert bases(queue) == [2 * SIZE, 3 * SIZE]
    assert queue.min_offset == 2 * SIZE
    assert sorted(path.name for path in log.iterdir()) == [name(2 * SIZE), name(3 * SIZE)]


def test_first_young_file_ends_the_round(make_queue, clock, log):
    queue = make_queue()
    age(clock, log, 10, 100, 100, 100)
    assert queue.delete_expired(EXPIRY, never) == 0


def test_last_file_never_goes(make_queue, clock, log):
    queue = make_queue()
    age(clock, log, 999, 999, 999, 999)
    assert queue.delete_expired(EXPIRY, never) == 3
    assert queue.delete_expired(EXPIRY, never, is_forced=True) == 0
    assert bases(queue) == [3 * SIZE]


def test_forced_round_asks_for_no_age(make_queue):
    queue = make_queue()
    assert queue.delete_expired(EXPIRY, never, is_forced=True) == 3


def test_round_deletes_a_batch_with_pauses_between(make_queue):
    queue = make_queue(full=6)
    pauses = []
    expiry = Expiry(reserved_ms=0, pause_ms=100, batch_max=4)
    assert queue.delete_expired(expiry, pauses.append, is_forced=True) == 4
    assert pauses == [0.1, 0.1, 0.1]
    assert len(queue.files) == 3


def test_round_ends_when_the_pause_says_so(make_queue):
    queue = make_queue(full=6)
    assert queue.delete_expired(EXPIRY, lambda _: True, is_forced=True) == 1


def test_empty_queue_expires_nothing(reload):
    assert reload().delete_expired(EXPIRY, never, is_forced=True) == 0


def test_file_in_use_loses_its_name_and_closes_when_its_reader_is_done(make_queue, log):
    queue = make_queue()
    file = queue.files[0]
    found = file.slice(0, 5)
    assert queue.delete_expired(EXPIRY, never, is_forced=True) == 3
    assert not (log / name(0)).exists()
    assert queue.reap(120_000) == 1
    assert bytes(found.view) == b"AAAAA"
    found.close()
    assert file.is_closed
    assert queue.reap(120_000) == 0


def test_reader_that_never_ends_is_overruled_by_a_later_round(make_queue, clock):
    queue = make_queue()
    file = queue.files[0]
    found = file.slice(0, 5)
    queue.delete_expired(EXPIRY, never, is_forced=True)
    clock.advance_ms(119_999)
    queue.delete_expired(EXPIRY, never)
    assert not file.is_closed
    clock.advance_ms(1)
    queue.delete_expired(EXPIRY, never)
    assert file.is_closed
    assert bytes(found.view) == b"AAAAA"
    found.close()


def test_file_that_cannot_be_removed_stays(make_queue, ops, log):
    queue = make_queue()
    ops.faults["unlink"] = FileAccessError(str(log), "Permission denied")
    with pytest.raises(FileAccessError):
        queue.delete_expired(EXPIRY, never, is_forced=True)
    assert len(queue.files) == 4
    assert queue.find(0).slice(0, 1) is not None
    ops.faults.clear()


# --- deleting by log offset ----------------------------------------------------------------------


def unit(physical_offset):
    return struct.pack(">qiq", physical_offset, 100, 0)


@pytest.fixture
def units(ops, clock, log, queues):
    """Four files of ten units, unit n points to log offset 100 n; the last file is half full."""
    queue = MappedFileQueue(ops, clock, MappedFileMaker(ops, clock), log, file_size=200)
    for number in range(35):
        queue.last_file(0).append(unit(100 * number))
    queues.append(queue)
    return queue


@pytest.mark.parametrize(
    ("offset", "left"),
    [(0, 4), (900, 4), (901, 3), (1900, 3), (1901, 2), (2900, 2), (2901, 1), (1 << 60, 1)],
)
def test_files_whose_last_unit_points_below_go(units, offset, left):
    assert units.delete_by_offset(offset, 20) == 4 - left
    assert bases(units) == [600 - 200 * number for number in reversed(range(left))]


def test_file_that_is_going_away_ends_the_round(units):
    units.files[0].shutdown(0)
    assert units.delete_by_offset(1 << 60, 20) == 0


def test_empty_queue_has_nothing_to_delete(reload):
    assert reload().delete_by_offset(100, 20) == 0


@pytest.mark.parametrize(
    ("offset", "left"), [(0, 4), (199, 4), (200, 3), (399, 3), (400, 2), (600, 1), (1 << 60, 1)]
)
def test_files_wholly_before_an_offset_go(units, offset, left):
    assert units.delete_before(offset) == 4 - left
    assert bases(units) == [600 - 200 * number for number in reversed(range(left))]


def test_newest_file_goes(make_queue, log):
    queue = make_queue(full=1)
    while queue.commit(0) | queue.flush(0):
        pass
    assert (queue.flushed_where, queue.committed_where) == (SIZE + 100, SIZE + 100)
    queue.delete_last()
    assert [path.name for path in log.iterdir()] == [name(0)]
    assert (queue.max_offset, queue.flushed_where, queue.committed_where) == (SIZE, SIZE, SIZE)
    queue.delete_last()
    assert (queue.files, queue.max_offset, queue.flushed_where) == ((), 0, 0)
    queue.delete_last()


# --- the end -------------------------------------------------------------------------------------


def test_destroyed_queue_leaves_nothing(make_queue, log):
    queue = make_queue()
    queue.flush(0)
    queue.destroy()
    assert queue.files == ()
    assert (queue.min_offset, queue.max_offset, queue.flushed_where) == (0, 0, 0)
    assert not log.exists()


def test_destroyed_queue_leaves_what_is_not_its_own(make_queue, log):
    queue = make_queue()
    (log / "notes").write_bytes(b"")
    queue.destroy()
    assert [path.name for path in log.iterdir()] == ["notes"]


def test_destroyed_queue_can_be_used_again(make_queue):
    queue = make_queue()
    queue.destroy()
    assert queue.last_file(0).append(b"abc")
    assert queue.max_offset == 3


def test_read_only_directories_lose_only_their_files(ops, clock, tmp_path, queues):
    for place in ("a", "r"):
        (tmp_path / place).mkdir()
    (tmp_path / "r" / name(0)).write_bytes(b"x" * SIZE)
    (tmp_path / "a" / name(SIZE)).write_bytes(b"x" * SIZE)
    paths = QueuePaths((tmp_path / "a",), (tmp_path / "r",))
    queue = MappedFileQueue(ops, clock, MappedFileMaker(ops, clock), paths, file_size=SIZE)
    queues.append(queue)
    queue.load()
    queue.delete_expired(EXPIRY, never, is_forced=True)
    assert list((tmp_path / "r").iterdir()) == []
    queue.destroy()
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
