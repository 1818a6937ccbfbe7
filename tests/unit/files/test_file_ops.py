"""Files of the machine: short reads, missing and forbidden paths, locks."""

import errno
import fcntl
import os

import pytest

from rocketlake.errors import StoreNotFoundError
from rocketlake.files import ops as ops_module
from rocketlake.files.ops import Entry, PosixFileOps


@pytest.fixture
def ops():
    return PosixFileOps()


def fail_with(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


# --- readers ---------------------------------------------------------------------------------


def test_reader_gives_less_where_the_file_ends(ops, tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    reader = ops.open_reader(tmp_path / "f")
    assert reader.read(2, 3) == b"234"
    assert reader.read(8, 100) == b"89"
    assert reader.read(10, 1) == b""
    assert reader.read(1 << 40, 1) == b""
    reader.close()


def test_reader_of_a_file_that_shrinks_reads_less(ops, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x" * 10_000)
    reader = ops.open_reader(path)
    assert len(reader.read(0, 10_000)) == 10_000
    os.truncate(path, 100)
    assert reader.read(0, 10_000) == b"x" * 100
    assert reader.read(5_000, 10) == b""
    reader.close()


def test_reader_of_a_file_that_grows_reads_more(ops, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"ab")
    reader = ops.open_reader(path)
    assert reader.read(0, 10) == b"ab"
    with path.open("ab") as file:
        file.write(b"cd")
    assert reader.read(0, 10) == b"abcd"
    reader.close()


def test_reader_of_a_file_that_is_deleted_goes_on(ops, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    reader = ops.open_reader(path)
    path.unlink()
    assert reader.read(0, 3) == b"abc"
    reader.close()


def test_reads_that_come_in_pieces_are_joined(ops, tmp_path, monkeypatch):
    (tmp_path / "f").write_bytes(b"0123456789")
    whole = os.pread
    monkeypatch.setattr(ops_module.os, "pread", lambda fd, size, at: whole(fd, min(size, 3), at))
    reader = ops.open_reader(tmp_path / "f")
    assert reader.read(1, 8) == b"12345678"
    reader.close()


def test_closing_twice_closes_nothing_else(ops, tmp_path):
    (tmp_path / "f").write_bytes(b"a")
    reader = ops.open_reader(tmp_path / "f")
    reader.close()
    other = os.open(tmp_path / "f", os.O_RDONLY)  # noqa: TID251 - takes the number that is free
    reader.close()
    assert os.pread(other, 1, 0) == b"a"
    os.close(other)


def test_opening_what_is_not_there_says_so(ops, tmp_path):
    with pytest.raises(StoreNotFoundError, match=r"cannot read .*/gone: No such file"):
        ops.open_reader(tmp_path / "gone")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_opening_what_may_not_be_read_says_so(ops, tmp_path, monkeypatch, number):
    (tmp_path / "f").write_bytes(b"")
    monkeypatch.setattr(ops_module.os, "open", fail_with(number))
    with pytest.raises(StoreNotFoundError, match=os.strerror(number)):
        ops.open_reader(tmp_path / "f")


# --- directories -----------------------------------------------------------------------------


def test_entries_come_by_name(ops, tmp_path):
    (tmp_path / "b").write_bytes(b"12")
    (tmp_path / "a").mkdir()
    found = ops.entries(tmp_path)
    assert [(entry.name, entry.is_dir, entry.size) for entry in found] == [
        ("a", True, 0),
        ("b", False, 2),
    ]


def test_modification_times_are_in_milliseconds(ops, tmp_path):
    (tmp_path / "f").write_bytes(b"")
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_999_999))
    assert ops.stat(tmp_path / "f") == Entry(tmp_path / "f", False, 0, 1_700_000_000_123)


@pytest.mark.parametrize("name", ["gone", "file", "file/below"])
def test_listing_what_is_no_directory_gives_nothing(ops, tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    assert ops.entries(tmp_path / name) == []


def test_what_is_not_there_has_no_state(ops, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert ops.stat(tmp_path / "gone") is None
    assert ops.stat(tmp_path / "file" / "below") is None


def test_a_link_that_leads_nowhere_is_passed_over(ops, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (tmp_path / "file").write_bytes(b"")
    assert [entry.name for entry in ops.entries(tmp_path)] == ["file"]


def test_a_link_is_what_it_leads_to(ops, tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert [(entry.name, entry.size) for entry in ops.entries(tmp_path)] == [
        ("file", 3),
        ("link", 3),
    ]


@pytest.mark.parametrize("name", ["scandir", "_as_entry"])
def test_directory_that_may_not_be_listed_says_so(ops, tmp_path, monkeypatch, name):
    (tmp_path / "file").write_bytes(b"")
    target = ops_module.os if name == "scandir" else ops_module
    monkeypatch.setattr(target, name, fail_with(errno.EACCES))
    with pytest.raises(StoreNotFoundError, match="Permission denied"):
        ops.entries(tmp_path)


def test_path_that_may_not_be_looked_at_says_so(ops, tmp_path, monkeypatch):
    monkeypatch.setattr(ops_module.Path, "stat", fail_with(errno.EACCES))
    with pytest.raises(StoreNotFoundError, match="Permission denied"):
        ops.stat(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_forbidden_directory(ops, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0)
    try:
        with pytest.raises(StoreNotFoundError, match="Permission denied"):
            ops.entries(place)
    finally:
        place.chmod(0o700)


# --- locks -----------------------------------------------------------------------------------


def test_lock_names_the_process_that_holds_it(ops, tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    assert ops.lock_holder(path) is None
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        assert ops.lock_holder(path) == os.getpid()
        # Asking must not have dropped it: another process would then get it.
        assert ops.lock_holder(path) == os.getpid()
    assert ops.lock_holder(path) is None


def test_a_shared_lock_is_no_writer(ops, tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with path.open("rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert ops.lock_holder(path) is None


def test_no_lock_file_is_held_by_nobody(ops, tmp_path):
    assert ops.lock_holder(tmp_path / "lock") is None


def test_without_a_table_of_locks_nobody_is_known(ops, tmp_path, monkeypatch):
    (tmp_path / "lock").write_bytes(b"lock")
    monkeypatch.setattr(ops_module.Path, "read_text", fail_with(errno.ENOENT))
    assert ops.lock_holder(tmp_path / "lock") is None
