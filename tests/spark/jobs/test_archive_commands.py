"""The commands archive, replay and compact, as a user types them."""

from pathlib import Path

import pytest
from archive_parts import GrowingStore, archive_here, read_here
from pyspark.sql import SparkSession

import rocketlake
from support.command import run


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    found = GrowingStore(tmp_path / "broker-a")
    found.grow(120)
    return found


def test_archive_then_replay_and_compact_from_it(
    spark: SparkSession, store: GrowingStore, tmp_path: Path
) -> None:
    del spark  # the commands use the session that is there
    target = tmp_path / "archive"
    ran = run("archive", store.path, target, "--json")
    assert (ran.code, ran.json["rows"], ran.json["run"]) == (0, 120, 1), ran.err
    wanted = read_here(archive=target, topic="orders")
    ran = run("replay", target, tmp_path / "new", "--topic", "orders", "--to-topic", "again")
    assert (ran.code, ran.out.split()[:2]) == (0, ["60", "messages"]), ran.err
    again = read_here(path=tmp_path / "new", topic="again")
    assert [row["body"] for row in again] == [row["body"] for row in wanted]
    arguments = ("--topic", "orders", "--by", "property:n", "--to", "parquet", "--dry-run")
    ran = run("compact", store.path, tmp_path / "table", *arguments)
    assert ran.code == 0, ran.err
    assert "60 messages" in ran.out
    assert "60 are the newest" in ran.out
    assert not (tmp_path / "table").exists()


def test_what_is_wrong_is_told_before_spark_starts(store: GrowingStore, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    shown = run("archive", store.path, target, "--dry-run")
    assert shown.code == 0
    assert "2025-12-31" in shown.out
    planned = run("archive", store.path, target, "--dry-run", "--json").json
    assert planned["messages"] == 120
    assert not target.exists()
    for arguments, text in (
        (("archive", tmp_path / "no", target), "there is no such directory"),
        (("archive", store.path, target, "--topic", "order"), "did you mean 'orders'"),
        (("archive", store.path, target, "--target-size", "1q"), "wanted bytes"),
        (("archive", store.path, target, "--option", "x"), "wanted KEY=VALUE"),
        (("archive", store.path, store.path), "it is not an archive"),
        (("replay", store.path, target), "no topic is named"),
        (("replay", store.path, target, "--dead-letters", "g"), "there is no topic '%DLQ%g'"),
        (("replay", store.path, target, "--topic", "orders", "--from-time", "x"), "is not a time"),
        (("compact", store.path, target, "--topic", "orders", "--by", "key"), "wanted keys"),
    ):
        ran = run(*arguments)
        assert ran.code == 2, arguments
        assert text in ran.err, ran.err


def test_a_gap_is_told_by_the_exit_code(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "broker-a", mapped_file_size_commit_log=16 << 10)
    store.grow(100)
    archive_here(store.path, tmp_path / "archive")
    store.grow(600)
    with rocketlake.open_store(store.path, clock=store.clock) as opened:
        opened.delete_expired(hours=0)
    ran = run("archive", store.path, tmp_path / "archive", "--dry-run")
    assert ran.code == 1
    assert "expired before they were archived" in ran.err
