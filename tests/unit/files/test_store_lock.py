"""The lock of a store against processes, this one and its forks; the mark of a running store."""

import contextlib
import fcntl
import os
import subprocess
import sys

import pytest

from rocketlake import failpoint
from rocketlake.errors import FileAccessError, StoreLockedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import AbortMark, StoreLock

HOLD = """
import sys
from pathlib import Path
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import StoreLock
lock = StoreLock(PosixFileOps(), Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from pathlib import Path
from rocketlake.errors import StoreLockedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import StoreLock
try:
    StoreLock(PosixFileOps(), Path(sys.argv[1])).acquire()
    print("got it")
except StoreLockedError as error:
    print(error.holder)
"""
# What FileChannel.tryLock(0, 1, false) of Java does on Linux: F_SETLK of a write lock, byte 0.
JAVA = """
import fcntl, os, struct, sys
lock = os.open(sys.argv[1] + "/lock", os.O_RDWR | os.O_CREAT)
fcntl.fcntl(lock, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def other_process(code, root):
    """A process that holds the lock for the length of the block."""
    started = subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with started:
        assert started.stdout.readline() == b"held\n"
        yield started
        started.stdin.close()


def tried_elsewhere(root):
    """What another process gets to hear: the holder's number, or that it got the lock."""
    ran = subprocess.run(
        [sys.executable, "-c", TRY, str(root)], capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def in_fork(work):
    """Return what a fork of this process finds, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(work())
        except BaseException as error:  # noqa: BLE001 - it must not get out of the fork
            text = repr(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as found:  # noqa: PTH123 - a descriptor
        text = found.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def ops():
    return PosixFileOps()


@pytest.fixture
def lock(ops, tmp_path):
    made = StoreLock(ops, tmp_path)
    yield made
    made.release()


# --- the lock --------------------------------------------------------------------------------


def test_lock_is_taken_and_given_back(lock, ops, tmp_path):
    assert not lock.is_held
    lock.acquire()
    assert lock.is_held
    assert ops.lock_holder(tmp_path / "lock") == os.getpid()
    lock.release()
    assert not lock.is_held
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert ops.lock_holder(tmp_path / "lock") is None
    lock.acquire()
    lock.release()
    lock.release()


def test_second_open_in_one_process_is_refused(lock, ops, tmp_path):
    """The system would grant it, and closing the second descriptor would drop the first lock."""
    lock.acquire()
    for _ in range(2):
        with pytest.raises(StoreLockedError, match="this process has it open already") as caught:
            StoreLock(ops, tmp_path).acquire()
        assert (caught.value.holder, caught.value.is_own) == (os.getpid(), True)
    assert tried_elsewhere(tmp_path) == str(os.getpid()), "the lock is still there"


def test_second_open_by_another_name_is_refused(lock, ops, tmp_path):
    lock.acquire()
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    with pytest.raises(StoreLockedError):
        StoreLock(ops, link).acquire()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_second_open_past_a_lock_that_somebody_took_away_is_refused(lock, ops, tmp_path, how):
    """A new file of that name is another file to the system, which would grant its lock."""
    lock.acquire()
    (tmp_path / "lock").unlink()
    if how == "replaced":
        (tmp_path / "lock").write_bytes(b"lock")
    with pytest.raises(StoreLockedError, match="this process has it open already"):
        StoreLock(ops, tmp_path).acquire()
    lock.release()
    again = StoreLock(ops, tmp_path)
    again.acquire()
    again.release()


def test_lock_that_cannot_be_written_is_not_kept(ops, tmp_path, monkeypatch):
    def fail(*_):
        raise FileAccessError(str(tmp_path), "no")

    with monkeypatch.context() as broken:
        broken.setattr("rocketlake.files.descriptor.PosixWriter.write", fail)
        with pytest.raises(FileAccessError):
            StoreLock(ops, tmp_path).acquire()
    assert tried_elsewhere(tmp_path) == "got it"


def test_other_stores_are_not_concerned(lock, ops, tmp_path):
    lock.acquire()
    (tmp_path / "other").mkdir()
    other = StoreLock(ops, tmp_path / "other")
    other.acquire()
    other.release()


@pytest.mark.parametrize("code", [HOLD, JAVA], ids=["ours", "java"])
def test_lock_of_another_process_is_respected_and_named(lock, tmp_path, code):
    with other_process(code, tmp_path) as holder:
        with pytest.raises(StoreLockedError) as caught:
            lock.acquire()
        assert caught.value.holder == holder.pid
        assert str(caught.value) == (
            f"{tmp_path}/lock is locked: process {holder.pid} has it open; close it there, or read"
            " it beside (read_only=True)"
        )
        assert not lock.is_held
    lock.acquire()
    assert lock.is_held


def test_lock_is_seen_by_java(lock, tmp_path):
    lock.acquire()
    ran = subprocess.run(
        [sys.executable, "-c", JAVA, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "BlockingIOError" in ran.stderr or "PermissionError" in ran.stderr


def test_only_the_first_byte_is_locked(lock, tmp_path):
    lock.acquire()
    code = "import fcntl, sys; f = open(sys.argv[1] + '/lock', 'r+b');"
    code += "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 3, 1); print('free')"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "free\n"


def test_lock_goes_with_its_process(lock, tmp_path):
    with other_process(HOLD, tmp_path) as holder:
        holder.kill()
        holder.wait()
        lock.acquire()
        assert lock.is_held


def test_holder_that_the_system_does_not_name(tmp_path):
    class Ops(PosixFileOps):
        def lock(self, path, content):
            return None

        def lock_holder(self, path):
            return -1  # as across containers

    with pytest.raises(StoreLockedError, match="another process has it open") as caught:
        StoreLock(Ops(), tmp_path).acquire()
    assert caught.value.holder is None


def test_lock_that_cannot_be_made_says_so(ops, tmp_path):
    with pytest.raises(FileAccessError, match="cannot open the lock: No such file"):
        StoreLock(ops, tmp_path / "gone").acquire()


def test_locking_that_the_system_cannot_do_says_so(lock, monkeypatch):
    def fail(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", fail)
    with pytest.raises(FileAccessError, match="cannot lock: No locks available"):
        lock.acquire()


# --- forks -----------------------------------------------------------------------------------


def test_fork_does_not_hold_the_lock(lock):
    lock.acquire()
    assert in_fork(lambda: lock.is_held) == "False"
    assert lock.is_held


def test_fork_cannot_take_the_lock(lock, ops, tmp_path):
    lock.acquire()
    parent = os.getpid()

    def take():
        try:
            StoreLock(ops, tmp_path).acquire()
        except StoreLockedError as error:
            return error.holder == parent and not error.is_own
        return "got it"

    assert in_fork(take) == "True"
    assert tried_elsewhere(tmp_path) == str(parent)


def test_release_in_a_fork_leaves_the_lock_alone(lock, tmp_path):
    lock.acquire()
    in_fork(lock.release)
    assert lock.is_held
    assert tried_elsewhere(tmp_path) == str(os.getpid())


def test_fork_may_take_the_lock_once_it_is_free(lock, ops, tmp_path):
    lock.acquire()
    lock.release()

    def take():
        taken = StoreLock(ops, tmp_path)
        taken.acquire()
        return taken.is_held

    assert in_fork(take) == "True"


# --- the mark --------------------------------------------------------------------------------


def content(root):
    return {path.name: path.read_bytes() for path in root.iterdir()}


def test_mark_is_written_as_5x_does(ops, tmp_path):
    mark = AbortMark(ops, tmp_path)
    assert not mark.is_set
    mark.set()
    assert mark.is_set
    assert content(tmp_path) == {"abort": str(os.getpid()).encode(), "abort.bak": b""}
    mark.remove()
    assert not mark.is_set
    assert content(tmp_path) == {"abort.bak": b""}


def test_mark_of_a_crash_is_taken_over(ops, tmp_path):
    (tmp_path / "abort").write_bytes(b"12345678901234567890")
    AbortMark(ops, tmp_path).set()
    assert content(tmp_path) == {
        "abort": str(os.getpid()).encode(),
        "abort.bak": b"12345678901234567890",
    }


def test_mark_is_written_as_4x_does(ops, tmp_path):
    mark = AbortMark(ops, tmp_path, names_process=False)
    mark.set()
    assert content(tmp_path) == {"abort": b""}
    mark.set()
    mark.remove()
    mark.remove()
    assert content(tmp_path) == {}


def test_mark_that_is_there_is_there_at_every_moment(ops, tmp_path):
    (tmp_path / "abort").write_bytes(b"1")
    seen = []

    class Watching(PosixFileOps):
        def __getattribute__(self, name):
            seen.append((tmp_path / "abort").exists())
            return super().__getattribute__(name)

    AbortMark(Watching(), tmp_path).set()
    assert len(seen) == 5
    assert all(seen)


def test_mark_is_on_the_disk_when_it_is_set_and_when_it_is_gone(tmp_path):
    calls = []

    class Noting(PosixFileOps):
        def sync_dir(self, path):
            calls.append(sorted(child.name for child in path.iterdir()))
            super().sync_dir(path)

    mark = AbortMark(Noting(), tmp_path)
    with failpoint.switched_on("abort.after", lambda: calls.append("set")):
        mark.set()
    with failpoint.switched_on("unabort.after", lambda: calls.append("gone")):
        mark.remove()
    assert calls == [["abort", "abort.bak"], "set", ["abort.bak"], "gone"]
