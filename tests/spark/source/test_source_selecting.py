"""Which messages are read: topics, queues, offsets, times, tags, SQL92, keys, brokers."""

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import rocketlake
from rocketlake.errors import ConfigError, StoreError
from support.spark_reading import make_source, read_rows, read_table
from support.store_builder import StoreBuilder


def bodies(path: Path, **options: object) -> list[str]:
    return [row["body"].decode() for row in read_rows(path, **options)]


def orders(*numbers: int) -> list[str]:
    return [f"order {number}" for number in numbers]


def test_a_list_and_a_pattern_of_topics(store: Path) -> None:
    assert len(bodies(store, topics="orders, payments")) == 320
    assert len(bodies(store, topicPattern="pay.*")) == 20
    assert bodies(store, topicPattern="none") == []
    assert len(bodies(store)) == 320


def test_queues(store: Path) -> None:
    assert bodies(store, topic="orders", queueIds="1,3")[:3] == orders(1, 3, 5)
    assert len(bodies(store, topic="orders", queueIds="0-2")) == 225


def test_offsets_of_each_queue(store: Path) -> None:
    found = bodies(
        store,
        topic="orders",
        startingOffsets='{"orders": {"0": 73, "1": -1, "2": 75, "3": -2}}',
        endingOffsets='{"orders": {"3": 2}}',
    )
    assert found == orders(3, 7, 292, 296)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {
                "startingOffsets": '{"orders": {"1": 9}}',
                "endingOffsets": '{"orders": {"1": 3}}',
            },
            "the starting offset 9 of queue orders/1 is behind its ending offset 3, so nothing",
        ),
        (
            {"startingOffsets": "latest", "endingOffsets": '{"orders": {"2": 5}}'},
            "startingOffsets of orders/2 is 75 and endingOffsets is 5: the start is behind the end",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 7}}', "endingOffsets": "earliest"},
            "startingOffsets of orders/0 is 7 and endingOffsets is 0: the start is behind the end",
        ),
        (
            {"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"},
            "the starting time 1767312000000 is behind the ending time 1767225600000, so nothing",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders": {"3": 20}}',
                "endingOffsetsByTimestamp": '{"orders": {"3": 10}}',
            },
            "the starting time 20 of queue orders/3 is behind its ending time 10, so nothing",
        ),
    ],
)
def test_a_start_behind_its_end_is_refused(store: Path, options: dict[str, str], words: str):
    """Issue 14: it read nothing, in silence."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        bodies(store, topic="orders", **options)


def test_a_start_that_is_its_end_reads_nothing(store: Path) -> None:
    both = '{"orders": {"0": 7, "1": -1, "2": -2, "3": 0}}'
    assert bodies(store, topic="orders", startingOffsets=both, endingOffsets=both) == []
    assert bodies(store, topic="orders", startingOffsets="latest", endingOffsets="latest") == []


def test_times_of_all_and_of_each_queue(store: Path, begin_ms: int) -> None:
    rows = read_rows(store, topic="orders")
    middle = rows[150]["store_timestamp"].timestamp() * 1000
    found = bodies(store, topic="orders", startingTimestamp=int(middle))
    assert found == orders(*range(150, 300))
    assert bodies(store, topic="orders", endingTimestamp=int(middle)) == orders(*range(150))
    assert (
        bodies(
            store,
            topic="orders",
            queueIds="2",
            startingOffsetsByTimestamp=f'{{"orders": {{"2": {int(middle)}}}}}',
        )[0]
        == "order 150"
    )
    whole = bodies(store, startingTimestamp=int(middle), endingTimestamp=int(middle) + 2)
    assert whole[0] == "order 150"
    assert len(whole) == 2


def test_no_message_at_a_starting_time_is_an_error_or_nothing(store: Path, begin_ms: int) -> None:
    late = begin_ms + 10**9
    with pytest.raises(ConfigError, match=r"no message of orders/0 was stored at .* or later"):
        bodies(store, topic="orders", startingTimestamp=late)
    found = bodies(
        store,
        topic="orders",
        startingTimestamp=late,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert found == []
    assert len(bodies(store, topic="orders", endingTimestamp=late)) == 300


def test_tags_and_sql(store: Path) -> None:
    assert bodies(store, topic="orders", tags="odd || none") == orders(*range(1, 300, 2))
    assert bodies(store, topic="orders", sql="n BETWEEN 10 AND 12 OR n = 20") == orders(
        10, 11, 12, 20
    )
    assert bodies(store, topic="orders", tags="even", sql="n < 5") == orders(0, 2, 4)
    assert bodies(store, tags="even", sql="n < 5") == orders(0, 2, 4)


def test_a_key_is_found_through_the_index(store: Path) -> None:
    assert bodies(store, topic="orders", key="k17") == orders(17)
    assert bodies(store, topic="orders", key="U17") == orders(17)
    assert bodies(store, topic="orders", key="ten17") == orders(*range(170, 180))
    assert bodies(store, topic="orders", key="ten17", queueIds="2") == orders(170, 174, 178)
    assert bodies(store, key="ten17") == orders(*range(170, 180))
    assert bodies(store, topic="orders", key="ten") == []
    source, schema = make_source(store, None, {"topic": "orders", "key": "k17"})
    parts = source.reader(schema).partitions()
    assert len(parts) <= 2, "the index names one place, and the end of the log is scanned"


def test_only_the_columns_that_are_asked_for_are_made(store: Path) -> None:
    table = read_table(store, ("queue_offset", "tags"), topic="orders")
    assert table.column_names == ["queue_offset", "tags"]
    assert table.num_rows == 300
    assert read_table(store, (), topic="orders").num_columns == 0


def test_a_schema_with_a_strange_column_is_refused(store: Path) -> None:
    source, _ = make_source(store, None, {"topic": "orders"})
    with pytest.raises(ConfigError, match="no column 'offset'; did you mean 'queue_offset'"):
        source.reader(StructType([StructField("offset", LongType())]))
    with pytest.raises(ConfigError, match="'queue_id' is int, not string; cast it"):
        source.reader(StructType([StructField("queue_id", StringType())]))


def test_several_brokers_are_one_table(store: Path, tmp_path: Path) -> None:
    other = StoreBuilder(tmp_path / "other").record("orders", 0, b"another").write()
    rows = read_rows(f"a={store},b={other}", topic="orders")
    assert {row["broker"] for row in rows} == {"a", "b"}
    assert [row["body"] for row in rows if row["broker"] == "b"] == [b"another"]
    # A topic that one of them lacks is read of the other.
    assert len(read_rows(f"a={store},b={other}", topic="payments")) == 20


def test_a_log_in_several_directories(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=1000, log_dirs=("log-a", "log-b"))
    path = builder.records(30).write()
    wanted = [str(number) for number in range(30)]
    assert bodies(path, topic="T") == wanted
    assert bodies(path, topic="T", commitLogPath="{store}/log-a,{store}/log-b") == wanted
    moved = tmp_path / "moved"
    shutil.move(path / "log-b", moved)
    dirs = f"{{store}}/log-a,{moved}"
    assert bodies(path, topic="T", commitLogPath=dirs, minPartitions=4) == wanted
    assert bodies(path, options=f'{{"storePathCommitLog": "{dirs}"}}') == wanted


def test_a_store_in_use_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "live"
    with rocketlake.open_store(path) as store:
        for number in range(10):
            store.put(rocketlake.Message(topic="T", body=str(number).encode()))
        assert sorted(map(int, bodies(path, topic="T"))) == list(range(10))
        for number in range(10, 25):
            store.put(rocketlake.Message(topic="T", body=str(number).encode()))
        assert sorted(map(int, bodies(path, topic="T", minPartitions=3))) == list(range(25))
        assert sorted(map(int, bodies(path))) == list(range(25))


def test_a_topic_without_a_message_is_there(tmp_path: Path) -> None:
    with rocketlake.open_store(tmp_path / "s") as store:
        store.create_topic("quiet", queues=2)
        store.put(rocketlake.Message(topic="T", body=b"x"))
    assert bodies(tmp_path / "s", topic="quiet") == []
    assert bodies(tmp_path / "s", topic="quiet,T") == ["x"]


def test_files_that_expire_between_planning_and_reading(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=1000)
    path = builder.records(30).write()
    for is_strict in (True, False):
        builder.write()
        source, schema = make_source(path, None, {"topic": "T", "failOnDataLoss": is_strict})
        reader = source.reader(schema)
        parts = reader.partitions()
        first = builder.log_path(0)
        content = first.read_bytes()
        first.unlink()
        if is_strict:
            with pytest.raises(StoreError, match=r"message 0 of T/0 expired .* failOnDataLoss"):
                list(reader.read(parts[0]))
        else:
            batches = list(reader.read(parts[0]))
            assert 0 < sum(batch.num_rows for batch in batches) < 30
        first.write_bytes(content)
