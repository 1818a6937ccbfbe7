"""Bad input through a real session and through our commands: a sentence, never a Java stack."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import rocketlake
from rocketlake.spark.wording import reworded
from support.command import run
from support.store_builder import StoreBuilder

MESSAGES = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builder(tmp_path_factory.mktemp("bad") / "broker-a").write()


def builder(path: Path) -> StoreBuilder:
    made = StoreBuilder(path, log_file_size=4 << 10, queue_file_units=40)
    for number in range(MESSAGES):
        made.record("orders", number % 2, b"order %d" % number, keys=[f"k{number}"])
    return made


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a changed byte in the body of the record in the middle."""
    path = tmp_path_factory.mktemp("bad") / "damaged"
    made = builder(path)
    made.write()
    placed = made.placed[MESSAGES // 2]
    file = sorted((path / "commitlog").iterdir())[placed.physical_offset // made.log_file_size]
    content = bytearray(file.read_bytes())
    at = content.index(b"order %d" % (MESSAGES // 2))
    content[at] ^= 1
    file.write_bytes(content)
    return path


def said(action: Callable[[], object]) -> str:
    """What a person reads of an error: one sentence, and nothing of Java."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the words are judged
        action()
    text = str(reworded(caught.value))
    for foreign in ("\tat ", "SQLSTATE", "org.apache", "Traceback", "\n"):
        assert foreign not in text, text
    return text


def batch(spark: SparkSession, **options: str) -> Callable[[], object]:
    return lambda: spark.read.format("rocketlake").options(**options).load().collect()


def stream(spark: SparkSession, checkpoint: Path, **options: str) -> Callable[[], object]:
    def follow() -> None:
        frame = spark.readStream.format("rocketlake").options(**options).load()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return follow


def rows(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 'orders' AS topic, CAST('x' AS BINARY) AS body")


def offsets(number: int) -> str:
    return json.dumps({"orders": {"0": number, "1": -2}})


WRONG = [
    ({"path": "{tmp}/none"}, "{tmp}/none"),
    ({"path": "{store}/checkpoint"}, "{store}/checkpoint"),
    ({"path": "{tmp}/empty"}, "{tmp}/empty"),
    ({}, 'option "path" is missing'),
    ({"path": "{store}", "topic": "ordres"}, "there is no topic 'ordres'"),
    ({"path": "{store}", "topic": "orders", "topc": "x"}, "did you mean"),
    (
        {"path": "{store}", "topic": "orders", "startingOffsets": offsets(1000)},
        "starting offset 1000 of",
    ),
    ({"path": "{store}", "topic": "orders", "startingOffsets": "yesterday"}, "startingOffsets"),
    ({"path": "{store}", "topic": "orders", "onDamage": "ignore"}, "onDamage = 'ignore'"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_a_batch(spark: SparkSession, store: Path, tmp_path, options, words):
    (tmp_path / "empty").mkdir()
    places = {"{store}": str(store), "{tmp}": str(tmp_path)}
    assert filled(words, places) in said(batch(spark, **filled(options, places)))


@pytest.mark.parametrize(("options", "words"), [WRONG[0], WRONG[3], WRONG[5], WRONG[6]])
def test_a_stream(spark: SparkSession, store: Path, tmp_path, options, words):
    places = {"{store}": str(store), "{tmp}": str(tmp_path)}
    assert filled(words, places) in said(
        stream(spark, tmp_path / "checkpoint", **filled(options, places))
    )


def filled(given, places):
    if isinstance(given, dict):
        return {key: filled(value, places) for key, value in given.items()}
    for name, place in places.items():
        given = given.replace(name, place)
    return given


def test_damage_in_the_middle_fails_or_is_passed_over_and_told(spark: SparkSession, damaged: Path):
    options = {"path": str(damaged), "topic": "orders"}
    text = said(batch(spark, **options))
    assert str(damaged / "commitlog") in text
    assert "onDamage = skip" in text
    frame = spark.read.format("rocketlake").options(**options, onDamage="skip").load()
    assert len(frame.collect()) == MESSAGES - 1
    log = spark.read.format("rocketlake").options(path=str(damaged), table="log").load()
    assert log.where("stop_reason IS NOT NULL").count() >= 1


def test_a_write_to_a_store_that_somebody_has_open(spark: SparkSession, tmp_path):
    path = tmp_path / "held"
    options = {"path": str(path), "lockTimeout": "0s"}
    with rocketlake.open_store(path):
        text = said(
            lambda: rows(spark).write.format("rocketlake").mode("append").options(**options).save()
        )
    assert str(path) in text
    assert "has it open" in text


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        ("SELECT 1 AS number", {"topic": "orders"}, "body"),
        ("SELECT CAST('x' AS BINARY) AS body", {}, "topic"),
        ("SELECT CAST('x' AS BINARY) AS body, 1.5 AS queue_id", {"topic": "orders"}, "queue_id"),
        ("SELECT CAST('x' AS BINARY) AS body", {"topic": "two words"}, "two words"),
        ("SELECT CAST('x' AS BINARY) AS body", {"topic": "orders", "stagngPath": "x"}, "stagng"),
    ],
)
def test_a_write_of_wrong_rows_or_options(spark: SparkSession, tmp_path, frame, options, words):
    made = spark.sql(frame).write.format("rocketlake").mode("append")
    assert words in said(lambda: made.options(path=str(tmp_path / "new"), **options).save())


def test_a_mode_other_than_append(spark: SparkSession, store: Path, tmp_path):
    shutil.copytree(store, tmp_path / "copy")
    for mode in ("overwrite", "error"):
        writer = rows(spark).write.format("rocketlake").mode(mode)
        text = said(lambda w=writer: w.options(path=str(tmp_path / "copy")).save())
        assert "append" in text.lower()  # one of the two is Spark's own sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("archive", "{tmp}/none", "{tmp}/to"), "{tmp}/none"),
        (("archive", "{store}", "{tmp}/to", "--topic", "ordres"), "ordres"),
        (("archive", "{store}", "{tmp}/to", "--conf", "nonsense"), "wanted KEY=VALUE"),
        (("archive", "{store}", "{tmp}/to", "--source-option", "onDamag=skip"), "onDamage"),
        (("profile", "{tmp}/none", "--out", "{tmp}/page.html"), "{tmp}/none"),
        (("profile", "{store}", "--topic", "ordres", "--out", "{tmp}/page.html"), "ordres"),
        (("replay", "{tmp}/none", "{tmp}/to", "--topic", "orders"), "{tmp}/none"),
        (("compact", "{tmp}/none", "{tmp}/to", "--topic", "orders"), "{tmp}/none"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_a_command(store: Path, tmp_path, arguments, words):
    places = {"{store}": str(store), "{tmp}": str(tmp_path)}
    ran = run(*(filled(argument, places) for argument in arguments))
    assert ran.code == 2, ran
    assert filled(words, places) in ran.err, ran
    for foreign in ("\tat ", "SQLSTATE", "org.apache", "Traceback"):
        assert foreign not in ran.err
