"""The queue of files: loading, bounds, look-up, growing, commit and flush."""

import threading

import pytest
from file_fakes import Loan

from rocketlake.errors import DiskFullError, FileSizeError, FlushFailedError, StoreError
from rocketlake.files.file_traits import LOG_FILES
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import FileGap, MappedFileQueue, QueuePaths
from support.manual_clock import ManualClock

SIZE = 8192


def name(offset):
    return f"{offset:020d}"


@pytest.fixture
def queues():
    made = []
    yield made
    for queue in made:
        queue.close()


@pytest.fixture
def open_queue(ops, tmp_path, queues):
    def open_queue(paths=None, *, lend=None, size=SIZE):
        clock = ManualClock()
        maker = MappedFileMaker(ops, clock, LOG_FILES, lend)
        queues.append(MappedFileQueue(ops, clock, maker, paths or tmp_path / "log", file_size=size))
        return queues[-1]

    return open_queue


def fill(queue, count, letter=b"a"):
    """Append so many full files."""
    for _ in range(count):
        file = queue.last_file(0)
        file.append(letter * file.append_room)


def put(path, *offsets, size=SIZE):
    path.mkdir(parents=True, exist_ok=True)
    for offset in offsets:
        (path / name(offset)).write_bytes(b"x" * size)


def bases(queue):
    return [file.base_offset for file in queue.files]


# --- loading -------------------------------------------------------------------------------------


def test_no_directory_is_an_empty_queue(open_queue, tmp_path):
    queue = open_queue()
    queue.load()
    assert queue.files == ()
    assert (queue.min_offset, queue.max_offset, queue.wrote_where) == (0, 0, 0)
    assert (queue.flushed_where, queue.committed_where, queue.mapped_size) == (0, 0, 0)
    assert not (tmp_path / "log").exists(), "looking makes nothing"


def test_files_are_loaded_in_the_order_of_their_names_and_as_full(open_queue, tmp_path, ops):
    put(tmp_path / "log", 2 * SIZE, SIZE, 3 * SIZE)
    queue = open_queue()
    queue.load()
    assert bases(queue) == [SIZE, 2 * SIZE, 3 * SIZE]
    assert {(f.wrote, f.committed, f.flushed) for f in queue.files} == {(SIZE, SIZE, SIZE)}
    assert (queue.min_offset, queue.max_offset) == (SIZE, 4 * SIZE)
    assert (queue.flushed_where, queue.committed_where) == (4 * SIZE, 4 * SIZE)
    assert ops.count("open") == 0, "files are opened when they are needed"


def test_directories_and_foreign_names_are_passed_over(open_queue, tmp_path):
    put(tmp_path / "log", 0)
    (tmp_path / "log" / name(SIZE)).mkdir()
    (tmp_path / "log" / "notes.txt").write_bytes(b"")
    queue = open_queue()
    queue.load()
    assert bases(queue) == [0]


@pytest.mark.parametrize("size", [1, SIZE - 1, SIZE + 1])
@pytest.mark.parametrize("offset", [0, 2 * SIZE])
def test_file_of_another_size_is_refused_with_both_sizes(open_queue, tmp_path, size, offset):
    put(tmp_path / "log", 0, SIZE, 2 * SIZE)
    bad = tmp_path / "log" / name(offset)
    bad.write_bytes(b"x" * size)
    queue = open_queue()
    with pytest.raises(FileSizeError, match=f"{bad} has {size} bytes, .* have {SIZE}") as caught:
        queue.load()
    assert (caught.value.path, caught.value.size, caught.value.expected) == (str(bad), size, SIZE)
    assert queue.files == ()


def test_empty_files_at_the_end_are_removed(open_queue, tmp_path, ops):
    put(tmp_path / "log", 0)
    put(tmp_path / "log", SIZE, 2 * SIZE, size=0)
    queue = open_queue()
    queue.load()
    assert bases(queue) == [0]
    assert [path.name for path in (tmp_path / "log").iterdir()] == [name(0)]
    assert ops.calls[-1] == "sync_dir log"


def test_empty_file_in_the_middle_is_refused(open_queue, tmp_path):
    put(tmp_path / "log", 0, 2 * SIZE)
    put(tmp_path / "log", SIZE, size=0)
    with pytest.raises(FileSizeError, match="has 0 bytes"):
        open_queue().load()
    assert (tmp_path / "log" / name(SIZE)).exists()


def test_empty_file_in_the_middle_was_never_flushed_before_an_unclean_stop(
    open_queue, tmp_path, ops
):
    put(tmp_path / "log", 0, 2 * SIZE)
    put(tmp_path / "log", SIZE, size=0)
    queue = open_queue()
    queue.load(is_clean=False)
    assert bases(queue) == [0]
    # Newest first: a crash in between leaves no gap.
    assert [call for call in ops.calls if call.startswith("unlink")] == [
        *(f"unlink {name(2 * SIZE)}", f"unlink {name(SIZE)}"),
    ]


def test_two_files_for_one_offset_are_refused(open_queue, tmp_path):
    put(tmp_path / "a", 0, SIZE)
    put(tmp_path / "b", SIZE)
    with pytest.raises(StoreError, match=rf"two files for one offset: .*/a/{name(SIZE)} and .*/b/"):
        open_queue(QueuePaths((tmp_path / "a", tmp_path / "b"))).load()


def test_gaps_are_found(open_queue, tmp_path):
    put(tmp_path / "log", 0, SIZE, 3 * SIZE, 4 * SIZE)
    queue = open_queue()
    queue.load()
    log = tmp_path / "log"
    assert queue.check_self() == [FileGap(log / name(SIZE), log / name(3 * SIZE), 2 * SIZE)]


def test_queue_without_gaps_is_sound(open_queue, tmp_path):
    queue = open_queue()
    assert queue.check_self() == []
    put(tmp_path / "log", SIZE, 2 * SIZE)
    queue.load()
    assert queue.check_self() == []


# --- look-up -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "index"),
    [
        *((0, None), (SIZE - 1, None), (SIZE, 0), (2 * SIZE - 1, 0), (2 * SIZE, 1)),
        *((4 * SIZE - 1, 2), (4 * SIZE, None), (-1, None), (1 << 62, None)),
    ],
)
def test_file_is_found_by_offset(open_queue, tmp_path, offset, index):
    put(tmp_path / "log", SIZE, 2 * SIZE, 3 * SIZE)
    queue = open_queue()
    queue.load()
    assert queue.find(offset) is (None if index is None else queue.files[index])
    assert queue.find(offset, first_if_missing=True) is queue.files[index or 0]


def test_file_is_found_beside_a_gap(open_queue, tmp_path):
    put(tmp_path / "log", 0, 5 * SIZE, 6 * SIZE)
    queue = open_queue()
    queue.load()
    assert queue.find(6 * SIZE + 3) is queue.files[2]
    assert queue.find(5 * SIZE) is queue.files[1]
    assert queue.find(2 * SIZE) is None


def test_nothing_is_found_without_files(open_queue):
    queue = open_queue()
    assert queue.find(0) is queue.find(0, first_if_missing=True) is None
    assert queue.last_file() is None


# --- growing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "base"), [(0, 0), (5, 0), (SIZE, SIZE), (3 * SIZE - 1, 2 * SIZE)]
)
def test_first_file_begins_where_the_offset_lies(open_queue, start, base):
    queue = open_queue()
    file = queue.last_file(start)
    assert (file.base_offset, file.is_first) == (base, True)
    assert queue.files == (file,)


def test_file_with_room_stays_the_last(open_queue):
    queue = open_queue()
    file = queue.last_file(0)
    file.append(b"abc")
    assert queue.last_file(0) is queue.last_file() is file
    assert (queue.max_offset, queue.wrote_where) == (3, 3)


def test_full_file_is_followed_by_the_next(open_queue):
    queue = open_queue()
    fill(queue, 1)
    assert queue.last_file() is queue.files[0], "not without being asked"
    file = queue.last_file(0)
    assert (file.base_offset, file.is_first) == (SIZE, False)
    assert queue.mapped_size == 2 * SIZE
    assert queue.check_self() == []


def test_roll_makes_the_next_file(open_queue):
    queue = open_queue()
    assert queue.roll().base_offset == 0
    with pytest.raises(AssertionError, match="not full"):
        queue.roll()
    fill(queue, 1)
    assert queue.roll().base_offset == SIZE


def test_full_disk_refuses_a_file_and_heals(open_queue, ops, tmp_path):
    queue = open_queue()
    fill(queue, 1)
    ops.faults["create"] = DiskFullError(str(tmp_path), SIZE, 17)
    with pytest.raises(DiskFullError, match=f"{SIZE} bytes wanted, 17 free"):
        queue.roll()
    assert bases(queue) == [0]
    ops.faults.clear()
    assert queue.roll().base_offset == SIZE


def test_list_of_files_is_one_moment(open_queue):
    queue = open_queue()
    fill(queue, 2)
    before = queue.files
    queue.roll()
    assert len(before) == 2
    assert len(queue.files) == 3


# --- several directories -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("full", "want"),
    [
        ((), ["a", "b", "c", "a"]),
        (("b",), ["a", "c", "a", "c"]),
        (("a", "b"), ["c", "c", "c", "c"]),
        (("a", "b", "c"), ["a", "b", "c", "a"]),  # all full: as if none were
    ],
)
def test_new_files_go_round_the_directories_by_their_offset(open_queue, tmp_path, full, want):
    """Sorted by name, whatever order they were configured in; never into a read-only one."""
    queue = open_queue(
        QueuePaths(tuple(tmp_path / n for n in ("c", "r", "a", "b")), (tmp_path / "r",))
    )
    queue.full_paths = frozenset(tmp_path / n for n in full)
    fill(queue, 4)
    assert [file.path.parent.name for file in queue.files] == want


def test_files_of_all_directories_are_one_queue(open_queue, tmp_path):
    put(tmp_path / "b", 0, 3 * SIZE)
    put(tmp_path / "a", 2 * SIZE)
    put(tmp_path / "r", SIZE)
    queue = open_queue(QueuePaths((tmp_path / "b", tmp_path / "a"), (tmp_path / "r",)))
    queue.load()
    assert bases(queue) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert queue.last_file(0).path == tmp_path / "a" / name(4 * SIZE)


def test_empty_file_in_a_read_only_directory_is_left_alone(open_queue, tmp_path):
    put(tmp_path / "a", 0)
    put(tmp_path / "r", SIZE, size=0)
    queue = open_queue(QueuePaths((tmp_path / "a",), (tmp_path / "r",)))
    queue.load()
    assert bases(queue) == [0]
    assert (tmp_path / "r" / name(SIZE)).exists()


def test_some_directory_must_take_new_files(open_queue, tmp_path):
    with pytest.raises(ValueError, match="not read-only"):
        open_queue(QueuePaths((tmp_path / "a",), (tmp_path / "a",)))


# --- commit and flush ----------------------------------------------------------------------------


def test_flush_goes_one_file_at_a_time(open_queue):
    queue = open_queue()
    fill(queue, 2)
    queue.last_file(0).append(b"abc")
    moved = []
    while queue.flush(0):
        moved.append(queue.flushed_where)
    assert moved == [SIZE, 2 * SIZE, 2 * SIZE + 3]
    assert queue.flushed_where == queue.max_offset


def test_flush_of_nothing_moves_nothing(open_queue):
    queue = open_queue()
    assert not queue.flush(0)
    queue.last_file(0)
    assert not queue.flush(0)
    assert not queue.commit(0)


def test_flush_that_waits_for_pages_does_not_move(open_queue):
    queue = open_queue()
    queue.last_file(0).append(bytes(4095))
    assert not queue.flush(1)
    queue.files[0].append(b"x")
    assert queue.flush(1)
    assert queue.flushed_where == 4096


def test_thorough_flush_notes_the_store_time_before_it(open_queue, ops):
    queue = open_queue()
    file = queue.last_file(0)
    file.append(bytes(4096))
    file.store_timestamp = 111
    queue.flush(1)
    assert queue.store_timestamp == 0, "only a thorough one"
    file.append(b"x")
    sync = ops.note

    def append_meanwhile(called, path):
        sync(called, path)
        file.store_timestamp = 222

    ops.note = append_meanwhile
    queue.flush(0)
    assert queue.store_timestamp == 111


def test_failed_flush_leaves_the_queue_where_it_was(open_queue, ops, tmp_path):
    queue = open_queue()
    queue.last_file(0).append(b"abc")
    queue.flush(0)
    queue.files[0].append(b"def")
    ops.faults["sync"] = FlushFailedError(str(tmp_path), "flush failed")
    with pytest.raises(FlushFailedError):
        queue.flush(0)
    assert queue.flushed_where == queue.files[0].flushed == 3


def test_commit_goes_one_file_at_a_time_and_flush_follows(open_queue):
    loans = []

    def lend():
        loans.append(Loan(SIZE))
        return loans[-1]

    queue = open_queue(lend=lend)
    fill(queue, 1)
    queue.last_file(0).append(b"abc")
    assert (queue.max_offset, queue.wrote_where) == (SIZE, SIZE + 3)
    assert not queue.flush(0), "nothing is readable yet"
    assert queue.commit(0)
    assert (queue.committed_where, [loan.returns for loan in loans]) == (SIZE, [1, 0])
    assert queue.commit(0)
    assert queue.committed_where == queue.max_offset == SIZE + 3
    assert not queue.commit(0)
    assert queue.flush(0)
    assert queue.flush(0)
    assert queue.flushed_where == SIZE + 3


def test_flush_goes_on_when_the_file_it_stood_in_is_gone(open_queue):
    queue = open_queue()
    fill(queue, 4)
    queue.flush(0)
    assert queue.flushed_where == SIZE
    for file in queue.files[:2]:
        file.destroy(0)
    queue.files = queue.files[2:]
    assert queue.flush(0)
    assert queue.flushed_where == 3 * SIZE


def test_what_a_crash_left_is_flushed_from_an_offset_on(open_queue, tmp_path, ops):
    put(tmp_path / "log", 0, SIZE, 2 * SIZE)
    queue = open_queue()
    queue.load()
    queue.sync_from(SIZE)
    syncs = [call for call in ops.calls if call.startswith("sync ")]
    assert syncs == [f"sync {name(SIZE)}", f"sync {name(2 * SIZE)}"]
    assert queue.flushed_where == 3 * SIZE


def test_read_only_directories_are_not_flushed(open_queue, tmp_path, ops):
    put(tmp_path / "a", SIZE)
    put(tmp_path / "r", 0, 2 * SIZE)
    queue = open_queue(QueuePaths((tmp_path / "a",), (tmp_path / "r",)))
    queue.load()
    queue.sync_from(0)
    assert [call for call in ops.calls if call.startswith("sync ")] == [f"sync {name(SIZE)}"]


def test_close_commits_and_lets_go(open_queue, ops, tmp_path):
    queue = open_queue(lend=lambda: Loan(SIZE))
    fill(queue, 1)
    queue.last_file(0).append(b"abc")
    files = queue.files
    queue.close()
    assert queue.files == ()
    assert all(file.is_closed for file in files)
    assert ops.open_writers == 0
    assert (tmp_path / "log" / name(SIZE)).read_bytes()[:4] == b"abc\0"


def test_close_that_cannot_commit_lets_go_nevertheless(open_queue, ops, tmp_path):
    queue = open_queue(lend=lambda: Loan(SIZE))
    queue.last_file(0).append(b"abc")
    file = queue.files[0]
    ops.faults["write"] = DiskFullError(str(tmp_path), 3, 0)
    with pytest.raises(DiskFullError):
        queue.close()
    assert file.is_closed


def test_slice_outlives_the_queue(open_queue):
    queue = open_queue()
    queue.last_file(0).append(b"abc")
    with queue.files[0].slice(0) as found:
        queue.close()
        assert bytes(found.view) == b"abc"


def test_readers_meet_only_whole_states_while_the_queue_grows(open_queue):
    queue = open_queue()
    done = threading.Event()
    faults = []

    def read():
        while not done.is_set():
            files = queue.files
            offsets = [file.base_offset for file in files]
            if offsets != [number * SIZE for number in range(len(offsets))]:
                faults.append(offsets)
            end = queue.max_offset
            if end and queue.find(end - 1) is None:
                faults.append(end)

    reader = threading.Thread(target=read)
    reader.start()
    fill(queue, 30)
    done.set()
    reader.join()
    assert faults == []
