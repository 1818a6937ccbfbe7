"""The directories of the commit log: named, found, or made."""

from pathlib import Path

import pytest

from rocketlake.errors import StoreNotFoundError
from rocketlake.files.mapped_file_queue import QueuePaths
from rocketlake.files.ops import PosixFileOps
from rocketlake.store.disk.log_dirs import named_paths, open_dirs

ROOT = Path("/store")


@pytest.mark.parametrize(
    ("writable", "read_only", "expected"),
    [
        (None, None, None),
        ("", " ", None),
        ("/a", None, QueuePaths((Path("/a"),))),
        ("/a,", "/r", QueuePaths((Path("/a"),), (Path("/r"),))),
        ("/a", "/r", QueuePaths((Path("/a"),), (Path("/r"),))),
        (" /b , /a ,", "/r1,/r2", QueuePaths((Path("/b"), Path("/a")), (Path("/r1"), Path("/r2")))),
        ("/a,/a/", None, QueuePaths((Path("/a"),))),
        (None, "/r", QueuePaths((ROOT / "commitlog",), (Path("/r"),))),
        ("{store}/x,{store}/y", None, QueuePaths((ROOT / "x", ROOT / "y"))),
    ],
)
def test_named_paths(writable, read_only, expected):
    assert named_paths(writable, read_only, ROOT) == expected


def opened(root, paths=None):
    directory, found = open_dirs(PosixFileOps(), root, paths)
    return directory.log_dirs, found


def test_new_store_has_the_usual_directory(tmp_path):
    root = tmp_path / "new" / "store"
    assert opened(root) == ((root / "commitlog",), QueuePaths((root / "commitlog",)))
    assert root.is_dir()


def test_store_is_found_where_it_lies(tmp_path):
    for name in ("cl-a", "cl-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}").write_bytes(b"x")
    expected = (tmp_path / "cl-a", tmp_path / "cl-b")
    assert opened(tmp_path) == (expected, QueuePaths(expected))


def test_named_directories_are_made_but_not_those_to_be_read(tmp_path):
    there, absent = tmp_path / "r1", tmp_path / "r2"
    there.mkdir()
    paths = QueuePaths((tmp_path / "d1" / "log",), (there, absent))
    log_dirs, found = opened(tmp_path / "store", paths)
    assert log_dirs == (tmp_path / "d1" / "log", there)
    assert found == paths
    assert (tmp_path / "d1" / "log").is_dir()
    assert not absent.exists()


def queue(root):
    (root / "consumequeue" / "T" / "0").mkdir(parents=True)


@pytest.mark.parametrize("named", [None, "elsewhere"])
def test_queues_without_a_log_directory_are_refused(tmp_path, named):
    queue(tmp_path)
    paths = None if named is None else QueuePaths((tmp_path / named,))
    with pytest.raises(StoreNotFoundError, match="storePathCommitLog") as refused:
        opened(tmp_path, paths)
    assert str(tmp_path / (named or "commitlog")) in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["consumequeue"]


def test_queues_with_an_empty_log_directory_are_recoverys_matter(tmp_path):
    queue(tmp_path)
    (tmp_path / "commitlog").mkdir()
    assert opened(tmp_path)[0] == (tmp_path / "commitlog",)


def test_new_directory_may_be_added_to_a_log(tmp_path):
    queue(tmp_path)
    (tmp_path / "commitlog").mkdir()
    paths = QueuePaths((tmp_path / "commitlog", tmp_path / "more"))
    assert opened(tmp_path, paths)[0] == paths.writable
