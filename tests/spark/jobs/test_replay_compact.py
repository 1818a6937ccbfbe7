"""Replay and compact in a real session: what is written again, where to, and once."""

from collections import defaultdict
from pathlib import Path

import pytest
from archive_parts import GrowingStore, Row, archive_here, load, read_here
from pyspark.sql import SparkSession

import rocketlake
from rocketlake import Message
from rocketlake.errors import ConfigError, StoreError
from rocketlake.spark.jobs import (
    CompactReport,
    CompactSettings,
    ReplayPlan,
    ReplayReport,
    ReplaySettings,
    Selection,
    compact,
    plan_replay,
    replay,
    run_replay,
)
from rocketlake.spark.jobs.replay.rows import OF_THE_BROKER
from support.manual_clock import ManualClock


def by_queue(rows: list[Row]) -> dict[int, list[bytes]]:
    """Bodies by queue, in the order of the queue."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        found[row["queue_id"]].append(row["body"])
    return dict(found)


def test_dead_letters_go_back_where_they_came_from(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "broker-a"
    with rocketlake.open_store(path) as store:
        store.put(Message(topic="orders", body=b"seen"))
        for number in range(40):
            origin = {"DLQ_ORIGIN_TOPIC": "orders"} if number % 2 else {"RETRY_TOPIC": "payments"}
            store.put(
                Message(
                    topic="%DLQ%billing",
                    body=b"%d" % number,
                    tags="red",
                    keys=[f"k{number}"],
                    properties={
                        **origin,
                        "own": str(number),
                        "REAL_TOPIC": "%RETRY%billing",
                        "MSG_REGION": "region",
                        "UNIQ_KEY": f"u{number}",
                        "ORIGIN_MESSAGE_ID": f"o{number}",
                    },
                )
            )
    selection = Selection(path=str(path), dead_letters="billing")
    plan = replay(spark, selection, path, dry_run=True)
    assert isinstance(plan, ReplayPlan)
    assert {(flow.target, flow.messages) for flow in plan.flows} == {
        ("orders", 20),
        ("payments", 20),
    }
    report = run_replay(spark, plan)
    assert report.messages == 40
    rows = read_here(path=path, topic="orders,payments")
    again = [row for row in rows if row["body"] != b"seen"]
    assert len(again) == 40
    for row in again:
        number = int(row["body"])
        assert row["topic"] == ("orders" if number % 2 else "payments")
        assert (row["keys"], row["tags"]) == ([f"k{number}"], "red")
        assert row["unique_key"] == f"u{number}"
        assert row["properties"]["own"] == str(number)
        assert row["properties"]["ORIGIN_MESSAGE_ID"] == f"o{number}"
        left = {"KEYS", "TAGS", "UNIQ_KEY", "ORIGIN_MESSAGE_ID"}
        assert not row["properties"].keys() & (set(OF_THE_BROKER) - left)
    with rocketlake.open_store(path) as store:
        store.put(Message(topic="%DLQ%billing", body=b"lost"))
    with pytest.raises(ConfigError, match="1 messages do not say which topic they came from"):
        replay(spark, selection, path)


def test_a_paced_replay_that_is_killed_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """From an archive, in pieces, into a store with fewer queues; each queue keeps its order."""
    store, archived = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(150, ["orders"])
    archive_here(store.path, archived)
    target = tmp_path / "target"
    with rocketlake.open_store(target) as opened:
        opened.create_topic("again", queues=2)
    clock, waits = ManualClock(), []

    class KilledError(Exception):
        pass

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance_ms(int(seconds * 1000))
        if len(waits) == 2:
            raise KilledError

    selection = Selection(archive=str(archived), topic="orders", tags="red || blue")
    settings = ReplaySettings(to_topic="again", rate=8, id="once")
    plan = plan_replay(spark, selection, target, settings)
    assert plan.messages == 100
    with pytest.raises(KilledError):
        run_replay(spark, plan, clock=clock, wait=wait)
    assert waits == [5.0, 5.0]
    assert len(read_here(path=target, topic="again")) == 80
    report = run_replay(
        spark, plan_replay(spark, selection, target, settings), clock=clock, wait=wait
    )
    assert (report.messages, report.pieces) == (100, 3)
    wanted = by_queue(read_here(archive=archived, topic="orders", tags="red || blue"))
    found = by_queue(read_here(path=target, topic="again"))
    assert len(found) == 2
    assert sum(map(len, found.values())) == 100
    for queue_id, bodies in wanted.items():
        assert [body for body in found[queue_id % 2] if body in set(bodies)] == bodies
    done = replay(spark, selection, target, settings=settings)
    assert isinstance(done, ReplayReport)
    assert done.was_done
    with pytest.raises(StoreError, match="was asked for other messages"):
        replay(spark, Selection(archive=str(archived), topic="orders"), target, settings=settings)


def test_bad_replays_name_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    selection = Selection(path=str(tmp_path))
    with pytest.raises(ConfigError, match="no topic is named"):
        replay(spark, selection, tmp_path)
    both = Selection(path=str(tmp_path), topic="orders", dead_letters="billing")
    with pytest.raises(ConfigError, match="not both"):
        replay(spark, both, tmp_path)
    for settings, text in (
        (ReplaySettings(rate=0), "above 0"),
        (ReplaySettings(id="a/b"), "letters"),
        (ReplaySettings(sink_options={"path": "x"}), "not for a replay"),
    ):
        with pytest.raises(ConfigError, match=text):
            replay(
                spark, Selection(path=str(tmp_path), topic="orders"), tmp_path, settings=settings
            )


def prices(path: Path) -> list[Message]:
    """Prices of things, some of which are taken off the list; and messages about nothing."""
    sent = [
        Message(
            topic="prices",
            body=b"" if number % 17 == 0 else b"%d" % number,
            keys=[f"thing{number % 23}"] if number % 10 else [],
            properties={"rank": str(1000 - number)},
        )
        for number in range(400)
    ]
    with rocketlake.open_store(path, clock=ManualClock()) as store:
        for message in sent:
            store.put(message)
    return sent


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Message]]:
    path = tmp_path_factory.mktemp("compact") / "broker-a"
    return path, prices(path)


def test_compact_equals_a_dictionary(
    spark: SparkSession, priced: tuple[Path, list[Message]], tmp_path: Path
) -> None:
    """All messages have one store time: their order in the log decides."""
    path, sent = priced
    newest = {key: message.body for message in sent for key in message.keys}
    selection = Selection(path=str(path), topic="prices")
    report = compact(
        spark, selection, tmp_path / "new", settings=CompactSettings(to_topic="newest")
    )
    assert isinstance(report, CompactReport)
    assert (report.messages, report.kept, report.keyless) == (400, len(newest), 40)
    rows = read_here(path=tmp_path / "new", topic="newest")
    assert {row["keys"][0]: row["body"] for row in rows} == newest
    assert len(rows) == len(newest)
    with pytest.raises(ConfigError, match="is not empty"):
        compact(spark, selection, tmp_path / "new")


def test_compact_into_a_table_without_tombstones(
    spark: SparkSession, priced: tuple[Path, list[Message]], tmp_path: Path
) -> None:
    path, sent = priced
    oldest = {key: m.body for m in reversed(sent) for key in m.keys}
    wanted = {key: body for key, body in oldest.items() if body}
    settings = CompactSettings(
        to="parquet", drops_tombstones=True, keeps_keyless=True, order="property:rank"
    )
    selection = Selection(path=str(path), topic="prices")
    plan = compact(spark, selection, tmp_path / "t", settings=settings, dry_run=True)
    assert not (tmp_path / "t").exists()
    report = compact(spark, selection, tmp_path / "t", settings=settings)
    assert plan.kept == report.kept == len(wanted) + 40
    assert report.tombstones == len(oldest) - len(wanted)
    assert list(report.lines())[1:] == [
        "40 messages have no key and are kept",
        "1 key ends with an empty body and is left out",
    ]
    rows = spark.read.parquet(str(tmp_path / "t")).collect()
    assert {row["keys"][0]: bytes(row.body) for row in rows if row["keys"]} == wanted
    assert sum(not row["keys"] for row in rows) == 40
    for bad in (CompactSettings(by="key"), CompactSettings(order="property:")):
        with pytest.raises(ConfigError, match="wanted"):
            compact(spark, selection, tmp_path / "u", settings=bad)
    assert load(spark, path=path, topic="prices").count() == 400
