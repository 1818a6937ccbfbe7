"""Dry runs of replay and compact: made without Spark, they say what Spark says."""

from pathlib import Path

import pytest
from archive_parts import GrowingStore, archive_here
from msgspec.structs import replace
from pyspark.sql import SparkSession

import rocketlake
from rocketlake import Message
from rocketlake.spark.jobs import (
    CompactSettings,
    ReplaySettings,
    Selection,
    local_scan,
    plan_compact,
    plan_compact_here,
    plan_replay,
    plan_replay_here,
)
from support.command import run_process
from support.manual_clock import ManualClock
from support.store_builder import StoreBuilder

CLOCK = ManualClock(4_000_000_000_000)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders with keys, some twice and some none; dead letters and retries of several origins."""
    path = tmp_path_factory.mktemp("plans") / "broker-a"
    with rocketlake.open_store(path) as opened:
        for number in range(300):
            keys = [[], [f"k{number % 7}"], [f"k{number % 5}", f"t{number}", f"k{number % 5}"]]
            opened.put(
                Message(
                    topic="orders",
                    body=b"" if number % 11 == 0 else b"%d" % number,
                    tags="odd" if number % 2 else "even",
                    keys=keys[number % 3],
                    properties={"sku": str(number % 9)} if number % 4 else {},
                )
            )
        for number in range(40):
            origins = ({"DLQ_ORIGIN_TOPIC": "orders"}, {"RETRY_TOPIC": "payments"}, {})
            empty = {"DLQ_ORIGIN_TOPIC": ""} if number % 6 == 1 else {}
            origin = {**origins[number % 3], **empty}
            for topic in ("%DLQ%billing", "%RETRY%billing"):
                opened.put(Message(topic=topic, body=b"%d" % number, properties=origin))
    return path


@pytest.mark.parametrize(
    ("selection", "settings"),
    [
        (Selection(topic="orders"), ReplaySettings()),
        (Selection(topic="orders", tags="odd", queue_ids="0-1"), ReplaySettings(to_topic="again")),
        (Selection(dead_letters="billing"), ReplaySettings()),
        (Selection(topic_pattern=".*"), ReplaySettings(rate=10)),
        (Selection(topic="orders", sql="sku = '3'"), ReplaySettings()),
        (Selection(topic="orders", key="k3"), ReplaySettings()),
        (Selection(topic="orders", starting_timestamp="3999999999999"), ReplaySettings()),
    ],
)
def test_replay_plan_is_the_same(
    spark: SparkSession, store: Path, selection: Selection, settings: ReplaySettings
) -> None:
    selection = replace(selection, path=str(store))
    settings = replace(settings, id="same")
    here = plan_replay_here(selection, store, settings, clock=CLOCK)
    assert here == plan_replay(spark, selection, store, settings, clock=CLOCK)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("by", ["keys", "unique_key", "property:sku"])
def test_compact_plan_is_the_same(
    spark: SparkSession, store: Path, by: str, *, keeps: bool, drops: bool
) -> None:
    orders = {"keys": "store_timestamp", "unique_key": "born_timestamp"}
    settings = CompactSettings(
        by=by,
        order=orders.get(by, "queue_offset"),
        keeps_keyless=keeps,
        drops_tombstones=drops,
        id="same",
    )
    selection = Selection(path=str(store), topic="orders")
    here = plan_compact_here(selection, "/t", settings, clock=CLOCK)
    assert here == plan_compact(spark, selection, "/t", settings, clock=CLOCK)
    assert here is not None
    assert here.messages == 300


def test_messages_that_no_record_has_room_for_are_planned_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each byte that is no text becomes three."""
    builder = StoreBuilder(tmp_path / "broker-a", log_file_size=1 << 20, queue_file_units=100)
    long = "v" * 20_000
    for raw in (b"v" * 20_000, b"\xff" * 20_000):
        builder.record("T", body=b"large", properties={"long": long})
        place = builder.placed[-1]
        builder.overwrite(builder._log[0].index(long.encode(), place.physical_offset), raw)
    builder.write()
    selection = Selection(path=str(builder.root), topic="T")
    settings = ReplaySettings(id="same")
    here = plan_replay_here(selection, tmp_path / "t", settings, clock=CLOCK)
    assert here is not None
    assert (here.messages, here.too_large) == (1, 1)
    assert here == plan_replay(spark, selection, tmp_path / "t", settings, clock=CLOCK)


def test_archive_is_planned_the_same(spark: SparkSession, tmp_path: Path) -> None:
    growing, archived = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    growing.grow(100, ["orders"])
    archive_here(growing.path, archived)
    growing.grow(50, ["orders"])
    for path in (None, str(growing.path)):
        selection = Selection(path=path, archive=str(archived), topic="orders")
        settings = ReplaySettings(id="same")
        here = plan_replay_here(selection, tmp_path / "t", settings, clock=CLOCK)
        assert here is not None
        assert here == plan_replay(spark, selection, tmp_path / "t", settings, clock=CLOCK)


def test_what_is_too_much_is_left_to_spark(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selection = Selection(path=str(store), topic="orders")
    assert local_scan.scan_here(selection, ["queue_id"], rows_max=299) is None
    assert local_scan.scan_here(selection, ["queue_id"], rows_max=300) is not None
    by_number = CompactSettings(order="property:sku")
    assert plan_compact_here(selection, "/t", by_number) is None  # how a text is read is Spark's


@pytest.mark.parametrize("command", ["replay", "compact"])
def test_dry_run_starts_no_java(store: Path, tmp_path: Path, command: str) -> None:
    """There is no Java for it: a dry run answers all the same, and a run says what it lacks."""
    arguments = (command, store, tmp_path / "t", "--topic", "orders")
    environment = {"JAVA_HOME": str(tmp_path / "none"), "PATH": ""}
    planned = run_process(*arguments, "--dry-run", env=environment)
    assert planned.code == 0, planned.err
    assert "300 messages" in planned.out
    refused = run_process(*arguments, env=environment)
    assert refused.code == 2
    assert "Java" in refused.err
