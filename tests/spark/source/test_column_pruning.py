"""With the optimizer's rule, a read makes only the columns its query uses, and gives the same."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import rocketlake
from rocketlake import Message
from rocketlake.errors import SparkError
from rocketlake.spark.optimizer import column_pruning
from rocketlake.spark.optimizer.column_pruning import (
    enable_column_pruning,
    is_column_pruning_enabled,
)


@pytest.fixture
def pruning(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own, whose optimizer has the rule."""
    own = spark.newSession()
    enable_column_pruning(own)
    before = SparkSession.getActiveSession()
    yield own
    if before is not None:
        spark._jvm.SparkSession.setActiveSession(before._jsparkSession)  # type: ignore[union-attr]


def read(spark: SparkSession, store: Path, **options: str) -> DataFrame:
    return (
        spark.read.format("rocketlake").options(path=str(store), topic="orders", **options).load()
    )


def scans(frame: DataFrame) -> list[set[str]]:
    """Return which columns each scan of a plan makes."""
    plan = frame._jdf.queryExecution().explainString(  # type: ignore[operator]
        frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("simple")  # type: ignore[union-attr]
    )
    found = re.findall(r"BatchScan rocketlake\[([^\]]*)\]", plan)
    return [{name.split("#")[0].strip() for name in columns.split(",")} for columns in found]


def test_count_makes_one_number(pruning: SparkSession, store: Path) -> None:
    frame = read(pruning, store).agg(sf.count("*"))
    assert scans(frame) == [{"queue_id"}]
    assert frame.first()[0] == 300  # type: ignore[index]


def test_group_by_tags_makes_tags(pruning: SparkSession, store: Path) -> None:
    frame = read(pruning, store).groupBy("tags").count()
    assert scans(frame) == [{"tags"}]
    assert {row.tags: row["count"] for row in frame.collect()} == {"odd": 150, "even": 150}


def test_filters_add_their_columns(pruning: SparkSession, store: Path) -> None:
    frame = read(pruning, store).where("tags = 'odd' AND queue_offset < 5").select("keys")
    assert scans(frame) == [{"keys", "tags", "queue_offset"}]
    assert frame.count() == 10


def test_each_side_of_a_join_makes_its_own(pruning: SparkSession, store: Path) -> None:
    read(pruning, store).createOrReplaceTempView("orders")
    frame = pruning.sql(
        "SELECT a.tags, b.store_size FROM orders a JOIN orders b"
        " ON a.physical_offset = b.physical_offset"
        " WHERE a.queue_id = (SELECT min(queue_id) FROM orders)"
    )
    found = scans(frame)
    assert {"tags", "physical_offset", "queue_id"} in found
    assert {"store_size", "physical_offset"} in found
    assert {"queue_id"} in found
    assert frame.count() == 75


def test_everything_is_read_where_everything_is_used(pruning: SparkSession, store: Path) -> None:
    frame = read(pruning, store)
    assert len(scans(frame)[0]) == len(frame.columns)
    assert sorted(frame.collect()) == sorted(read(pruning, store).collect())


def test_other_tables_are_pruned_too(pruning: SparkSession, store: Path) -> None:
    frame = read(pruning, store, table="queue").groupBy("queue_id").count()
    assert scans(frame) == [{"queue_id"}]
    assert {row.queue_id: row["count"] for row in frame.collect()} == dict.fromkeys(range(4), 75)


def counted(frame: DataFrame) -> int:
    """Return how many rows the scans of a query gave to Spark, before its filters."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()  # type: ignore[operator]
    return int(plan.collectLeaves().apply(0).metrics().apply("numOutputRows").value())


def test_filters_of_a_query_reach_the_source(pruning: SparkSession, store: Path) -> None:
    frame = read(pruning, store).where("queue_id = 1 AND tags = 'odd' AND queue_offset >= 70")
    assert scans(frame.agg(sf.count("*"))) == [{"tags", "queue_id", "queue_offset"}]
    assert counted(frame) == 5
    assert frame.count() == 5
    whole = read(pruning, store, pushFilters="false").where("queue_id = 1 AND queue_offset >= 70")
    assert (counted(whole), whole.count()) == (300, 5)


def test_filters_of_a_query_stay_with_it(pruning: SparkSession, store: Path) -> None:
    """Spark plans a source once for all queries of a DataFrame, a view or a table."""
    frame = read(pruning, store)
    frame.createOrReplaceTempView("all_orders")
    assert frame.where("queue_offset = 2").count() == 4
    assert frame.count() == 300
    assert len(frame.where("tags = 'odd'").collect()) == 150
    assert len(frame.collect()) == 300
    both = frame.where("queue_id = 1 AND queue_offset < 50").union(frame.where("queue_id = 0"))
    assert both.count() == 125
    counts = [
        pruning.sql(f"SELECT count(*) FROM all_orders{where}").first()[0]  # type: ignore[index]
        for where in ("", " WHERE queue_id = 0", "")
    ]
    assert counts == [300, 75, 300]


def test_tables_of_the_catalog_are_pruned(pruning: SparkSession, store: Path) -> None:
    pruning.sql(f"CREATE TABLE kept USING rocketlake OPTIONS (path '{store}', topic 'orders')")
    try:
        frame = pruning.table("kept").where("queue_id = 1").groupBy("tags").count()
        assert scans(frame) == [{"tags", "queue_id"}]
        assert {row.tags: row["count"] for row in frame.collect()} == {"odd": 75}
        assert pruning.table("kept").count() == 300
    finally:
        pruning.sql("DROP TABLE kept")


def test_each_query_sees_what_is_there(pruning: SparkSession, tmp_path: Path) -> None:
    with rocketlake.open_store(tmp_path / "store") as open_store:
        open_store.put(Message(topic="orders", body=b"one"))
        frame = read(pruning, tmp_path / "store")
        assert frame.count() == 1
        open_store.put(Message(topic="orders", body=b"two"))
        assert frame.count() == 2
        assert len(frame.collect()) == 2


def test_explain_says_what_is_read_and_how_much(pruning: SparkSession, store: Path) -> None:
    frame = read(pruning, store, tags="odd").select("queue_id")
    mode = pruning._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]
    plan = frame._jdf.queryExecution().explainString(mode.fromString("cost"))  # type: ignore[operator]
    assert f"path: {store}, topic: orders, tags: odd" in plan
    whole = sum(file.stat().st_size for file in (store / "commitlog").iterdir())
    size = re.search(r"RelationV2\[queue_id#\d+\].*sizeInBytes=([0-9.]+) (\w+)", plan)
    assert size is not None, plan
    assert float(size[1]) * {"B": 1, "KiB": 1024, "MiB": 1 << 20}[size[2]] < whole / 10


def test_bodies_count_with_the_whole_log(pruning: SparkSession, store: Path) -> None:
    mode = pruning._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("cost")  # type: ignore[union-attr]
    whole = sum(file.stat().st_size for file in (store / "commitlog").iterdir())
    frame = read(pruning, store).select("body")
    plan = frame._jdf.queryExecution().explainString(mode)  # type: ignore[operator]
    assert f"sizeInBytes={whole / 1024:.1f} KiB" in plan


def test_stream_of_such_a_session_is_left_alone(
    pruning: SparkSession, store: Path, tmp_path: Path
) -> None:
    stream = pruning.readStream.format("rocketlake").options(path=str(store), topic="orders").load()
    query = (
        stream.groupBy("tags")
        .count()
        .writeStream.format("memory")
        .queryName("tags_of_stream")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = pruning.table("tags_of_stream").collect()
    assert {row.tags: row["count"] for row in found} == {"odd": 150, "even": 150}


def test_session_without_the_rule_is_left_alone(
    spark: SparkSession, pruning: SparkSession, store: Path
) -> None:
    assert is_column_pruning_enabled(pruning)
    plain = spark.newSession()
    assert not is_column_pruning_enabled(plain)
    enable_column_pruning(pruning)  # again changes nothing
    assert pruning._jsparkSession.experimental().extraOptimizations().length() == 1  # type: ignore[operator]
    assert len(scans(read(plain, store).groupBy("tags").count())[0]) > 1


def test_spark_that_refuses_the_rule_is_told_with_the_way_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_pruning, "_CLASS", "rocketlake.Missing")
    own = spark.newSession()
    with pytest.raises(SparkError, match="name the columns with the option columns instead"):
        enable_column_pruning(own)
    assert own._jsparkSession.experimental().extraOptimizations().length() == 0  # type: ignore[operator]
