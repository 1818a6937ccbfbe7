"""What pushed filters leave out, without a session."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StructField, StructType

from rocketlake.spark.optimizer.scan_columns import FILTERS_KEY
from rocketlake.spark.reading.batch_reader import BatchReader, PushingReader
from rocketlake.spark.reading.partitions import QueuePart
from support.absurd_store import AbsurdStore
from support.spark_reading import make_source
from support.store_builder import BEGIN_MS, StoreBuilder


def of_rule(schema: StructType) -> StructType:
    """Return columns as the optimizer's rule passes them for one query."""
    first, *others = schema.fields
    told = StructField(first.name, first.dataType, metadata={FILTERS_KEY: True})
    return StructType([told, *others])


def read(
    path: Path, filters: list[Filter], **options: object
) -> tuple[list[dict], list[Filter], int]:
    """Return rows, the filters that are left to Spark, and how many units were planned."""
    source, schema = make_source(path, None, options)
    reader = source.reader(of_rule(schema))
    left = list(reader.pushFilters(filters))
    parts = reader.partitions()
    units = sum(
        len(run)
        for part in parts
        if isinstance(part.part, QueuePart)
        for run in part.part.table.runs()
    )
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return rows, left, units


@pytest.mark.parametrize("options", [{"topicPattern": ".*"}, {}])
def test_numbers_and_names_are_taken_over(store: Path, options: dict[str, str]) -> None:
    filters = [
        EqualTo(("topic",), "orders"),
        In(("queue_id",), (1, 2)),
        GreaterThanOrEqual(("queue_offset",), 70),
        LessThan(("queue_offset",), 73),
        GreaterThan(("store_size",), 10),
        EqualTo(("broker",), "broker-a"),
        IsNotNull(("queue_offset",)),
    ]
    rows, left, units = read(store, filters, **options)
    assert left == []
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows} == {
        ("orders", queue_id, offset) for queue_id in (1, 2) for offset in (70, 71, 72)
    }
    assert len(rows) == 6
    assert units == (6 if options else 0)


def test_another_broker_is_not_read(store: Path) -> None:
    assert read(store, [EqualTo(("broker",), "b")], topic="orders") == ([], [], 0)


def test_tags_and_unique_keys_narrow_and_are_left_to_spark(store: Path) -> None:
    filters: list[Filter] = [EqualTo(("tags",), "odd")]
    rows, left, _ = read(store, filters, topic="orders")
    assert (len(rows), left) == (150, filters)
    filters = [EqualTo(("unique_key",), "U17"), IsNotNull(("unique_key",))]
    rows, left, units = read(store, filters, topic="orders")
    assert [row["body"] for row in rows] == [b"order 17"]
    assert (left, units) == (filters, 0)


def test_times_drop_rows_that_spark_looks_at_again(store: Path, begin_ms: int) -> None:
    begin = datetime.fromtimestamp(begin_ms / 1000, UTC)
    late = [GreaterThan(("store_timestamp",), begin + timedelta(seconds=70))]
    rows, left, _ = read(store, late, topic="orders")
    assert (rows, left) == ([], late)
    some = [LessThanOrEqual(("store_timestamp",), begin + timedelta(milliseconds=12))]
    for options in ({"topic": "orders"}, {}):
        rows, left, _ = read(store, some, **options)
        assert max(row["store_timestamp"] for row in rows) == begin + timedelta(milliseconds=12)
        assert left == some


@pytest.mark.parametrize("place", [0, 40, 99])
@pytest.mark.parametrize("odd_ms", [0, (1 << 63) - 1])
@pytest.mark.parametrize("options", [{"topic": "T"}, {}])
def test_one_odd_store_time_hides_no_other(
    tmp_path: Path, place: int, odd_ms: int, options: dict[str, str]
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for number in range(100):
        stored = odd_ms if number == place else BEGIN_MS + number * 1_000_000
        builder.record("T", 0, b"x", stored=stored)
    root = builder.write()
    moment = datetime.fromtimestamp(BEGIN_MS / 1000, UTC) + timedelta(seconds=50_000)
    for kind, wanted in ((GreaterThanOrEqual, range(50, 100)), (LessThan, range(50))):
        rows, _, _ = read(root, [kind(("store_timestamp",), moment)], **options)
        found = {row["queue_offset"] for row in rows} - {place}
        assert found == set(wanted) - {place}


def test_only_scans_of_the_rule_take_filters(store: Path) -> None:
    """Spark keeps the filters it pushes itself for other queries of the same DataFrame."""
    source, schema = make_source(store, None, {"topic": "orders"})
    assert type(source.reader(schema)) is BatchReader
    assert type(source.reader(of_rule(schema))) is PushingReader
    source, schema = make_source(store, None, {"topic": "orders", "pushFilters": "false"})
    assert type(source.reader(of_rule(schema))) is BatchReader


def test_null_times_are_left_to_spark(tmp_path: Path) -> None:
    """A time that no calendar has is null, so the source must not promise that there is one."""
    odd = AbsurdStore(tmp_path / "store", large=100)
    filters: list[Filter] = [IsNotNull(("born_timestamp",)), IsNotNull(("store_timestamp",))]
    rows, left, _ = read(odd.root, filters, topic="T")
    assert left == filters
    assert sum(row["born_timestamp"] is None for row in rows) > 0
    assert sum(row["store_timestamp"] is None for row in rows) > 0


def test_what_cannot_be_used_is_left_to_spark(store: Path) -> None:
    filters: list[Filter] = [
        StringStartsWith(("topic",), "ord"),
        In(("queue_id",), (1, None)),
        EqualTo(("body",), b"order 1"),
        GreaterThan(("topic",), "a"),
        EqualTo(("properties", "n"), "1"),
    ]
    rows, left, _ = read(store, filters, topic="orders")
    assert (len(rows), left) == (300, filters)
