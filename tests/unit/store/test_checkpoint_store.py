"""The checkpoint of a running store: loaded, changed by its owners, written in one piece."""

import errno
import os
import threading

import pytest

from rocketlake import failpoint
from rocketlake.errors import FlushFailedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.store.checkpoint import StoreCheckpoint

VALUES = Checkpoint(33, 22, 11, 44, 55)


class Watched(PosixFileOps):
    """Notes each write, sync and sync of a directory; `break_sync` makes the next sync fail."""

    def __init__(self):
        self.calls = []
        self.break_sync = False

    def open_writer(self, path):
        return WatchedWriter(self, super().open_writer(path))

    def create(self, path, size, *, is_sparse=False):
        self.calls.append(("create", size))
        return WatchedWriter(self, super().create(path, size, is_sparse=is_sparse))

    def sync_dir(self, path):
        self.calls.append(("sync_dir", path.name))
        super().sync_dir(path)


class WatchedWriter:
    def __init__(self, ops, inner):
        self._ops = ops
        self._inner = inner

    def write(self, position, data):
        self._ops.calls.append(("write", position, len(data)))
        self._inner.write(position, data)

    def sync(self):
        if self._ops.break_sync:
            cause = OSError(errno.EIO, os.strerror(errno.EIO))
            raise FlushFailedError("checkpoint", "flush failed") from cause
        self._ops.calls.append(("sync",))
        self._inner.sync()

    def close(self):
        self._inner.close()


@pytest.fixture
def ops():
    return Watched()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def loaded(ops, root, **rest):
    checkpoint = StoreCheckpoint(ops, root, **rest)
    checkpoint.load()
    return checkpoint


def set_all(checkpoint, values=VALUES):
    checkpoint.physical_timestamp = values.physical_timestamp
    checkpoint.queue_timestamp = values.queue_timestamp
    checkpoint.index_timestamp = values.index_timestamp
    checkpoint.primary_flushed_offset = values.primary_flushed_offset
    checkpoint.confirm_offset = values.confirm_offset


def test_values_survive_a_flush_and_a_load(ops, tmp_path, path):
    checkpoint = loaded(ops, tmp_path)
    set_all(checkpoint)
    checkpoint.flush()
    assert path.read_bytes() == VALUES.encode()
    assert loaded(ops, tmp_path).values() == VALUES


def test_missing_file_is_all_zero_and_loading_makes_none(ops, tmp_path, path):
    assert loaded(ops, tmp_path).values() == Checkpoint()
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 7, 8, 20, 24, 39, 40, 4095, 4096, 5000])
def test_file_of_any_length_is_loaded_as_far_as_it_goes(ops, tmp_path, path, size):
    path.write_bytes(VALUES.encode().ljust(5000, b"\0")[:size])
    assert loaded(ops, tmp_path).values() == Checkpoint.decode(VALUES.encode()[:size])


def test_short_file_grows_to_a_page(ops, tmp_path, path):
    path.write_bytes(b"\0\0\0")
    checkpoint = loaded(ops, tmp_path)
    checkpoint.physical_timestamp = 9
    checkpoint.flush()
    assert path.read_bytes() == Checkpoint(9).encode()


def test_page_is_written_in_one_call_and_synced(ops, tmp_path):
    checkpoint = loaded(ops, tmp_path)
    checkpoint.flush()
    assert ops.calls == [
        ("create", 4096),
        ("write", 0, 4096),
        ("sync",),
        ("sync_dir", tmp_path.name),
    ]
    ops.calls.clear()
    checkpoint.flush()
    assert ops.calls == [("write", 0, 4096), ("sync",)]


def test_flush_changes_the_file_in_place(ops, tmp_path, path):
    path.write_bytes(VALUES.encode())
    inode = path.stat().st_ino
    checkpoint = loaded(ops, tmp_path)
    checkpoint.index_timestamp = 12
    checkpoint.flush()
    assert path.stat().st_ino == inode
    assert Checkpoint.decode(path.read_bytes()).index_timestamp == 12


def test_4x_knows_three_values_and_leaves_the_rest_alone(ops, tmp_path, path):
    path.write_bytes(VALUES.encode())
    checkpoint = loaded(ops, tmp_path, is_4x=True)
    assert checkpoint.values() == Checkpoint(33, 22, 11)
    set_all(checkpoint, Checkpoint(3, 2, 1, 4, 5))
    checkpoint.flush()
    assert Checkpoint.decode(path.read_bytes()) == Checkpoint(3, 2, 1, 44, 55)


def test_bytes_that_a_later_release_added_are_kept(ops, tmp_path, path):
    page = bytearray(VALUES.encode())
    page[48:] = b"\x07" * (4096 - 48)
    path.write_bytes(page)
    checkpoint = loaded(ops, tmp_path)
    checkpoint.physical_timestamp = 34
    checkpoint.flush()
    # The fields of this release end at 48.
    assert Checkpoint.decode(path.read_bytes()) == Checkpoint(34, 22, 11, 44, 55)
    assert path.read_bytes()[48:] == bytes(page[48:])


def test_no_time_is_written_beyond_that_of_the_log(ops, tmp_path, path):
    checkpoint = loaded(ops, tmp_path)
    set_all(checkpoint, Checkpoint(20, 30, 40, 4, 5))
    checkpoint.flush()
    assert Checkpoint.decode(path.read_bytes()) == Checkpoint(20, 20, 20, 4, 5)
    checkpoint.physical_timestamp = 35
    checkpoint.flush()
    assert Checkpoint.decode(path.read_bytes()) == Checkpoint(35, 30, 35, 4, 5)


def test_times_are_lowered_on_the_disk(ops, tmp_path, path):
    path.write_bytes(VALUES.encode())
    checkpoint = loaded(ops, tmp_path)
    checkpoint.queue_physical_offset = 66
    checkpoint.lower_to(33, 66)
    assert ops.calls == []
    checkpoint.lower_to(15, 66)
    assert Checkpoint.decode(path.read_bytes()) == Checkpoint(15, 15, 11, 44, 55, 66)
    checkpoint.lower_to(15, 60)
    assert Checkpoint.decode(path.read_bytes()) == Checkpoint(15, 15, 11, 44, 55, 60)


def test_failed_flush_raises(ops, tmp_path):
    checkpoint = loaded(ops, tmp_path)
    ops.break_sync = True
    with pytest.raises(FlushFailedError):
        checkpoint.flush()


@pytest.mark.parametrize(("when", "is_new"), [("before", False), ("after", True)])
def test_crash_leaves_the_old_or_the_new_values(ops, tmp_path, path, when, is_new):
    path.write_bytes(VALUES.encode())
    checkpoint = loaded(ops, tmp_path)
    checkpoint.physical_timestamp = 77

    class CrashError(Exception):
        pass

    def crash():
        raise CrashError

    with failpoint.switched_on(f"checkpoint.{when}", crash), pytest.raises(CrashError):
        checkpoint.flush()
    assert Checkpoint.decode(path.read_bytes()).physical_timestamp == (77 if is_new else 33)


def test_flushes_of_several_threads_leave_a_whole_page(ops, tmp_path, path):
    checkpoint = loaded(ops, tmp_path)
    start = threading.Barrier(4)

    def flush():
        start.wait()
        for _ in range(20):
            checkpoint.flush()

    set_all(checkpoint)
    threads = [threading.Thread(target=flush) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == VALUES.encode()
