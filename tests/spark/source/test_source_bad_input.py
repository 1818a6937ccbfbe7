"""What is wrong with a store or a question is said so that its owner can do something about it."""

import pickle
import shutil
from pathlib import Path

import pytest

from rocketlake.errors import ConfigError, RocketLakeError, StoreError, StoreNotFoundError
from support.spark_reading import make_source, read_rows
from support.store_builder import StoreBuilder


def numbers(path: Path, **options: object) -> list[int]:
    return [int(row["body"]) for row in read_rows(path, **options)]


def test_a_path_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=f"no store at {tmp_path}/x: there is no such dir"):
        read_rows(tmp_path / "x", topic="T")
    with pytest.raises(StoreNotFoundError, match=f"no store at {tmp_path}: it has no commitlog"):
        read_rows(tmp_path, topic="T")


def test_an_unknown_topic_names_those_there_are(store: Path) -> None:
    with pytest.raises(ConfigError, match=r"no topic 'order' .*broker-a; did you mean 'orders'\?"):
        read_rows(store, topic="order")
    with pytest.raises(ConfigError, match="there are orders, payments"):
        read_rows(store, topic="xyz")
    with pytest.raises(ConfigError, match=r"no wanted topic in .* has a queue 9"):
        read_rows(store, topic="orders", queueIds="9")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": '{"orders": {"0": 99}}'}, "starting offset 99 of orders/0: the queue"),
        ({"endingOffsets": '{"orders": {"0": 99}}'}, "holds 0 to 75; option failOnDataLoss"),
        ({"startingOffsets": '{"orders": {"7": 1}}'}, "topic orders has the queues 0, 1, 2, 3"),
        ({"startingOffsets": '{"ordres": {"0": 1}}'}, "topic 'ordres' is not read"),
    ],
)
def test_offsets_that_are_not_there(store: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(RocketLakeError) as caught:
        read_rows(store, topic="orders", **options)
    assert said in str(caught.value)


def test_offsets_beyond_a_queue_are_drawn_in_if_loss_is_allowed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=1000)
    path = builder.records(30).write()
    builder.expire(1)
    with pytest.raises(StoreError, match="what lies before has expired"):
        numbers(path, topic="T", startingOffsets='{"T": {"0": 0}}')
    found = numbers(
        path, topic="T", startingOffsets='{"T": {"0": 0}}', failOnDataLoss=False, minPartitions=3
    )
    assert found == numbers(path, topic="T") != []


@pytest.mark.parametrize("options", [{"topic": "T"}, {}])
def test_a_corrupt_record_in_the_middle(tmp_path: Path, options: dict[str, str]) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=1000).records(30)
    place = builder.placed[12]
    path = builder.flip(place.physical_offset + 5).write()
    name = builder.log_path(place.physical_offset // 1000 * 1000).name
    with pytest.raises(StoreError) as caught:
        numbers(path, **options)
    text = str(caught.value)
    assert f"{name} at {place.physical_offset % 1000}: no record begins here" in text
    assert "onDamage = skip reads the rest" in text
    wanted = [number for number in range(30) if number != 12]
    for parts in (1, 5):
        assert numbers(path, onDamage="skip", minPartitions=parts, **options) == wanted


def test_a_damaged_body_hurts_only_who_asks_for_bodies(tmp_path: Path) -> None:
    path = StoreBuilder(tmp_path / "s", log_file_size=1000).records(30).flip_body(12).write()
    with pytest.raises(StoreError, match="a record does not have its checksum"):
        numbers(path, topic="T")
    few = ("queue_offset", "broker", "physical_offset")
    for options in ({"topic": "T"}, {}):
        found = read_rows(path, columns=few, **options)
        assert [row["queue_offset"] for row in found] == list(range(30))


def test_table_log_shows_a_corrupt_record_with_the_reason(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=1000).records(30)
    place = builder.placed[12]
    path = builder.flip(place.physical_offset + 5).flip_body(15).write()
    rows = read_rows(path, table="log")
    assert len(rows) == 30
    bad = {row["physical_offset"]: row for row in rows if row["stop_reason"] is not None}
    assert {offset: row["stop_reason"] for offset, row in bad.items()} == {
        place.physical_offset: "BAD_MAGIC",
        builder.placed[15].physical_offset: "BAD_CRC",
    }
    row = bad[place.physical_offset]
    assert (row["stop_size"], row["file_position"]) == (place.size, place.physical_offset % 1000)
    assert row["body"] is None


def test_a_torn_end_is_in_table_log_and_hurts_nobody(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=4096).records(10)
    path = builder.torn_record(60).unclean().write()
    assert numbers(path, topic="T") == list(range(10))
    assert [row["stop_reason"] for row in read_rows(path, table="log")][-1] == "BAD_SIZE"


def test_a_lost_queue_file_is_damage(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", queue_file_units=10).records(50)
    path = builder.write()
    builder.queue_path("T", 0, 20).unlink()
    for options in ({"topic": "T"}, {"table": "queue"}):
        with pytest.raises(StoreError, match=r"the queue's file for 20 is missing"):
            numbers(path, **options)
    found = numbers(path, topic="T", onDamage="skip", minPartitions=4)
    assert found == [*range(20), *range(30, 50)]
    # Damage of a topic that is not read is of no interest.
    builder.record("other", 0, b"1").write()
    builder.queue_path("T", 0, 20).unlink()
    assert numbers(path, topic="other") == [1]


def test_queues_in_rocksdb_are_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s").records(3).file("consumequeue/CURRENT", "MANIFEST-1")
    path = builder.write()
    for options in ({"topic": "T"}, {}, {"table": "queue"}):
        with pytest.raises(StoreError, match="keeps its consume queues in RocksDB"):
            read_rows(path, **options)


def test_an_executor_that_does_not_see_the_store(tmp_path: Path) -> None:
    path = StoreBuilder(tmp_path / "s").records(3).write()
    source, schema = make_source(path, None, {"topic": "T"})
    reader = source.reader(schema)
    (part,) = reader.partitions()
    shutil.move(path, tmp_path / "elsewhere")
    with pytest.raises(StoreNotFoundError, match=r"the executor on .* cannot see the store"):
        list(reader.read(part))


def test_parts_of_many_queues_are_small(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=1 << 20)
    for number in range(600):
        builder.record("T", number % 200, b"%d" % number, dispatched=number < 500)
    path = builder.unclean().write()
    source, schema = make_source(path, None, {"topic": "T", "minPartitions": "2"})
    parts = source.reader(schema).partitions()
    assert len(parts) == 4
    assert max(len(pickle.dumps(part)) for part in parts) < 20_000
    assert numbers(path, topic="T", minPartitions=2) == list(range(600))
