"""How a store was stopped, and the variants of the format that are named and never misread."""

import fcntl
import os
import re

import pytest

import rocketlake
from rocketlake.embedded.bulk_store import open_bulk, preview_store
from rocketlake.errors import StoreError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.store.disk.traits import refuse_rocksdb
from rocketlake.store.offline import OfflineStore
from support.golden import snapshot
from support.reading import bodies, bounds
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=1000).records(3)


def test_clean_and_unclean(builder):
    with OfflineStore(builder.write()) as store:
        assert store.traits.is_clean
        assert store.traits.held_by is None
    with OfflineStore(builder.unclean().write()) as store:
        assert not store.traits.is_clean


def test_plain_store_of_5x_has_no_variants(builder):
    with OfflineStore(builder.write()) as store:
        assert store.traits.variants == []
        assert store.traits.is_5x


def test_generation_shows_in_the_abort_files(tmp_path):
    old = StoreBuilder(tmp_path / "4", is_5x=False).records(1)
    with OfflineStore(old.write()) as store:
        assert store.traits.is_4x
    with OfflineStore(old.unclean(b"").write()) as store:
        assert store.traits.is_4x
    with OfflineStore(old.unclean(b"4711").write()) as store:
        assert store.traits.is_5x


def test_process_that_holds_the_store_is_named(builder):
    root = builder.unclean().write()
    with (root / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        with OfflineStore(root) as store:
            assert store.traits.held_by == os.getpid()
            assert len(bodies(store)) == 3
        with OfflineStore(root) as store:
            assert store.traits.held_by == os.getpid(), "reading dropped the lock"


VARIANTS = [
    ("batchconsumequeue/B/0/00000000000000000000", "batch consume queues"),
    ("consumequeue_ext/T/0/00000000000000000000", "consume queue extension"),
    ("timerwheel", "timer wheel"),
    ("timerlog/00000000000000000000", "timer log"),
    ("compaction/compactionLog/T/0/00000000000000000000", "compaction topics"),
    ("epochFileCheckpoint", "controller mode"),
    ("dledger-n0/data/00000000000000000000", "DLedger log"),
    ("tieredstore/T/0/00000000000000000000", "tiered storage"),
    ("consumequeue_rocksdb/CURRENT", "RocksDB consume queues"),
    ("rocksdbstore/000004.log", "RocksDB message database"),
    ("rocksdbstore/000010.sst", "RocksDB message database"),
    ("config/topics/CURRENT", "RocksDB config tables"),
]


@pytest.mark.parametrize(("place", "variant"), VARIANTS, ids=[place for place, _ in VARIANTS])
def test_variant_is_named_and_the_rest_is_read(builder, place, variant):
    root = builder.file(place, bytes(range(256)) * 8).write()
    with OfflineStore(root) as store:
        assert store.traits.variants == [variant]
        assert bodies(store) == [b"0", b"1", b"2"]
        assert {key: high for key, (_, high) in bounds(store).items()} == {"T/0": 3} | (
            {"B/0": 0} if place.startswith("batch") else {}
        ), "garbage was taken for a queue"


@pytest.mark.parametrize("place", ["timerwheel", "batchconsumequeue/B/0/x", "timerlog/x"])
def test_empty_files_are_no_variant(builder, place):
    root = builder.file(place, b"").write()
    if "/" in place:
        (root / place).unlink()
        (root / place).parent.rmdir()
    with OfflineStore(root) as store:
        assert [text for text in store.traits.variants if text == "timer wheel"] == []


@pytest.mark.parametrize("mark", ["CURRENT", "MANIFEST-000005", "OPTIONS-000007", "000004.sst"])
def test_queues_in_rocksdb_are_named_and_shown_from_the_log(tmp_path, mark):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(3, dispatched=False)
    builder.file(f"consumequeue/{mark}", b"\0" * 100)
    with OfflineStore(builder.write()) as store:
        assert store.traits.has_rocksdb_queues
        assert store.traits.variants == ["RocksDB consume queues"]
        assert store.traits.is_5x
        assert bodies(store) == [b"0", b"1", b"2"]
        assert bounds(store) == {"T/0": (0, 3)}


def test_empty_message_database_of_5_5_is_no_variant(builder):
    builder.file("rocksdbstore/CURRENT", b"MANIFEST-000005\n").file("rocksdbstore/000004.log", b"")
    with OfflineStore(builder.write()) as store:
        assert store.traits.variants == []
        assert store.traits.is_5x
        assert not store.traits.has_rocksdb_queues


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("consumequeue/CURRENT", "consume queues in RocksDB (consumequeue)"),
        ("consumequeue_rocksdb/CURRENT", "consume queues in RocksDB (consumequeue_rocksdb)"),
        ("config/topics/CURRENT", "topics, groups and progress in RocksDB (config/topics)"),
    ],
)
def test_store_in_rocksdb_is_not_opened_for_writing(tmp_path, place, what):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(3, dispatched=False)
    root = builder.file(place, b"MANIFEST-000005\n").write()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=re.escape(what)) as told:
        rocketlake.open_store(root)
    assert "Nothing was changed" in str(told.value)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    with rocketlake.open_store(root, read_only=True) as store:
        assert [m.body for m in store.get("T", 0, 0).messages] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("data", ["000012.log", "000013.sst"])
def test_store_with_a_timer_in_rocksdb_is_not_opened_for_writing(builder, data):
    """Its progress is in the database only: each timed message was delivered again."""
    builder.file("consumequeue/rmq_sys_wheel_timer/0/00000000000000000000", bytes(6000))
    root = builder.file(f"rocksdbstore/{data}", b"x").write()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="timerRocksDBEnable"):
        rocketlake.open_store(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    with rocketlake.open_store(root, read_only=True) as store:
        assert [m.body for m in store.get("T", 0, 0).messages] == [b"0", b"1", b"2"]


def test_rocksdb_index_without_timed_messages_keeps_no_store_closed(builder):
    root = builder.file("rocksdbstore/000013.sst", b"x").write()
    refuse_rocksdb(StoreDir(PosixFileOps(), root))


def test_tiered_storage_elsewhere_is_named_by_its_table(builder):
    """5.x keeps the list of moved files in `config`, and the files where its options say."""
    root = builder.file("config/tieredStoreMetadata.json", b"{}").write()
    with OfflineStore(root) as store:
        assert store.traits.variants == ["tiered storage"]


def test_store_with_a_dledger_log_is_not_written_to(builder):
    root = builder.records(3).file("dledger-n0/data/00000000000000000000", b"x").write()
    before = snapshot(root)
    doors = (
        rocketlake.open_store,
        lambda path: rocketlake.open_store(path, dispatch="external"),
        lambda path: rocketlake.open_store(path, store_path_commit_log=f"{path}/commitlog"),
        preview_store,
        open_bulk,
    )
    for door in doors:
        with pytest.raises(StoreError, match=r"log in DLedger \(dledger-n0\)"):
            door(root)
    assert snapshot(root) == before


def test_store_with_a_dledger_log_only_has_no_messages(builder):
    root = builder.file("dledger-n0/data/00000000000000000000", b"\1" * 1000).write()
    builder.lose_log_file(0)
    (root / "commitlog").rmdir()
    with OfflineStore(root) as store:
        assert store.traits.variants == ["DLedger log"]
        assert store.log.files == []
        assert store.max_offset == 0
        assert bodies(store) == []
