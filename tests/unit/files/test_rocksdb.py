"""Databases that are opened for reading only, also while another process writes them."""

import os
import subprocess
import sys
import tempfile

import pytest
import rocksdict

from rocketlake.errors import RocksDbError, RocksDbMissingError
from rocketlake.files import rocksdb
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.rocksdb import Database
from support.golden import snapshot

OPS = PosixFileOps()


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where temporary directories are made; it is empty again at the end."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@pytest.fixture
def made(tmp_path):
    """A database with two families, one table and a write-ahead log."""
    path = tmp_path / "database"
    database = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    other = database.create_column_family("other", rocksdict.Options(raw_mode=True))
    for number in range(100):
        database[b"%03d" % number] = b"v%d" % number
    database.flush()
    database[b"100"] = b"in the log"
    other[b"o"] = b"1"
    other.close()
    database.close()
    return path


def test_entries_are_read_in_order_from_tables_and_log(made):
    with Database(OPS, made) as database:
        assert set(database.families) == {"default", "other"}
        assert [key for key, _ in database.items("default")] == [b"%03d" % n for n in range(101)]
        assert [v for _, v in database.items("default", b"098", b"100")] == [b"v98", b"v99"]
        assert database.get("default", b"100") == b"in the log"
        assert database.get("default", b"101") is None
        assert database.last("default", b"000", b"0999") == (b"099", b"v99")
        assert database.last("default", b"2", b"3") is None
        assert database.last("other", b"p", b"q") is None
        assert list(database.items("other")) == [(b"o", b"1")]


def test_family_that_is_not_there_is_empty(made):
    with Database(OPS, made) as database:
        assert database.get("absent", b"o") is None
        assert list(database.items("absent")) == []
        assert database.last("absent", b"", b"x") is None


def test_nothing_is_written_and_no_lock_is_taken(made):
    before = snapshot(made)
    with Database(OPS, made) as database:
        assert database.get("default", b"001") == b"v1"
        again = rocksdict.Rdict(str(made), rocksdict.Options(raw_mode=True))  # takes the lock
        again.close()
    (made / "LOCK").chmod(0o444)
    before = snapshot(made)
    with Database(OPS, made) as database:
        assert len(list(database.items("default"))) == 101
    assert snapshot(made) == before


def test_tables_that_are_deleted_meanwhile_stay_readable(made):
    with Database(OPS, made) as database:
        for path in made.iterdir():
            path.unlink()
        assert len(list(database.items("default"))) == 101


def test_no_database_is_told(tmp_path):
    with pytest.raises(RocksDbError, match="has no CURRENT"):
        Database(OPS, tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"MANIFEST-000099\n", b"nonsense", b"../../x\n", bytes(99)]
)
def test_current_that_names_no_manifest_is_told(made, content):
    (made / "CURRENT").write_bytes(content)
    with pytest.raises(RocksDbError, match="cannot be read"):
        Database(OPS, made)


def test_pipe_in_place_of_a_file_does_not_block(made):
    for path in made.glob("*.log"):
        path.unlink()
        os.mkfifo(path)
    with Database(OPS, made) as database:
        assert database.get("default", b"099") == b"v99"


def test_log_of_absurd_size_is_refused(made):
    with (made / "999999.log").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RocksDbError, match="write-ahead log"):
        Database(OPS, made)


def test_missing_library_names_the_extra(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert not rocksdb.is_available()
    with pytest.raises(RocksDbMissingError, match=r"pip install 'rocketlake\[rocksdb\]'"):
        Database(OPS, made)


def test_files_replaced_between_listing_and_opening_are_met_by_another_try(made, monkeypatch):
    """A compaction deletes tables that the links still name."""
    opened, tries = rocksdb._open_links, []

    def compact_and_open(library, links):
        tries.append({path.name for path in links.iterdir()})
        if len(tries) < 3:
            database = rocksdict.Rdict(str(made), rocksdict.Options(raw_mode=True))
            database[b"050"] = b"changed %d" % len(tries)
            database.flush()
            database.compact_range(None, None)
            database.close()
            assert not tries[-1] & {path.name for path in made.glob("*.sst")}
        return opened(library, links)

    monkeypatch.setattr(rocksdb, "_open_links", compact_and_open)
    with Database(OPS, made) as database:
        assert database.get("default", b"050") == b"changed 2"
    assert len(tries) == 3


WRITER = """
import sys, rocksdict
database = rocksdict.Rdict(sys.argv[1], rocksdict.Options(raw_mode=True))
number = 0
while True:
    for _ in range(500):
        database[b"n%04d" % (number % 5000)] = b"%d" % number
        number += 1
    if number == 5000:
        print("full", flush=True)
    if number % 2500 == 0:
        database.flush()
    if number % 10000 == 0:
        database.compact_range(None, None)
"""


def test_database_is_read_while_another_process_writes_and_compacts(tmp_path):
    """Each look sees the last 5000 writes up to one moment, and none is missing in between."""
    path = tmp_path / "live"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout.readline() == "full\n"
        newest = -1
        for _ in range(15):
            with Database(OPS, path) as database:
                numbers = sorted(int(value) for _, value in database.items("default"))
            assert numbers == list(range(numbers[0], numbers[0] + 5000))
            assert numbers[-1] >= newest
            newest = numbers[-1]
        assert writer.poll() is None, "reading ended the writer"
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
