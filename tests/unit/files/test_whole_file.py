"""Small files, read and replaced as a whole."""

import pytest
from file_fakes import FaultyOps

from rocketlake.errors import FileAccessError
from rocketlake.files.whole_file import read_whole, replace_whole


@pytest.fixture
def ops():
    return FaultyOps()


def test_file_is_read_as_it_was_written(ops, tmp_path):
    path = tmp_path / "note.json"
    assert read_whole(ops, path) is None
    for data in (b"first", bytes(range(256)) * 10_000, b""):
        replace_whole(ops, path, data)
        assert read_whole(ops, path) == data
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["create", "write", "sync", "rename"])
def test_what_cannot_be_written_leaves_the_old_file(ops, tmp_path, step):
    path = tmp_path / "note.json"
    replace_whole(ops, path, b"old")
    ops.faults[step] = FileAccessError(str(path), "no")
    with pytest.raises(FileAccessError):
        replace_whole(ops, path, b"new")
    assert read_whole(ops, path) == b"old"
    ops.faults.clear()
    replace_whole(ops, path, b"new")
    assert read_whole(ops, path) == b"new"


def test_new_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_end(ops, tmp_path):
    replace_whole(ops, tmp_path / "note.json", b"x")
    steps = [call.split()[0] for call in ops.calls if call.split()[0] not in ("unlink", "map")]
    assert steps == ["create", "write", "sync", "rename", "sync_dir"]
