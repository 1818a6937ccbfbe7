"""A store that RocketMQ 5.5.0 opened, with the database it makes: every tool works on it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rocketlake
from rocketlake import Message
from rocketlake.store.offline import OfflineStore
from support.command import run
from support.golden import Golden, GoldenStores
from support.spark_reading import read_rows


@pytest.fixture(params=["v55-basic", "v55-index", "v55-timer"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    found = GoldenStores.copy(request.param, tmp_path / "golden")
    assert (found.root / "rocksdbstore" / "CURRENT").exists()
    return found


def bodies(root: Path) -> list[bytes]:
    return sorted(bytes(row["body"]) for row in read_rows(root, topicPattern=".*"))


def topics_of(golden: Golden) -> set[str]:
    return {line["topic"] for line in golden.case.messages}


def test_jobs_take_it(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    del spark  # the commands use the session that is there
    root, archive = golden.root, tmp_path / "archive"
    wanted = bodies(root)
    assert len(wanted) == len(golden.case.messages)
    ran = run("archive", root, archive, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["rows"] > 0
    ran = run("profile", root, "--json", "--out", tmp_path / "page.html")
    assert ran.code == 0, ran.err
    topic = sorted(topics_of(golden))[0]
    ran = run("compact", root, tmp_path / "newest", "--topic", topic)
    assert ran.code == 0, ran.err
    ran = run("replay", root, tmp_path / "new", "--topic", topic, "--to-topic", "again")
    assert ran.code == 0, ran.err
    with rocketlake.open_store(tmp_path / "new", read_only=True) as store:
        again = sum(store.max_offset("again", queue) for queue in range(16))
    assert again == sum(line["topic"] == topic for line in golden.case.messages)
    ran = run("rebuild", root)
    assert ran.code == 0, ran.err
    assert bodies(root) == wanted


def test_tools_take_it(golden: Golden, tmp_path: Path) -> None:
    root, copy = golden.root, tmp_path / "copy"
    sizes = golden.case.options(root)
    for command in (("verify", root), ("info", root), ("repair", root)):
        ran = run(*command)
        assert ran.code == 0, ran.out + ran.err
        assert "RocksDB" not in ran.out + ran.err
    ran = run("backup", root, copy)
    assert ran.code == 0, ran.out + ran.err
    assert run("verify", copy).code == 0
    whole = [path.read_bytes() for path in golden.files("index")]
    damaged = bytearray(whole[0])
    damaged[3] ^= 1  # the time the file begins with
    golden.files("index")[0].write_bytes(damaged)
    assert run("verify", root).code == 1
    ran = run("repair", root, "--yes")
    assert run("verify", root).code == 0, ran.out + ran.err
    assert [path.read_bytes() for path in golden.files("index")] == whole
    for place in (root, copy):
        with rocketlake.open_store(place, sizes) as store:
            receipt = store.put(Message(topic="after", body=b"x", tags="tag"), queue_id=0)
            assert receipt.queue_offset == 0
            assert len(store.query("after", tag="tag")) == 1
        ran = run("verify", place)
        assert ran.code == 0, ran.out
        with OfflineStore(place) as view:
            assert view.checkpoint.queue_physical_offset == receipt.physical_offset
