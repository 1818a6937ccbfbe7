"""Options with the names of Kafka's source read what their own names read."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

PLACE = ("topic", "queue_id", "queue_offset")


def read(spark: SparkSession, store: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketlake").options(path=str(store), **options).load()


def places(frame: DataFrame) -> list[tuple[str, int, int]]:
    return sorted(
        (row.topic, row.queue_id, row.queue_offset) for row in frame.select(*PLACE).collect()
    )


@pytest.mark.parametrize(
    ("kafka", "own"),
    [
        ({"subscribe": "orders,payments"}, {"topics": "orders,payments"}),
        ({"subscribePattern": "pay.*"}, {"topicPattern": "pay.*"}),
        ({"assign": '{"orders": [1, 3]}'}, {"topic": "orders", "queueIds": "1,3"}),
    ],
)
def test_kafka_name_reads_the_same(
    spark: SparkSession, store: Path, kafka: dict[str, str], own: dict[str, str]
) -> None:
    found = places(read(spark, store, **kafka))
    assert found
    assert found == places(read(spark, store, **own))


def test_assign_with_offsets_in_json(spark: SparkSession, store: Path) -> None:
    frame = read(
        spark,
        store,
        assign='{"orders": [0, 2], "payments": [0]}',
        startingOffsets=json.dumps({"orders": {"0": 5, "2": -2}, "payments": {"0": -1}}),
        endingOffsets=json.dumps({"orders": {"0": 8, "2": 2}, "payments": {"0": -1}}),
    )
    assert places(frame) == [
        *(("orders", 0, offset) for offset in (5, 6, 7)),
        *(("orders", 2, offset) for offset in (0, 1)),
    ]


def test_assign_of_a_queue_that_is_not_there_is_refused(spark: SparkSession, store: Path) -> None:
    with pytest.raises(PySparkException, match="assign names queue 9 of topic orders, which has"):
        read(spark, store, assign='{"orders": [0, 9]}').count()


def test_assigned_stream_reads_its_queues(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    stream = (
        spark.readStream.format("rocketlake")
        .options(path=str(store), assign='{"orders": [2]}', columns=",".join(PLACE))
        .load()
    )
    assert stream.columns == list(PLACE)
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = places(spark.read.parquet(str(tmp_path / "out")))
    assert found == places(read(spark, store, topic="orders", queueIds="2"))


def test_columns_leave_out_the_rest(spark: SparkSession, store: Path) -> None:
    frame = read(spark, store, topic="orders", columns="tags,queue_id")
    assert frame.columns == ["tags", "queue_id"]
    counts = {row.tags: row["count"] for row in frame.groupBy("tags").count().collect()}
    assert counts == {"odd": 150, "even": 150}
