"""Writing tables: the old or the new one is there at every moment."""

import os
from contextlib import suppress

import pytest

from rocketlake import failpoint
from rocketlake.errors import DiskFullError, FileAccessError, FlushFailedError
from rocketlake.files.json_file import LoadedTable, backup_path, load_table, write_table
from rocketlake.files.ops import PosixFileOps


class PowerCutError(Exception):
    """The end of the process."""


class CuttingOps(PosixFileOps):
    """Files of a process that ends before its n-th call."""

    def __init__(self, calls):
        self.left = calls
        self.did_end = False

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def call(*arguments, **options):
            if self.left == 0:
                self.did_end = True
                raise PowerCutError
            self.left -= 1
            return found(*arguments, **options)

        return call


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "topics.json"


def content(path):
    return {child.name: child.read_bytes() for child in path.parent.iterdir()}


def test_first_table_has_no_copy(ops, path):
    write_table(ops, path, b'{"a":1}')
    assert content(path) == {"topics.json": b'{"a":1}'}
    assert load_table(path) == LoadedTable({"a": 1}, "file", None)


def test_old_table_becomes_the_copy(ops, path):
    for number in range(3):
        write_table(ops, path, b'{"a":%d}' % number)
    assert content(path) == {"topics.json": b'{"a":2}', "topics.json.bak": b'{"a":1}'}


def test_copy_is_made_where_files_have_one_name_only(path):
    class Ops(PosixFileOps):
        def link(self, source, target):
            return False

    write_table(Ops(), path, b'{"a":0}')
    write_table(Ops(), path, b'{"a":1}')
    assert content(path) == {"topics.json": b'{"a":1}', "topics.json.bak": b'{"a":0}'}


@pytest.mark.parametrize("broken", [b"", b" \n", b'{"a":', b"\0\0\0\0"])
def test_broken_table_does_not_take_the_place_of_the_copy(ops, path, broken):
    path.parent.mkdir()
    path.write_bytes(broken)
    backup_path(path).write_bytes(b'{"a":0}')
    write_table(ops, path, b'{"a":1}')
    assert content(path) == {"topics.json": b'{"a":1}', "topics.json.bak": b'{"a":0}'}


def test_new_table_takes_the_place_of_what_is_no_file(ops, path):
    for number in range(2):
        write_table(ops, path, b'{"a":%d}' % number)
    path.unlink()
    os.mkfifo(path)
    write_table(ops, path, b'{"a":2}')
    assert content(path) == {"topics.json": b'{"a":2}', "topics.json.bak": b'{"a":0}'}


def test_left_overs_of_a_crash_are_no_obstacle(ops, path):
    write_table(ops, path, b'{"a":0}')
    (path.parent / "topics.json.tmp").write_bytes(b"garbage")
    (path.parent / "topics.json.bak.tmp").write_bytes(b"garbage")
    write_table(ops, path, b'{"a":1}')
    assert content(path) == {"topics.json": b'{"a":1}', "topics.json.bak": b'{"a":0}'}


def test_steps_come_in_the_order_that_a_power_cut_asks_for(ops, path):
    write_table(ops, path, b'{"a":0}')
    ops.calls.clear()
    write_table(ops, path, b'{"a":1}')
    assert ops.calls == [
        "unlink topics.json.tmp",
        "create topics.json.tmp",
        "write topics.json.tmp",
        "sync topics.json.tmp",
        "unlink topics.json.bak.tmp",
        "link topics.json.bak.tmp",
        "rename topics.json",
        "sync_dir config",
        "rename topics.json.bak",
        "sync_dir config",
    ]


@pytest.mark.parametrize("has_copy", [False, True])
def test_process_that_ends_anywhere_leaves_the_old_or_the_new_table(path, has_copy):
    seen = set()
    for calls in range(100):
        for child in path.parent.glob("*"):
            child.unlink()
        write_table(PosixFileOps(), path, b'{"a":0}')
        if has_copy:
            write_table(PosixFileOps(), path, b'{"a":1}')
        ops = CuttingOps(calls)
        with suppress(PowerCutError):
            write_table(ops, path, b'{"a":2}')
        loaded = load_table(path)
        assert (loaded.source, loaded.problem) == ("file", None)
        seen.add(loaded.value["a"])
        write_table(PosixFileOps(), path, b'{"a":3}')
        assert load_table(path).value == {"a": 3}
        if not ops.did_end:
            break
    assert calls > 5
    assert seen == {1 if has_copy else 0, 2}


@pytest.mark.parametrize(
    ("point", "value"),
    [("table.before", 0), ("table.after", 1), ("backup.before", 1), ("backup.after", 1)],
)
def test_failpoints_stand_around_both_names(ops, path, point, value):
    def crash():
        raise PowerCutError

    write_table(ops, path, b'{"a":0}')
    with failpoint.switched_on(point, crash), pytest.raises(PowerCutError):
        write_table(ops, path, b'{"a":1}')
    assert load_table(path).value == {"a": value}


@pytest.mark.parametrize("step", ["write", "sync", "create"])
def test_full_disk_leaves_the_old_table(ops, path, step):
    write_table(ops, path, b'{"a":0}')
    ops.faults[step] = (
        FlushFailedError("disk", "flush failed") if step == "sync" else DiskFullError("disk", 7, 0)
    )
    with pytest.raises(FileAccessError):
        write_table(ops, path, b'{"a":1}')
    assert content(path) == {"topics.json": b'{"a":0}'}
    assert ops.open_writers == 0


def test_tables_are_read_through_the_files_given(path):
    class Forbidden(PosixFileOps):
        def open_reader(self, path):
            raise FileAccessError(str(path), "not today")

    write_table(PosixFileOps(), path, b'{"a":0}')
    loaded = load_table(path, ops=Forbidden())
    assert loaded.value is None
    assert "not today" in loaded.problem


def test_table_renamed_away_while_it_is_read_is_missing(path, tmp_path):
    class Vanishing(PosixFileOps):
        def open_reader(self, path):
            path.unlink()
            return super().open_reader(path)

    write_table(PosixFileOps(), path, b'{"a":0}')
    assert load_table(path, ops=Vanishing()) == LoadedTable(None, "missing", None)


def test_table_that_may_not_be_read_says_why(path, monkeypatch):
    write_table(PosixFileOps(), path, b'{"a":0}')

    def fail(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", fail)
    loaded = load_table(path)
    assert loaded.problem == "topics.json: Permission denied; topics.json.bak is missing"
