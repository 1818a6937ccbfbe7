"""The locks of directories: what they exclude, what cannot release them, and forks."""

import errno
import fcntl
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlake.errors import FileAccessError, StoreLockedError
from rocketlake.files import posix_locks
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import StoreLock

TRY = """
import sys
from pathlib import Path
from rocketlake.errors import StoreLockedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import StoreLock
root, *logs = map(Path, sys.argv[1:])
try:
    StoreLock(PosixFileOps(), root, logs).acquire()
    print("got it")
except StoreLockedError as error:
    print(error.holder, error.path)
"""
JAVA = """
import fcntl, os, struct, sys
lock = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(lock, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
print("got it")
"""
# Takes the lock, starts a process in one of three ways that outlives it, and ends without a word.
LEAVE = """
import os, subprocess, sys
from pathlib import Path
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_lock import StoreLock
way, root = sys.argv[1], Path(sys.argv[2])
lock = StoreLock(PosixFileOps(), root, [root / "commitlog"])
lock.acquire()
if way == "fork":
    left = os.fork()
    if left == 0:
        sys.stdin.read()
        os._exit(0)
else:
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    left = subprocess.Popen(program, close_fds=way == "exec").pid
print(left, flush=True)
os._exit(0)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    return root


@pytest.fixture
def ops() -> PosixFileOps:
    return PosixFileOps()


@pytest.fixture
def held(ops: PosixFileOps, root: Path):
    lock = StoreLock(ops, root, [root / "commitlog"])
    lock.acquire()
    yield lock
    lock.release()


def run(code: str, *words: Path | str) -> str:
    command = [sys.executable, "-c", code, *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return (ran.stdout + ran.stderr).strip().splitlines()[-1]


# --- what another process is refused ---------------------------------------------------------


@pytest.mark.usefixtures("held")
def test_lock_is_held_after_the_own_process_copies_the_store(root: Path, tmp_path: Path):
    """Closing any descriptor of `lock` would release a POSIX lock."""
    shutil.copytree(root, tmp_path / "copy")
    assert (root / "lock").read_bytes() == b"lock"
    assert run(TRY, root) == f"{os.getpid()} {root}/lock"
    assert "BlockingIOError" in run(JAVA, root / "lock"), "RocketMQ would get in"
    assert run(TRY, tmp_path / "copy", tmp_path / "copy" / "commitlog") == "got it"


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("how", ["removed", "replaced", "renamed"])
def test_lock_is_held_when_its_file_is_taken_away(root: Path, how: str):
    if how == "renamed":
        (root / "lock").rename(root / "old")
    else:
        (root / "lock").unlink()
    if how == "replaced":
        (root / "lock").write_bytes(b"lock")
    assert run(TRY, root) == f"{os.getpid()} {root}/lock"


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("how", ["named", "by a symbolic link"])
def test_lock_of_a_log_directory_is_held_against_another_root(
    root: Path, tmp_path: Path, ops: PosixFileOps, how: str
):
    other, log = tmp_path / "other", root / "commitlog"
    other.mkdir()
    if how != "named":
        log = other / "commitlog"
        log.symlink_to(root / "commitlog")
    assert run(TRY, other, log) == f"{os.getpid()} {log}"
    with pytest.raises(StoreLockedError, match="this process has it open already") as caught:
        StoreLock(ops, other, [log]).acquire()
    assert caught.value.path == str(log)
    assert ops.lock_holder(other / "lock") is None, "a refused lock leaves nothing locked"
    assert run(TRY, other) == "got it"


def test_directory_that_is_only_read_is_shared_but_not_with_a_writer(
    root: Path, tmp_path: Path, ops: PosixFileOps
):
    old = tmp_path / "old"
    old.mkdir()
    (tmp_path / "b").mkdir()
    first = StoreLock(ops, root, [root / "commitlog"], [old, tmp_path / "not there"])
    second = StoreLock(ops, tmp_path / "b", [], [old])
    first.acquire()
    second.acquire()
    assert run(TRY, tmp_path, old) == f"{os.getpid()} {old}"
    first.release()
    second.release()
    assert run(TRY, tmp_path, old) == "got it"


def test_directory_with_two_names_is_locked_once(root: Path, tmp_path: Path, ops: PosixFileOps):
    """Two descriptors of one directory exclude each other, in one process too."""
    link = tmp_path / "link"
    link.symlink_to(root / "commitlog")
    lock = StoreLock(ops, root, [root / "commitlog", link, root], [link])
    lock.acquire()
    assert lock.is_held
    lock.release()


# --- what is left after an error -------------------------------------------------------------


def test_lock_that_is_interrupted_is_not_kept(
    root: Path, ops: PosixFileOps, monkeypatch: pytest.MonkeyPatch
):
    lock = StoreLock(ops, root, [root / "commitlog"])
    for broken in ("lock", "lock_directory", "identity"):

        def interrupt(*_words: object, **_options: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(PosixFileOps, broken, interrupt)
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()
        assert not lock.is_held
        assert run(TRY, root, root / "commitlog") == "got it"


def test_release_that_is_interrupted_can_be_repeated(
    root: Path, held: StoreLock, monkeypatch: pytest.MonkeyPatch
):
    close = os.close
    calls = []

    def interrupt(descriptor: int) -> None:
        calls.append(descriptor)
        close(descriptor)
        if len(calls) == 1:
            raise KeyboardInterrupt  # as a signal handler does: behind the call, not before it

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", interrupt)
        with pytest.raises(KeyboardInterrupt):
            held.release()
        held.release()
    assert len(calls) == 3
    assert run(TRY, root, root / "commitlog") == "got it"


# --- file systems that cannot ----------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL])
def test_file_system_without_directory_locks_is_used_with_a_warning(
    root: Path,
    ops: PosixFileOps,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(posix_locks, "_warned", posix_locks._WarnedDevices())
    lock = StoreLock(ops, root, [root / "commitlog"])
    with caplog.at_level(logging.WARNING):
        lock.acquire()
    assert lock.is_held
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "directory locks not supported"
    ]
    assert run(TRY, root).startswith("None"), "`lock` itself is locked"
    with pytest.raises(StoreLockedError, match="this process has it open already"):
        StoreLock(ops, root).acquire()
    lock.release()


def test_directory_lock_that_fails_otherwise_says_so(
    root: Path, ops: PosixFileOps, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FileAccessError, match="cannot lock the directory: Input/output error"):
        StoreLock(ops, root).acquire()
    with pytest.raises(FileAccessError, match="cannot open the directory to lock it: No such file"):
        ops.lock_directory(root / "gone")


def test_system_without_locks_of_descriptions_uses_those_of_processes(
    root: Path, ops: PosixFileOps, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(posix_locks, "_SET_LOCK", None)
    lock = StoreLock(ops, root)
    lock.acquire()
    assert "BlockingIOError" in run(JAVA, root / "lock")
    lock.release()
    assert run(JAVA, root / "lock") == "got it"


# --- forks and other programs ----------------------------------------------------------------


@pytest.mark.parametrize("way", ["fork", "exec", "exec with descriptors"])
def test_lock_does_not_outlive_its_process_in_one_that_it_started(root: Path, way: str):
    """A fork shares the lock's description as long as it has a descriptor of it."""
    command = [sys.executable, "-c", LEAVE, way, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ended:
        assert ended.stdin is not None
        assert ended.stdout is not None
        left = int(ended.stdout.readline())
        ended.wait()
        assert Path(f"/proc/{left}").exists(), "it lives as long as its input is open"
        assert run(TRY, root, root / "commitlog") == "got it"
        ended.stdin.close()


@pytest.mark.usefixtures("held")
def test_lock_is_held_after_a_fork_has_ended(root: Path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert run(TRY, root) == f"{os.getpid()} {root}/lock"
    assert run(TRY, root.parent, root / "commitlog") == f"{os.getpid()} {root}/commitlog"


@pytest.mark.usefixtures("held")
def test_fork_has_no_descriptor_of_the_lock(root: Path):
    def descriptors() -> list[str]:
        entries = [entry for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
        return [str(link) for entry in entries if (link := entry.readlink()).is_relative_to(root)]

    assert len(descriptors()) == 3
    child = os.fork()
    if child == 0:
        os._exit(len(descriptors()))
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 0
    assert len(descriptors()) == 3
