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

from rocketlake.spark.reading.partitions import QueuePart
from support.spark_reading import make_source


def read(
    path: Path, filters: list[Filter], **options: object
) -> tuple[list[dict], list[Filter], int]:
    """Return rows, the filters that are left to Spark, and how many units were planned."""
    source, schema = make_source(path, None, {"pushFilters": "true", **options})
    reader = source.reader(schema)
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


def test_times_narrow_with_slack(store: Path, begin_ms: int) -> None:
    begin = datetime.fromtimestamp(begin_ms / 1000, UTC)
    late = [GreaterThan(("store_timestamp",), begin + timedelta(seconds=70))]
    assert read(store, late, topic="orders") == ([], late, 0)
    some = [LessThanOrEqual(("store_timestamp",), begin + timedelta(milliseconds=12))]
    for options in ({"topic": "orders"}, {}):
        rows, left, _ = read(store, some, **options)
        assert max(row["store_timestamp"] for row in rows) == begin + timedelta(milliseconds=12)
        assert left == some


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
