"""Drop and compact: what is left for new readers, earlier readers and the next run."""

import json
import threading
from pathlib import Path

import pytest
from archive_parts import START_MS, GrowingStore, archive_here, in_order, read_here
from archive_upkeep_parts import SMALL, compact_here, many_small_files, parquet_files
from pyspark.sql import SparkSession

from rocketlake.errors import ConfigError, DiskFullError, StoreError
from rocketlake.format import layout
from rocketlake.spark.jobs import compact_archive
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.drop import drop_days, plan_drop
from rocketlake.spark.jobs.archive.plan import ArchiveSettings, plan_archive
from rocketlake.spark.jobs.archive.run import carry_out
from rocketlake.spark.reading.batch_reader import make_reader
from rocketlake.spark.schema import MESSAGE_SCHEMA
from support.command import run
from support.manual_clock import ManualClock
from support.store_builder import StoreBuilder

MIDNIGHT_MS = START_MS + 600_000
HOUR_MS = 3_600_000


def planned(**options: object):
    """Plan a read now, and return what reads it later."""
    reader = make_reader({name: str(value) for name, value in options.items()}, MESSAGE_SCHEMA)
    parts = reader.partitions()

    def read():
        return in_order(
            row for part in parts for batch in reader.read(part) for row in batch.to_pylist()
        )

    return read


def days_of(rows: list[dict]) -> set[str]:
    return {f"{row['store_timestamp']:%Y-%m-%d}" for row in rows}


# --- drop ---------------------------------------------------------------------------------------


def test_dropped_days_are_gone_and_stay_gone(tmp_path: Path) -> None:
    store, target = many_small_files(tmp_path), tmp_path / "archive"
    whole = read_here(archive=target, topicPattern=".*")
    late = [r for r in whole if r["store_timestamp"].timestamp() * 1000 >= MIDNIGHT_MS]
    assert 0 < len(late) < len(whole)
    plan = plan_drop(target, "2026-01-01")
    assert (plan.messages, len(plan.days)) == (len(whole) - len(late), 2)
    before = len(parquet_files(target))
    done = drop_days(target, "2026-01-01")
    assert (done.messages, done.files, done.is_done) == (plan.messages, plan.files, True)
    assert len(parquet_files(target)) == before - plan.files
    assert not list(target.glob("topic=*/date=2025-12-31"))
    assert read_here(archive=target, topicPattern=".*") == late
    # The store still has those messages. They are not archived again, and the joined table, which
    # takes history from the archive alone, does not have them either.
    store.grow(20)
    joined = read_here(path=store.path, archive=target, topicPattern=".*")
    assert len(joined) == len(late) + 20
    assert archive_here(store.path, target).rows == 20
    assert read_here(archive=target, topicPattern=".*") == joined
    manifest = json.loads((target / "_manifest.json").read_text())
    (drop,) = manifest["drops"]
    assert (drop["before"], drop["rows"]) == ("2026-01-01", plan.messages)
    assert [note["job"] for note in manifest["runs"]][-2:] == ["drop", "archive"]


def test_a_query_that_was_planned_before_a_drop_reads_what_it_planned(tmp_path: Path) -> None:
    many_small_files(tmp_path)
    target, clock = tmp_path / "archive", ManualClock(MIDNIGHT_MS)
    whole = read_here(archive=target, topicPattern=".*")
    read = planned(archive=target, topicPattern=".*")
    drop_days(target, "2026-01-01", clock=clock, grace_ms=HOUR_MS)
    assert read() == whole
    clock.advance_ms(HOUR_MS - 1)
    drop_days(target, "2026-01-01", clock=clock)  # nothing to drop, and too early to delete
    assert read() == whole
    clock.advance_ms(1)
    drop_days(target, "2026-01-01", clock=clock)
    assert not (target / "_retired").exists()
    with pytest.raises(StoreError, match="archive-compact ran meanwhile with a --grace shorter"):
        read()


def test_a_drop_without_grace_frees_the_disk_at_once(tmp_path: Path) -> None:
    many_small_files(tmp_path)
    target = tmp_path / "archive"
    drop_days(target, "2999-01-01", grace_ms=0)
    assert not list(target.rglob("*.parquet"))
    assert not (target / "_retired").exists()
    assert read_here(archive=target, topicPattern=".*") == []


def test_a_drop_on_a_full_disk_tells_how_to_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_small_files(tmp_path)
    target = tmp_path / "archive"
    before = parquet_files(target)

    def fail(_self: ArchiveDir, _manifest: object) -> None:
        raise DiskFullError(str(target / "_manifest.json.tmp"), 2000, 0)

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveDir, "commit", fail)
        with pytest.raises(StoreError, match=r"Nothing was dropped.*Free 2000 bytes.*--grace 0"):
            drop_days(target, "2026-01-01")
    assert parquet_files(target) == before
    assert drop_days(target, "2026-01-01", grace_ms=0).is_done


def test_a_drop_of_one_topic_leaves_the_others(tmp_path: Path) -> None:
    many_small_files(tmp_path)
    target = tmp_path / "archive"
    payments = read_here(archive=target, topic="payments")
    done = drop_days(target, "2026-01-02", ["ord*", "trace*"])
    assert done.problems == ("the archive has no topic like 'trace*'",)
    assert read_here(archive=target, topic="payments") == payments
    assert read_here(archive=target, topic="orders") == []


def test_offsets_that_were_dropped_are_refused_by_name(tmp_path: Path) -> None:
    many_small_files(tmp_path)
    target = tmp_path / "archive"
    drop_days(target, "2026-01-01")
    begin = min(r["queue_offset"] for r in read_here(archive=target, topic="orders", queueIds="0"))
    starting = json.dumps({"orders": {"0": begin - 1}})
    with pytest.raises(StoreError, match=f"archive and store hold {begin} to"):
        read_here(archive=target, topic="orders", startingOffsets=starting)


def test_days_that_lie_behind_messages_that_stay_are_told(tmp_path: Path) -> None:
    """Their offsets were passed over in silence by readers that ask for failOnDataLoss."""
    builder = StoreBuilder(tmp_path / "broker-a")
    for number in range(10):
        builder.record("T", body=b"%d" % number)
    at = builder.placed[6].physical_offset + layout.RECORD_BORN_HOST_AT + 8
    builder.overwrite(at, bytes(8)).write()
    target = tmp_path / "archive"
    archive_here(tmp_path / "broker-a", target)
    plan = plan_drop(target, "2000-01-01")
    assert plan.problems == (
        "broker-a T/0: dropped messages among the offsets 6 to 6 lie behind others that stay; reads"
        " pass over them, also with failOnDataLoss = true",
    )
    assert drop_days(target, "2000-01-01").problems == plan.problems
    assert [
        (gap["topic"], gap["queue_id"], gap["from_offset"], gap["to_offset"])
        for gap in json.loads((target / "_manifest.json").read_text())["gaps"]
    ] == [("T", 0, 6, 7)]
    rows = read_here(archive=target, topic="T")
    assert [row["queue_offset"] for row in rows] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert drop_days(target, "9999-12-31").problems == ()


def test_an_archive_run_planned_before_a_drop_does_not_undo_it(tmp_path: Path) -> None:
    store, target = many_small_files(tmp_path), tmp_path / "archive"
    store.grow(10)
    plan = plan_archive(store.path, target)
    drop_days(target, "2026-01-01")
    with pytest.raises(StoreError, match="another run was faster"):
        carry_out(plan, lambda *_: [], "2026-01-01T00:00:00Z")
    busy = pytest.raises(StoreError, match="this process is archiving into it")
    with ArchiveDir(target).locked(), busy:
        drop_days(target, "2026-01-02")


def test_bad_input_of_drop_and_compact_names_the_way_out(tmp_path: Path) -> None:
    target = tmp_path / "archive"
    with pytest.raises(StoreError, match=r"has no _manifest\.json"):
        drop_days(target, "2026-01-01")
    with pytest.raises(StoreError, match=r"has no _manifest\.json"):
        compact_here(target)
    assert not target.exists()
    many_small_files(tmp_path, 1, 10)
    for text in ("2026-1-1", "2026-02-30", "yesterday", "1767225600000"):
        with pytest.raises(ConfigError, match="is not a date; wanted a day"):
            drop_days(target, text)
    with pytest.raises(ConfigError, match="no topic 'order'; did you mean 'orders'"):
        drop_days(target, "2026-01-01", ["order"])
    with pytest.raises(ConfigError, match="no topic 'order'; did you mean 'orders'"):
        compact_here(target, ArchiveSettings(topics=("order",)))
    with pytest.raises(ConfigError, match="target above 0"):
        compact_here(target, ArchiveSettings(target_bytes=0))


# --- compact ------------------------------------------------------------------------------------


def test_small_files_become_few_with_the_same_rows(tmp_path: Path) -> None:
    store, target = many_small_files(tmp_path), tmp_path / "archive"
    whole = read_here(archive=target, topicPattern=".*")
    assert len(parquet_files(target)) > 6
    done = compact_here(target)
    assert sum(day.merged for day in done.days) > len(done.tasks) == len(parquet_files(target)) == 4
    assert read_here(archive=target, topicPattern=".*") == whole
    assert next(iter(compact_here(target).lines())) == f"{target} has no small files to merge"
    # Statistics of the merged files serve filters and times.
    moment = {"startingTimestamp": MIDNIGHT_MS, "topic": "orders"}
    assert read_here(archive=target, **moment) == read_here(path=store.path, **moment)
    # The next run goes on with them.
    store.grow(50)
    assert archive_here(store.path, target).rows == 50
    assert len(parquet_files(target)) == 4
    assert read_here(archive=target, topicPattern=".*") == read_here(
        path=store.path, topicPattern=".*"
    )


def test_a_query_that_was_planned_before_a_compaction_reads_the_same(tmp_path: Path) -> None:
    many_small_files(tmp_path)
    target = tmp_path / "archive"
    whole = read_here(archive=target, topicPattern=".*")
    read = planned(archive=target, topicPattern=".*")
    compact_here(target)
    assert read() == whole
    assert len(list((target / "_retired").rglob("*.parquet"))) > 4


def test_files_are_merged_up_to_the_size_asked_for(tmp_path: Path) -> None:
    many_small_files(tmp_path, 6, 100)
    target = tmp_path / "archive"
    size = max(path.stat().st_size for path in parquet_files(target))
    before = len(parquet_files(target))
    settings = ArchiveSettings(target_bytes=2 * size + 100, small_bytes=2 * size)
    done = compact_here(target, settings)
    assert all(len(task.sources) == 2 for task in done.tasks)
    assert len(done.tasks) > 3
    assert len(parquet_files(target)) == before - len(done.tasks)


def test_a_damaged_source_stops_a_compaction_and_changes_nothing(tmp_path: Path) -> None:
    many_small_files(tmp_path)
    target = tmp_path / "archive"
    victim = parquet_files(target)[0]
    data = bytearray(victim.read_bytes())
    data[10] ^= 1
    victim.write_bytes(data)
    manifest = (target / "_manifest.json").read_bytes()
    with pytest.raises(StoreError, match=f"{victim.name} of the archive cannot be merged"):
        compact_here(target)
    assert (target / "_manifest.json").read_bytes() == manifest


def test_the_commands(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # the commands use the session that is there
    store, target = many_small_files(tmp_path), tmp_path / "archive"
    whole = read_here(archive=target, topicPattern=".*")
    files = len(parquet_files(target))
    ran = run("archive-compact", target, "--dry-run", "--json")
    assert (ran.code, ran.json["is_done"], ran.json["into"]) == (0, False, 4), ran.err
    assert len(parquet_files(target)) == files
    ran = run("archive-compact", target)
    assert (ran.code, len(parquet_files(target))) == (0, 4), ran.err
    assert f"merged {files} files" in ran.out
    ran = run("archive-compact", target)
    assert (ran.code, ran.out) == (0, f"{target} has no small files to merge\n"), ran.err
    assert read_here(archive=target, topicPattern=".*") == whole
    ran = run("archive-drop", target, "--before", "2026-01-01", "--dry-run")
    assert (ran.code, "would drop" in ran.out, "2025-12-31" in ran.out) == (0, True, True), ran.err
    assert read_here(archive=target, topicPattern=".*") == whole
    ran = run("archive-drop", target, "--before", "2026-01-01", "--grace", "0", "--json")
    assert (ran.code, ran.json["is_done"]) == (0, True), ran.err
    assert days_of(read_here(archive=target, topicPattern=".*")) == {"2026-01-01"}
    for arguments, text in (
        (("archive-drop", target), "--before"),
        (("archive-drop", target, "--before", "x"), "is not a date"),
        (("archive-drop", target, "--before", "2026-01-01", "--grace", "x"), "is not a duration"),
        (("archive-drop", store.path, "--before", "2026-01-01"), "has no _manifest.json"),
        (("archive-compact", target, "--topic", "order"), "did you mean 'orders'"),
    ):
        ran = run(*arguments)
        assert (ran.code, text in ran.err) == (2, True), ran.err


def test_a_store_called_drop_is_still_archived(tmp_path: Path) -> None:
    store = GrowingStore(tmp_path / "drop")
    store.grow(4)
    ran = run("archive", tmp_path / "drop", tmp_path / "archive", "--dry-run", "--json")
    assert (ran.code, ran.json["messages"]) == (0, 4), ran.err


@pytest.mark.parametrize("word", ["drop", "compact"])
def test_archive_drop_in_two_words_names_the_command(word: str) -> None:
    done = run("archive", word, "/archive", "--before", "2026-01-31")
    assert done.code != 0
    assert f"Did you mean `rocketlake archive-{word}`?" in done.err


def test_a_compaction_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    many_small_files(tmp_path, 3, 60)
    target = tmp_path / "archive"
    whole = read_here(archive=target, topicPattern=".*")
    assert not compact_archive(spark, target, dry_run=True).is_done
    done = compact_archive(spark, target, grace_ms=0)
    assert done.is_done
    assert 0 < done.bytes_after < sum(day.bytes for day in done.days)
    assert len(list(target.rglob("*.parquet"))) == len(done.tasks)
    assert read_here(archive=target, topicPattern=".*") == whole
    assert SMALL.small == 1


def test_readers_beside_runs_and_compactions_see_a_beginning_of_each_queue(tmp_path: Path) -> None:
    """Nothing twice and no hole, whatever the runs are doing while a read is planned and made."""
    store, target = many_small_files(tmp_path, 2, 40), tmp_path / "archive"
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(12):
                store.grow(20)
                archive_here(store.path, target, SMALL)
                compact_here(target)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    counts = []
    while worker.is_alive():
        places = [
            (row["topic"], row["queue_id"], row["queue_offset"])
            for row in read_here(archive=target, topicPattern=".*")
        ]
        queues = {(topic, queue_id) for topic, queue_id, _ in places}
        lengths = {queue: sum(place[:2] == queue for place in places) for queue in queues}
        whole = {(*queue, offset) for queue in queues for offset in range(lengths[queue])}
        assert sorted(places) == sorted(whole)
        counts.append(len(places))
    worker.join()
    assert not failures
    assert counts == sorted(counts)
    assert len(set(counts)) > 3
