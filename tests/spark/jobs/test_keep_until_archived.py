"""A store told to keep what is not yet archived."""

from pathlib import Path

import pytest
from archive_parts import GrowingStore, archive_here, read_here

import rocketlake
from rocketlake.errors import ConfigError
from rocketlake.spark.jobs.archive.plan import ArchiveSettings

SMALL = {"mapped_file_size_commit_log": 16 << 10}


def first_offsets(store: Path) -> int:
    return min(row["physical_offset"] for row in read_here(path=store, topicPattern=".*"))


def test_retention_keeps_what_is_not_archived(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    store = GrowingStore(tmp_path / "broker-a", keep_until_archived=target, **SMALL)
    store.grow(400)
    with rocketlake.open_store(store.path, clock=store.clock, **store.options) as opened:
        assert opened.delete_expired(hours=0).files == 0  # nothing is archived yet
        archive_here(store.path, target)
        assert opened.info()["filesKeptFrom"] == "-1"
        store.put(opened, 300)
        assert int(opened.info()["filesKeptFrom"]) > 0
        assert opened.delete_expired(hours=0).files > 0
        gone = first_offsets(store.path)
        assert gone > 0
        store.put(opened, 300)
        assert opened.delete_expired(hours=0).files == 0
    joined = read_here(path=store.path, archive=target, topicPattern=".*")
    assert len(joined) == 1000
    archive_here(store.path, target)
    assert read_here(archive=target, topicPattern=".*") == joined


def test_topics_the_archive_is_not_told_of_are_not_held(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    store = GrowingStore(tmp_path / "broker-a", keep_until_archived=target, **SMALL)
    store.grow(400)
    archive_here(store.path, target, ArchiveSettings(topics=("orders",)))
    store.grow(400, ["payments"])
    with rocketlake.open_store(store.path, clock=store.clock, **store.options) as opened:
        assert opened.delete_expired(hours=0).files > 0
        store.put(opened, 4, ["orders"])
        store.put(opened, 400, ["payments"])
        opened.delete_expired(hours=0)
        store.put(opened, 400, ["payments"])
        assert opened.delete_expired(hours=0).files == 0  # the four are in the first file now
    kept = [row["body"] for row in read_here(path=store.path, topic="orders")]
    assert kept[-4:] == [b"body %d" % number for number in range(800, 804)]


def test_what_is_not_known_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = tmp_path / "archive"
    store = GrowingStore(tmp_path / "broker-a", keep_until_archived=f"other={target}", **SMALL)
    store.grow(400)
    archive_here(store.path, target)
    with rocketlake.open_store(store.path, clock=store.clock, **store.options) as opened:
        assert opened.delete_expired(hours=0).files == 0
        assert "nothing of 'other'" in caplog.text
        (target / "_manifest.json").write_text("torn")
        assert opened.delete_expired(hours=0).files == 0
    with pytest.raises(ConfigError, match="wanted the directory of an archive"):
        rocketlake.open_store(store.path, keep_until_archived="broker=")


def test_a_topic_made_again_is_held(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    store = GrowingStore(tmp_path / "broker-a", keep_until_archived=target, **SMALL)
    store.grow(400, ["orders"])
    archive_here(store.path, target)
    with rocketlake.open_store(store.path, clock=store.clock, **store.options) as opened:
        opened.delete_topic("orders")
        store.put(opened, 600, ["orders"])
        opened.delete_expired(hours=0)
        assert opened.min_offset("orders", 0) == 0
