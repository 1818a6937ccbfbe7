"""A topic as a table: archive and live store read as one, without Spark where that is the same."""

import json
import random
import shutil
from pathlib import Path

import pytest
from archive_parts import START_MS, GrowingStore, archive_here, read_here

import rocketlake
from rocketlake.errors import ConfigError, StoreError
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.archive_manifest import load_manifest
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.plan import ArchiveSettings, plan_archive
from support.golden import GoldenStores, case_names

DAY_MS = 86_400_000


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    """Twenty minutes of messages around midnight."""
    found = GrowingStore(tmp_path / "broker-a")
    found.grow(1200)
    return found


def test_archive_equals_the_store_row_for_row(store: GrowingStore, tmp_path: Path) -> None:
    report = archive_here(store.path, tmp_path / "archive")
    assert (report.rows, report.left_out) == (1200, 0)
    wanted = read_here(path=store.path, topicPattern=".*")
    assert len(wanted) == 1200
    assert read_here(archive=tmp_path / "archive", topicPattern=".*") == wanted
    dates = {p.parent.name for p in (tmp_path / "archive").rglob("*.parquet")}
    assert dates == {"date=2025-12-31", "date=2026-01-01"}


def test_incremental_runs_and_the_live_tail_are_the_whole_topic(
    store: GrowingStore, tmp_path: Path
) -> None:
    target = tmp_path / "archive"
    with rocketlake.open_store(store.path, clock=store.clock) as opened:
        for count in (100, 1, 250):
            archive_here(store.path, target)
            store.put(opened, count)
        joined = read_here(path=store.path, archive=target, topic="orders")
        assert joined == read_here(path=store.path, topic="orders")
        assert len(joined) == (1200 + 351) // 2 + 1
    manifest = load_manifest(PosixFileOps(), target)
    assert manifest is not None
    assert sum(file.rows for file in manifest.files) == 1301
    # Small files of a day grow instead of becoming many.
    assert len(manifest.files) == 4
    assert len(list(target.rglob("*.parquet"))) == 4


def test_a_reader_of_an_older_manifest_sees_what_it_says(
    store: GrowingStore, tmp_path: Path
) -> None:
    """Files of that name have grown since: their new rows are those of the live store."""
    from rocketlake.spark.reading.batch_reader import make_reader  # noqa: PLC0415
    from rocketlake.spark.schema import MESSAGE_SCHEMA  # noqa: PLC0415

    target = tmp_path / "archive"
    archive_here(store.path, target)
    store.grow(100)
    options = {"path": str(store.path), "archive": str(target), "topicPattern": ".*"}
    reader = make_reader(options, MESSAGE_SCHEMA)
    parts = list(reader.partitions())
    archive_here(store.path, target)
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(rows) == 1300
    assert len({(r["topic"], r["queue_id"], r["queue_offset"]) for r in rows}) == 1300


@pytest.mark.parametrize(
    "selection",
    [
        {"topic": "orders", "queueIds": "1"},
        {"topic": "orders", "tags": "red || blue"},
        {"topic": "payments", "sql": "n BETWEEN 800 AND 1250 AND TAGS = 'blue'"},
        {"topicPattern": ".*", "key": "group3"},
        {"topic": "orders", "key": "k1202"},
        {"topic": "orders", "startingTimestamp": START_MS + 500_000},
        {"topic": "orders", "startingTimestamp": START_MS + 1_250_000},
        {"topic": "orders", "endingTimestamp": START_MS + 1_230_000},
        {
            "topic": "orders",
            "startingTimestamp": START_MS + 599_000,
            "endingTimestamp": START_MS + 601_000,
        },
        {"topic": "orders", "startingOffsets": '{"orders": {"0": 140, "1": 155, "2": -1}}'},
        {"topic": "orders", "endingOffsets": '{"orders": {"0": 140, "1": 155, "2": -2}}'},
        {
            "topic": "orders",
            "endingOffsetsByTimestamp": f'{{"orders": {{"0": {START_MS + 9000}}}}}',
        },
    ],
    ids=" ".join,
)
def test_selections_work_over_both(
    selection: dict[str, str], store: GrowingStore, tmp_path: Path
) -> None:
    archive_here(store.path, tmp_path / "archive")
    store.grow(100)
    wanted = read_here(path=store.path, **selection)
    assert 0 < len(wanted) < 1300
    assert read_here(path=store.path, archive=tmp_path / "archive", **selection) == wanted


def test_expired_history_comes_from_the_archive(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "broker-a", mapped_file_size_commit_log=16 << 10)
    store.grow(600)
    before = read_here(path=store.path, topicPattern=".*")
    archive_here(store.path, tmp_path / "archive")
    with rocketlake.open_store(store.path, clock=store.clock) as opened:
        assert opened.delete_expired(hours=0).files > 2
        store.put(opened, 10)
    assert len(read_here(path=store.path, topicPattern=".*")) < 600
    joined = read_here(path=store.path, archive=tmp_path / "archive", topicPattern=".*")
    assert len(joined) == 610
    by_place = {(r["topic"], r["queue_id"], r["queue_offset"]): r for r in joined}
    assert all(by_place[r["topic"], r["queue_id"], r["queue_offset"]] == r for r in before)
    shutil.rmtree(store.path)
    assert read_here(archive=tmp_path / "archive", topicPattern=".*") == before


def test_what_expired_before_it_was_archived_is_told(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "broker-a", mapped_file_size_commit_log=16 << 10)
    store.grow(100, ["orders"])
    archive_here(store.path, tmp_path / "archive")
    store.grow(600, ["orders"])
    with rocketlake.open_store(store.path, clock=store.clock) as opened:
        opened.delete_expired(hours=0)
    options = {"path": store.path, "archive": tmp_path / "archive", "topic": "orders"}
    with pytest.raises(StoreError, match=r"messages of orders.* expired before they were archived"):
        read_here(**options)
    left = read_here(**options, failOnDataLoss="false")
    assert 100 < len(left) < 700
    report = archive_here(store.path, tmp_path / "archive")
    assert sum(gap.to_offset - gap.from_offset for gap in report.gaps) == 700 - len(left)
    assert any("expired before they were archived" in line for line in report.lines())
    # A gap that the manifest knows is no news.
    assert read_here(**options) == left


def test_a_topic_made_again_is_not_mixed_with_its_past(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "broker-a")
    store.grow(40, ["orders", "payments"])
    archive_here(store.path, tmp_path / "archive")
    with rocketlake.open_store(store.path, clock=store.clock) as opened:
        opened.delete_topic("orders")
    store.grow(100, ["orders", "payments"])
    with pytest.raises(StoreError, match="was created again"):
        read_here(path=store.path, archive=tmp_path / "archive", topic="orders")
    report = archive_here(store.path, tmp_path / "archive")
    assert any("was created again" in text for text in report.problems)
    assert report.rows == 50


def test_several_brokers_in_one_archive(tmp_path: Path) -> None:
    first, second = GrowingStore(tmp_path / "a"), GrowingStore(tmp_path / "b")
    first.grow(30)
    second.grow(50)
    both = f"{first.path},{second.path}"
    archive_here(both, tmp_path / "archive")
    first.grow(5)
    second.grow(7)
    joined = read_here(path=both, archive=tmp_path / "archive", topicPattern=".*")
    assert joined == read_here(path=both, topicPattern=".*")
    with pytest.raises(ConfigError, match=r"knows the store .* as 'a', not as 'other'"):
        read_here(path=f"other={first.path}", archive=tmp_path / "archive", topic="orders")


def test_bad_input_names_the_way_out(store: GrowingStore, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    with pytest.raises(StoreError, match=r"has no _manifest\.json"):
        read_here(archive=target, topic="orders")
    archive_here(store.path, target)
    with pytest.raises(ConfigError, match="needs a topic"):
        read_here(archive=target)
    with pytest.raises(ConfigError, match="did you mean 'orders'"):
        read_here(archive=target, topic="order")
    with pytest.raises(ConfigError, match="rawBody does not go with archive"):
        read_here(archive=target, topic="orders", rawBody="true")
    with pytest.raises(StoreError, match="archive and store hold 0 to"):
        read_here(archive=target, topic="orders", startingOffsets='{"orders": {"0": 999}}')
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy"):
        read_here(archive=target, topic="orders", startingTimestamp=START_MS + DAY_MS)
    victim = next(iter(target.rglob("*.parquet")))
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-8])
    with pytest.raises(StoreError, match=f"{victim.name} of the archive .* is damaged"):
        read_here(archive=target, topicPattern=".*")
    assert len(read_here(archive=target, topicPattern=".*", onDamage="skip")) < 1200
    (target / "_manifest.json").write_text("{}")
    with pytest.raises(StoreError, match="is not a manifest of an archive"):
        archive_here(store.path, target)


def test_settings_that_make_no_sense_are_refused(store: GrowingStore, tmp_path: Path) -> None:
    for settings, text in (
        (ArchiveSettings(topics=()), "topics is empty"),
        (ArchiveSettings(topics=("order",)), "did you mean 'orders'"),
        (ArchiveSettings(target_bytes=0), "target above 0"),
        (ArchiveSettings(compression="zip"), "wanted one of zstd"),
    ):
        with pytest.raises(ConfigError, match=text):
            archive_here(store.path, tmp_path / "archive", settings)
    for target, text in (("s3://bucket/x", "not in s3"), ("", "not named")):
        with pytest.raises(ConfigError, match=text):
            read_here(archive=target, topic="orders")
    busy = pytest.raises(StoreError, match="this process is archiving into it")
    with ArchiveDir(f"file:{tmp_path}/archive").locked(), busy:
        archive_here(store.path, tmp_path / "archive")
    (tmp_path / "archive" / "_work" / "run-000001").mkdir()
    (tmp_path / "archive" / "_work" / "run-000001" / "left.parquet").touch()
    report = archive_here(
        store.path, tmp_path / "archive", ArchiveSettings(topics=("orders", "x*"))
    )
    assert (report.rows, report.problems) == (600, ("no store has a topic like 'x*'",))
    assert [path.name for path in (tmp_path / "archive" / "_work").iterdir()] == ["lock"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(StoreError, match="it is not an archive"):
        archive_here(store.path, tmp_path / "full")


def test_stores_of_rocketmq_are_archived_row_for_row(tmp_path: Path) -> None:
    """Every golden store, damaged or not: the archive holds what the source reads of it."""
    rows = topics = 0
    for name in case_names():
        golden = GoldenStores(tmp_path / "golden").get(name)
        given = {"onDamage": "asRecovered", "options": json.dumps(golden.case.options(golden.root))}
        selection = {"path": f"b={golden.root}", "topicPattern": "(?!%LMQ%).*", **given}
        wanted = read_here(**selection)
        settings = ArchiveSettings(
            topics=tuple({row["topic"] for row in wanted}) or ("*",), source_options=given
        )
        report = archive_here(f"b={golden.root}", tmp_path / name, settings)
        assert report.rows == len(wanted), name
        assert read_here(archive=tmp_path / name, topicPattern=".*") == wanted, name
        rows += len(wanted)
        topics += len(settings.topics)
    assert rows > 1000
    assert topics > 20


def test_files_are_few_and_of_the_size_asked_for(tmp_path: Path) -> None:
    """The source cuts for cores; an archive cuts for files."""
    with rocketlake.open_store(tmp_path / "broker-a") as store:
        for number in range(36):
            body = random.Random(number).randbytes(1 << 19)
            store.put(rocketlake.Message(topic="orders", body=body), queue_id=number % 3)
    (day,) = plan_archive(tmp_path / "broker-a", tmp_path / "archive").days
    assert (day.messages, day.files) == (36, 1)
    # 6 MiB of the log, as long as nobody knows how well it compresses.
    settings = ArchiveSettings(target_bytes=3 << 20)
    archive_here(tmp_path / "broker-a", tmp_path / "archive", settings)
    sizes = [path.stat().st_size for path in (tmp_path / "archive").rglob("*.parquet")]
    assert len(sizes) in (3, 4)
    assert read_here(archive=tmp_path / "archive", topic="orders") == read_here(
        path=tmp_path / "broker-a", topic="orders"
    )
