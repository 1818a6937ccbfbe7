"""The batch source in a real session: found by itself, in SQL, with filters, and its errors."""

import re
from base64 import b64decode
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from support.golden import GoldenStores, case_names
from support.store_builder import StoreBuilder


def load(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    return spark.read.format("rocketlake").options(**options).load(str(path))


def test_a_topic_is_a_table(spark: SparkSession, store: Path) -> None:
    frame = load(spark, store, topic="orders", minPartitions=3)
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.orderBy("physical_offset").collect()
    assert [bytes(row.body) for row in rows] == [b"order %d" % number for number in range(300)]
    assert rows[7].keys == ["k7", "ten0"]
    assert rows[7].properties["n"] == "7"
    assert {row.broker for row in rows} == {"broker-a"}


def test_the_stages_of_a_store_are_joined_in_sql(spark: SparkSession, store: Path) -> None:
    for table in ("log", "queue", "index", "progress", "checkpoint"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW stage_{table} USING rocketlake "
            f"OPTIONS (path '{store}', table '{table}')"
        )
    (row,) = spark.sql(
        """
        SELECT count(*) AS units,
               count(l.physical_offset) AS records,
               (SELECT count(DISTINCT physical_offset) FROM stage_index) AS indexed,
               (SELECT sum(lag) FROM stage_progress) AS lag,
               (SELECT max(log_max_offset) FROM stage_checkpoint) AS end
        FROM stage_queue q LEFT JOIN stage_log l
          ON q.physical_offset = l.physical_offset AND q.size = l.store_size
        """
    ).collect()
    assert (row.units, row.records, row.indexed, row.lag) == (320, 320, 300, 5)
    assert row.end > 0


def test_the_questions_of_the_page_are_answered(spark: SparkSession, store: Path) -> None:
    for table in ("log", "queue", "index", "progress", "damage"):
        load(spark, store, table=table).createOrReplaceTempView(table)
    page = Path(__file__).resolve().parents[3] / "docs/spark/tables.md"
    questions = re.findall(r"```sql\n(.*?);\n```", page.read_text(encoding="utf-8"), re.DOTALL)
    answers = [spark.sql(question).collect() for question in questions]
    assert [len(answer) for answer in answers] == [0, 0, 0, 1, 10]
    (behind,) = answers[3]
    assert (behind.group, behind.behind) == ("billing", 5)


def test_filters_that_spark_pushes_itself_stay_with_spark(spark: SparkSession, store: Path) -> None:
    """Spark pushes the filters of one query into the plan that all queries of a DataFrame share."""
    conf = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(conf, "true")
    try:
        frame = load(spark, store, topic="orders")
        assert frame.where("queue_offset = 2").count() == 4
        assert frame.count() == 300
        assert frame.where("tags = 'odd'").count() == 150
    finally:
        spark.conf.unset(conf)


def test_errors_begin_with_what_is_wrong(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    cases = [
        ({"topic": "ordres"}, "there is no topic 'ordres'"),
        ({"topic": "orders", "startingOffsets": "soon"}, "option startingOffsets = 'soon'"),
        ({"topik": "orders"}, "there is no option 'topik'; did you mean 'topic'?"),
        ({"topic": "orders", "startingOffsets": '{"orders": {"0": 99}}'}, "starting offset 99"),
    ]
    for options, said in cases:
        with pytest.raises(AnalysisException) as caught:
            load(spark, store, **options).collect()
        assert said in str(caught.value)
        assert said in last_line(str(caught.value))
    with pytest.raises(AnalysisException) as caught:
        load(spark, tmp_path / "nowhere", topic="orders").collect()
    assert f"no store at {tmp_path}/nowhere" in last_line(str(caught.value))


def test_errors_of_executors_say_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=1000).records(30)
    path = builder.flip_body(12).write()
    with pytest.raises(PySparkException) as caught:
        load(spark, path, topic="T").collect()
    assert "a record does not have its checksum; message 12 of T/0" in str(caught.value)
    assert len(load(spark, path, topic="T", onDamage="skip").collect()) == 29


def last_line(text: str) -> str:
    """Return the last line of the Python side of an error."""
    lines = [
        line.strip() for line in text.partition("JVM stacktrace")[0].splitlines() if line.strip()
    ]
    return next(line for line in reversed(lines) if line.startswith("rocketlake.errors"))


def test_every_golden_store_at_once(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stores = GoldenStores(tmp_path_factory.mktemp("golden"))
    found = {name: stores.get(name) for name in case_names()}
    path = ",".join(f"{name}={golden.root}" for name, golden in found.items())
    frame = load(spark, path, topicPattern=".*", onDamage="asRecovered", rawBody=True)
    rows = frame.select("broker", "topic", "queue_id", "queue_offset", "msg_id", "body").collect()
    assert sorted((*row[:5], bytes(row.body)) for row in rows) == sorted(
        (
            *(name, line["topic"], line["queueId"], line.get("cqOffset", line["queueOffset"])),
            *(line["msgId"], b64decode(line["body"])),
        )
        for name, golden in found.items()
        for line in golden.case.messages
    )
