"""Stores whose queues and tables are in RocksDB, as tables: what RocketMQ 5.5.0 reads from them."""

import sys
from pathlib import Path

import pytest

from rocketlake.errors import StoreError
from rocketlake.spark.sink.options import SinkOptions
from rocketlake.spark.sink.plan import WritePlan
from rocketlake.spark.stream.offsets import StreamSource
from rocketlake.spark.stream.progress import GroupProgress, StoreLocation
from support.golden import ROCKSDB_DATA, GoldenCase, GoldenStores, snapshot
from support.spark_reading import read_rows, read_table

CASES = ("queues-expired", "queues-killed", "tables-v2")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[GoldenCase, Path]:
    golden = GoldenStores.copy(request.param, tmp_path, ROCKSDB_DATA)
    return golden.case, golden.root


def test_messages_of_queues(case: tuple[GoldenCase, Path]) -> None:
    wanted, root = case
    before = snapshot(root)
    rows = read_rows(root, topicPattern=".*")
    found = sorted(
        (r["topic"], r["queue_id"], r["queue_offset"], r["physical_offset"]) for r in rows
    )
    assert found == sorted(
        (m["topic"], m["queueId"], m["queueOffset"], m["physicalOffset"]) for m in wanted.messages
    )
    assert read_rows(root, topicPattern=".*", minPartitions=7) != []
    assert snapshot(root) == before


def test_units_of_queues(case: tuple[GoldenCase, Path]) -> None:
    wanted, root = case
    rows = read_rows(root, table="queue")
    found = sorted((r["topic"], r["queue_id"], r["queue_offset"], r["tags_code"]) for r in rows)
    assert found == sorted(
        (m["topic"], m["queueId"], m["queueOffset"], m["tagsCode"]) for m in wanted.messages
    )
    is_killed = wanted.name == "queues-killed"
    assert {row["is_owed"] for row in rows} == {is_killed}, "units not in the database are owed"


def test_progress_of_groups(case: tuple[GoldenCase, Path]) -> None:
    wanted, root = case
    rows = read_table(root, table="progress").to_pylist()
    bounds = wanted.bounds
    found = {
        (r["group"], r["topic"], r["queue_id"]): (r["committed_offset"], r["max_offset"])
        for r in rows
    }
    assert found == {
        (o["group"], o["topic"], o["queueId"]): (
            o["offset"],
            bounds[o["topic"], o["queueId"]][1],
        )
        for o in wanted.spec["config"]["offsets"]
    }


def test_without_the_extra_the_tables_name_it(
    case: tuple[GoldenCase, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, root = case
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for options in ({"topic": "T"}, {"table": "queue"}, {"table": "progress"}):
        with pytest.raises(StoreError, match=r"RocksDB.*pip install 'rocketlake\[rocksdb\]'"):
            read_table(root, **options)


def test_a_write_into_the_store_is_refused_on_the_driver(case: tuple[GoldenCase, Path]) -> None:
    _, root = case
    before = snapshot(root)
    with pytest.raises(StoreError, match=r"rebuild .* --to"):
        WritePlan.make(SinkOptions.parse({"path": str(root)}))
    assert snapshot(root) == before


def test_progress_of_a_query_is_not_written_beside_the_database(
    case: tuple[GoldenCase, Path], caplog: pytest.LogCaptureFixture
) -> None:
    wanted, root = case
    before = snapshot(root)
    keeper = GroupProgress("billing", {"a": StoreLocation(root)})
    committed = {o["queueId"]: o["offset"] for o in wanted.spec["config"]["offsets"][:2]}
    assert {queue: keeper.find(StreamSource("a", "T", queue)) for queue in committed} == committed
    keeper.write({StreamSource("a", "T", 0): committed[0] + 1})
    assert "in RocksDB" in caplog.text
    assert snapshot(root) == before
