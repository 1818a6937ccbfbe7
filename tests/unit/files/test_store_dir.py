"""Where the files of a store lie, and what is not one of them."""

import errno
import os

import pytest

from rocketlake.errors import StoreNotFoundError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir


class ForbiddenOps(PosixFileOps):
    """Files of the machine, one path of which may not be listed."""

    def __init__(self, forbidden):
        self._forbidden = forbidden

    def entries(self, path):
        if path == self._forbidden:
            raise StoreNotFoundError(f"cannot read {path}: {os.strerror(errno.EACCES)}")
        return super().entries(path)


def store_dir(root, *log_dirs):
    return StoreDir(PosixFileOps(), root, log_dirs)


def fill(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10)
    return root


def test_missing_store(tmp_path):
    with pytest.raises(
        StoreNotFoundError, match=r"no store at .*/gone: there is no such directory"
    ):
        store_dir(tmp_path / "gone")


def test_file_instead_of_a_store(tmp_path):
    fill(tmp_path, "file")
    with pytest.raises(StoreNotFoundError, match="it is a file, not a directory"):
        store_dir(tmp_path / "file")


def test_file_on_the_way_to_a_store(tmp_path):
    fill(tmp_path, "file")
    with pytest.raises(StoreNotFoundError, match="there is no such directory"):
        store_dir(tmp_path / "file" / "store")


def test_forbidden_store(tmp_path):
    with pytest.raises(StoreNotFoundError, match="Permission denied"):
        StoreDir(ForbiddenOps(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("name", "text"), [("gone", "there is no such directory"), ("file", "it is a file")]
)
def test_log_directory_that_is_none(tmp_path, name, text):
    fill(tmp_path, "file")
    with pytest.raises(StoreNotFoundError, match=rf"no commit log at .*/{name}: {text}"):
        store_dir(tmp_path, tmp_path / name)


def test_empty_store_has_nothing(tmp_path):
    found = store_dir(tmp_path)
    assert found.log_dirs == (tmp_path / "commitlog",)
    assert found.log_files() == []
    assert found.queue_dirs("consumequeue") == []
    assert found.index_files() == []
    assert found.read_small("checkpoint") is None
    assert not found.exists("abort")


def test_log_files_of_several_directories_come_by_name(tmp_path):
    fill(tmp_path, "b/00000000000000000000", "a/00000000000000000010", "b/00000000000000000020")
    found = store_dir(tmp_path, tmp_path / "b", tmp_path / "a").log_files()
    assert [(file.base_offset, file.path.parent.name) for file in found] == [
        (0, "b"),
        (10, "a"),
        (20, "b"),
    ]


def test_log_directories_are_found_where_commitlog_is_missing(tmp_path):
    fill(tmp_path, "cl-b/00000000000000000000", "cl-a/00000000000000000010")
    fill(tmp_path, "consumequeue/T/0/00000000000000000000", "timerlog/00000000000000000000")
    assert store_dir(tmp_path).log_dirs == (tmp_path / "cl-a", tmp_path / "cl-b")


def test_commitlog_is_preferred_to_other_directories(tmp_path):
    fill(tmp_path, "commitlog/00000000000000000000", "copy/00000000000000000000")
    assert store_dir(tmp_path).log_dirs == (tmp_path / "commitlog",)


@pytest.mark.parametrize(
    "place",
    [
        "dledger-n0/data/00000000000000000000",
        "compaction/compactionLog/T/0/00000000000000000000",
        "tieredstore/broker/T/0/COMMIT_LOG/00000000000000000000",
        "timerlog/00000000000000000000",
        "consumequeue_ext/T/0/00000000000000000000",
        "batchconsumequeue/T/0/00000000000000000000",
    ],
)
def test_files_of_other_families_are_no_log(tmp_path, place):
    fill(tmp_path, place)
    assert store_dir(tmp_path).log_files() == []


def test_foreign_files_among_the_log_are_passed_over(tmp_path):
    names = ["00000000000000000000", "readme.txt", "00000000000000000010.bak", "0x10", "-1"]
    names += ["000000000000000000000", "\u0660" * 20, " 5", "1e3"]
    fill(tmp_path, *(f"commitlog/{name}" for name in names))
    (tmp_path / "commitlog" / "00000000000000000020").mkdir()
    assert [file.path.name for file in store_dir(tmp_path).log_files()] == ["00000000000000000000"]


def test_name_beyond_any_offset_is_foreign(tmp_path):
    """Java's long ends at 9223372036854775807: the reference cannot have made this file."""
    fill(tmp_path, "commitlog/00000000000000000000", "commitlog/99999999999999999999")
    assert [file.base_offset for file in store_dir(tmp_path).log_files()] == [0]


def test_queues_come_by_topic_and_number(tmp_path):
    for place in ("B/0", "A/10", "A/2", "A/x", "A/²", "A/-1", "A/1.5", "A/-", "A/-0", "A/02"):
        (tmp_path / "consumequeue" / place).mkdir(parents=True)
    fill(tmp_path, "consumequeue/A/3", "consumequeue/file")
    found = store_dir(tmp_path).queue_dirs("consumequeue")
    keys = [(queue.topic, queue.queue_id) for queue in found]
    assert keys == [("A", -1), ("A", 2), ("A", 10), ("B", 0)]


def test_index_files_are_those_named_by_time(tmp_path):
    fill(
        tmp_path,
        *("index/20240131235959123", "index/20240131235959122", "index/2024013123595912"),
        *("index/20240131235959123.tmp", "index/notes"),
    )
    (tmp_path / "index" / "20240131235959124").mkdir()
    found = store_dir(tmp_path).index_files()
    assert [entry.name for entry in found] == ["20240131235959122", "20240131235959123"]


def test_small_files_are_read_up_to_a_limit(tmp_path):
    (tmp_path / "checkpoint").write_bytes(b"0123456789")
    (tmp_path / "abort").mkdir()
    found = store_dir(tmp_path)
    assert found.read_small("checkpoint") == b"0123456789"
    assert found.read_small("checkpoint", 4) == b"0123"
    assert found.read_small("abort") is None
