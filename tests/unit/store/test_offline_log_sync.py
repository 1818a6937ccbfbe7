"""A reader that keeps how far it came has the log on the disk before it says so."""

import pytest

from rocketlake.errors import FileAccessError, FlushFailedError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.store.offline.log_sync import LogSync
from support.engine import open_engine, request


class Writer:
    """An open file whose sync is noted, or fails."""

    def __init__(self, machine, plain, path):
        self._machine = machine
        self._plain = plain
        self._path = path
        self.close = plain.close

    def sync(self):
        if self._machine.fault is not None:
            raise self._machine.fault
        self._plain.sync()
        self._machine.synced.append(self._path.name)


class Machine(PosixFileOps):
    """Notes which files were synced."""

    def __init__(self):
        self.synced = []
        self.fault = None

    def open_writer(self, path):
        if isinstance(self.fault, FileAccessError) and not isinstance(self.fault, FlushFailedError):
            raise self.fault
        return Writer(self, super().open_writer(path), path)


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def store(tmp_path):
    with open_engine(tmp_path) as store:
        yield store


@pytest.fixture
def sync(tmp_path, machine, store):
    return LogSync(StoreDir(machine, tmp_path))


def put(store, count):
    for _ in range(count):
        assert store.put(request(body=bytes(1000))).is_ok


def names(store):
    end = store.log.max_offset
    return [file.path.name for file in store.log.files.files if file.base_offset < end]


def test_all_files_then_only_those_that_may_have_changed(store, machine, sync):
    put(store, 10)
    assert sync.run(store.log.max_offset)
    first = names(store)
    assert machine.synced == first
    assert len(first) > 2
    machine.synced.clear()
    put(store, 5)
    assert sync.run(store.log.max_offset)
    assert machine.synced == names(store)[len(first) - 1 :]


def test_file_that_expires_meanwhile_holds_up_nothing(store, machine, sync, monkeypatch):
    put(store, 10)
    files = sync._directory.log_files()
    monkeypatch.setattr(sync._directory, "log_files", lambda: files)
    files[0].path.unlink()
    assert sync.run(store.log.max_offset)
    assert machine.synced == names(store)[1:]


def test_reader_without_permission_goes_on(store, machine, sync, caplog):
    put(store, 1)
    machine.fault = FileAccessError("log", "cannot open: Permission denied")
    caplog.set_level("INFO")
    assert not sync.run(store.log.max_offset)
    assert not sync.run(store.log.max_offset)
    assert caplog.text.count("before they are surely on the disk") == 1


def test_sync_that_fails_is_an_error(store, machine, sync):
    put(store, 1)
    machine.fault = FlushFailedError("log", "flush failed: Input/output error")
    with pytest.raises(FlushFailedError):
        sync.run(store.log.max_offset)
