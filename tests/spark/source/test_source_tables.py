"""Every stage is a table, and the tables fit each other."""

from pathlib import Path

import pytest

from rocketlake.errors import StoreError
from rocketlake.format.index import key_hash
from support.spark_reading import read_table
from support.store_builder import BEGIN_MS, StoreBuilder


def rows_of(path: Path, table: str, **options: object) -> list[dict]:
    return read_table(path, table=table, **options).to_pylist()


def test_units_point_to_records(store: Path) -> None:
    log = {row["physical_offset"]: row for row in rows_of(store, "log", minPartitions=4)}
    units = rows_of(store, "queue", minPartitions=3)
    assert len(log) == len(units) == 320
    for unit in units:
        record = log[unit["physical_offset"]]
        place = (record["topic"], record["queue_id"], record["queue_offset"], record["store_size"])
        assert place == (unit["topic"], unit["queue_id"], unit["queue_offset"], unit["size"])
        assert not unit["is_owed"]
        data = Path(unit["file"]).read_bytes()[unit["file_position"] :][:8]
        assert int.from_bytes(data, "big") == unit["physical_offset"]


def test_a_record_tells_its_file(store: Path) -> None:
    for row in rows_of(store, "log")[::40]:
        head = Path(row["file"]).read_bytes()[row["file_position"] :][:12]
        assert int.from_bytes(head[:4], "big") == row["store_size"]
        assert int.from_bytes(head[8:12], "big") == row["body_crc"] & 0xFFFFFFFF


def test_units_of_some_queues(store: Path) -> None:
    found = rows_of(
        store, "queue", topic="orders", queueIds="1", startingOffsets='{"orders": {"1": 70}}'
    )
    assert [unit["queue_offset"] for unit in found] == list(range(70, 75))


def test_units_that_dispatch_owes(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s").records(5).records(3, dispatched=False)
    builder.inner_batch(4, dispatched=False)
    units = rows_of(builder.unclean().write(), "queue")
    assert [(u["queue_offset"], u["is_owed"]) for u in units if u["topic"] == "T"] == [
        *((number, False) for number in range(5)),
        *((number, True) for number in range(5, 8)),
    ]
    (batch,) = (unit for unit in units if unit["topic"] == "B")
    assert (batch["batch_size"], batch["is_batch"], batch["file"]) == (4, True, None)


@pytest.mark.parametrize("parts", [1, 3])
def test_index_entries_with_their_chains(store: Path, parts: int) -> None:
    entries = rows_of(store, "index", minPartitions=parts)
    messages = rows_of(store, "messages", topic="orders")
    wanted = {
        (key_hash("orders", key), message["physical_offset"])
        for message in messages
        for key in (message["unique_key"], *message["keys"])
    }
    assert {(entry["key_hash"], entry["physical_offset"]) for entry in entries} == wanted
    by_place = {(entry["file"], entry["entry"]): entry for entry in entries}
    for entry in entries:
        if entry["previous"]:
            before = by_place[entry["file"], entry["previous"]]
            assert before["slot"] == entry["slot"]
            assert before["entry"] < entry["entry"]
    heads = {(e["file"], e["slot"]) for e in entries if e["is_newest"]}
    assert heads == {(e["file"], e["slot"]) for e in entries}
    assert len(heads) == sum(entry["is_newest"] for entry in entries)
    assert min(entry["store_timestamp"] for entry in entries).timestamp() * 1000 >= BEGIN_MS


def test_an_index_of_unknown_shape_is_refused_or_passed_over(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s").record(keys=["a"]).record(keys=["b"])
    path = builder.write()
    file = builder.index_path()
    data = bytearray(file.read_bytes())
    data[40:80] = b"\x7f" * 40
    file.write_bytes(data)
    with pytest.raises(StoreError, match="its slot count cannot be proven; give maxHashSlotNum"):
        rows_of(path, "index")
    assert rows_of(path, "index", onDamage="skip") == []


def test_progress_and_lag(store: Path) -> None:
    rows = rows_of(store, "progress")
    found = {(r["group"], r["topic"], r["queue_id"]): r for r in rows}
    assert found["billing", "orders", 0]["lag"] == 5
    assert found["billing", "orders", 1]["lag"] == 0
    assert found["billing", "orders", 0]["max_offset"] == 75
    gone = found["billing", "gone", 0]
    assert (gone["committed_offset"], gone["max_offset"], gone["lag"]) == (1, None, None)
    assert len(rows_of(store, "progress", topic="orders", queueIds="0")) == 1


def test_checkpoint_and_state(tmp_path: Path, store: Path) -> None:
    (row,) = rows_of(store, "checkpoint")
    assert row["is_clean"]
    assert row["queues"] == 5
    assert row["owed_units"] == 0
    assert row["log_max_offset"] == row["dispatched_offset"]
    assert row["damage"] == []
    builder = StoreBuilder(tmp_path / "s").records(4).records(3, dispatched=False).unclean()
    (row,) = rows_of(builder.checkpoint(BEGIN_MS, 0, 0).write(), "checkpoint")
    assert not row["is_clean"]
    assert row["owed_units"] == 3
    assert row["physical_timestamp"].timestamp() * 1000 == BEGIN_MS
    assert row["queue_timestamp"] is None
    assert row["dispatched_offset"] == builder.placed[4].physical_offset


@pytest.mark.parametrize("table", ["log", "queue", "index", "progress", "checkpoint"])
def test_some_columns_of_a_table(store: Path, table: str) -> None:
    table_ = read_table(store, ("broker",), table=table)
    assert set(table_.column("broker").to_pylist()) == {"broker-a"}
