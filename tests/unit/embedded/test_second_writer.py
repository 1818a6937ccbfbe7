"""A second writer of the same messages is refused, whatever way it comes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import StoreLockedError

OPEN = """
import json, sys
import rocketlake
try:
    with rocketlake.open_store(sys.argv[1], **json.loads(sys.argv[2])) as store:
        print("open", store.put(rocketlake.Message(topic="T", body=b"other"), queue_id=0).status)
except rocketlake.StoreLockedError as error:
    print(error.holder, error.path)
"""


def opened_elsewhere(root: Path, log: Path | None = None) -> str:
    """What another process is told: who has what open, or that it has put a message."""
    options = "{}" if log is None else f'{{"store_path_commit_log": "{log}"}}'
    command = [sys.executable, "-c", OPEN, str(root), options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def bodies(root: Path) -> list[bytes]:
    with rocketlake.open_store(root, read_only=True) as reader:
        return [bytes(message.body) for message in reader.get("T", 0, 0).messages]


def test_copy_of_an_open_store_in_its_own_process_lets_no_writer_in(tmp_path: Path):
    root = tmp_path / "store"
    with rocketlake.open_store(root) as store:
        store.put(Message(topic="T", body=b"one"), queue_id=0)
        shutil.copytree(root, tmp_path / "copy")
        assert opened_elsewhere(root) == f"{os.getpid()} {root}/lock"
        assert bodies(root) == [b"one"], "readers stay welcome"
        store.put(Message(topic="T", body=b"two"), queue_id=0)
    assert bodies(root) == [b"one", b"two"]
    assert opened_elsewhere(root).startswith("open")


def test_removed_lock_file_lets_no_writer_in(tmp_path: Path):
    root = tmp_path / "store"
    with rocketlake.open_store(root) as store:
        (root / "lock").unlink()
        assert opened_elsewhere(root) == f"{os.getpid()} {root}/lock"
        store.put(Message(topic="T", body=b"one"), queue_id=0)
    assert bodies(root) == [b"one"]


@pytest.mark.parametrize("how", ["named", "by a symbolic link"])
def test_log_of_an_open_store_is_refused_to_another_root(tmp_path: Path, how: str):
    root, other = tmp_path / "store", tmp_path / "other"
    with rocketlake.open_store(root) as store:
        store.put(Message(topic="T", body=b"one"), queue_id=0)
        if how == "named":
            log: Path | None = root / "commitlog"
            named = {"store_path_commit_log": str(log)}
        else:
            log, named = None, {}
            other.mkdir()
            (other / "commitlog").symlink_to(root / "commitlog")
        shown = log or other / "commitlog"
        assert opened_elsewhere(other, log) == f"{os.getpid()} {shown}"
        with pytest.raises(StoreLockedError, match="this process has it open already") as caught:
            rocketlake.open_store(other, **named)
        assert caught.value.path == str(shown)
        store.put(Message(topic="T", body=b"two"), queue_id=0)
    assert bodies(root) == [b"one", b"two"]


def test_new_log_directory_that_two_roots_name_is_locked(tmp_path: Path):
    """The directory is made before it is locked: a lock of nothing would exclude no one."""
    log = tmp_path / "log"
    with rocketlake.open_store(tmp_path / "a", store_path_commit_log=str(log)):
        assert opened_elsewhere(tmp_path / "b", log) == f"{os.getpid()} {log}"
    assert opened_elsewhere(tmp_path / "b", log).startswith("open")


def test_two_stores_in_one_process_do_not_concern_each_other(tmp_path: Path):
    with rocketlake.open_store(tmp_path / "a") as first:
        with rocketlake.open_store(tmp_path / "b") as second:
            second.put(Message(topic="T", body=b"b"), queue_id=0)
        first.put(Message(topic="T", body=b"a"), queue_id=0)
        assert opened_elsewhere(tmp_path / "b").startswith("open")
        assert opened_elsewhere(tmp_path / "a").startswith(str(os.getpid()))
