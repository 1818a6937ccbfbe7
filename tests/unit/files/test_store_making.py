"""Making the directories of a store."""

import pytest

from rocketlake.errors import FileAccessError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir


def test_missing_directories_are_made(tmp_path):
    logs = (tmp_path / "disk1" / "log", tmp_path / "disk2" / "log")
    made = StoreDir.make(PosixFileOps(), tmp_path / "a" / "store", logs)
    assert made.root == tmp_path / "a" / "store"
    assert made.log_dirs == logs
    assert all(path.is_dir() for path in (made.root, *logs))


def test_store_that_is_there_stays(tmp_path):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "00000000000000000000").write_bytes(b"x")
    made = StoreDir.make(PosixFileOps(), tmp_path)
    assert [file.size for file in made.log_files()] == [1]


def test_file_in_the_way_says_so(tmp_path):
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(FileAccessError, match="cannot make the directory: Not a directory"):
        StoreDir.make(PosixFileOps(), tmp_path / "store")
