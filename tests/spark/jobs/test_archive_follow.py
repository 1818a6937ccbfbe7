"""An archive that follows its store: rounds in one session, beside drops and other runs."""

import signal
import threading
from pathlib import Path
from unittest import mock

import pytest
from archive_parts import GrowingStore, archive_here, read_here
from pyspark.sql import SparkSession

import rocketlake
from rocketlake import failpoint
from rocketlake.errors import ConfigError
from rocketlake.spark.jobs import ArchiveJob, ArchiveReport, ArchiveSettings, plan_archive
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.drop import drop_days
from rocketlake.spark.jobs.archive.run import catch_up
from support.command import run


def test_rounds_archive_what_came_and_tell_of_news(spark: SparkSession, tmp_path: Path) -> None:
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(40)
    job = ArchiveJob(spark, store.path, target)
    told: list[ArchiveReport] = []

    def go_on(report: ArchiveReport) -> None:
        told.append(report)
        if len(told) == 3:
            job.stop()
        else:
            store.grow(10 * len(told))

    rows = job.run(0.01, go_on)
    assert rows == 40 + 10 + 20
    assert [report.rows for report in told] == [40, 10, 20]
    assert read_here(archive=target, topicPattern=".*") == read_here(
        path=store.path, topicPattern=".*"
    )


def test_a_problem_that_stays_is_told_once(spark: SparkSession, tmp_path: Path) -> None:
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(40, ["orders", "payments"])
    archive_here(store.path, target)
    with rocketlake.open_store(store.path, clock=store.clock) as opened:
        opened.delete_topic("orders")
    store.grow(10, ["orders"])
    job = ArchiveJob(spark, store.path, target)
    told: list[tuple[str, ...]] = []
    rounds = iter(range(4))

    def see() -> None:
        if next(rounds) == 3:
            job.stop()

    def tell(report: ArchiveReport) -> None:
        told.append(report.problems)

    original = job._round

    def counted() -> ArchiveReport | None:
        see()
        return original()

    job._round = counted  # type: ignore[method-assign]
    job.run(0.01, tell)
    assert len(told) == 1
    assert "was created again" in told[0][0]


def test_a_round_waits_for_another_run(spark: SparkSession, tmp_path: Path) -> None:
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(40)
    job = ArchiveJob(spark, store.path, target)
    reports: list[ArchiveReport] = []
    ended = threading.Event()

    def follow() -> None:
        job.run(0.01, reports.append)
        ended.set()

    thread = threading.Thread(target=follow)
    with ArchiveDir(target).locked():
        thread.start()
        assert not ended.wait(0.5)
        assert not reports
    while not reports and thread.is_alive():
        ended.wait(0.05)
    job.stop()
    thread.join(60)
    assert [report.rows for report in reports] == [40]


def test_a_drop_between_plan_and_run_is_planned_for(spark: SparkSession, tmp_path: Path) -> None:
    """The run finds the archive changed, and plans again."""
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(1300)
    archive_here(store.path, target)
    store.grow(20)
    plans = []

    def plan_then_drop(*arguments: object) -> object:
        plan = plan_archive(*arguments)  # type: ignore[arg-type]
        if not plans:
            drop_days(target, "2026-01-01")
        plans.append(plan)
        return plan

    with mock.patch("rocketlake.spark.jobs.archive.run.plan_archive", plan_then_drop):
        report = catch_up(spark, store.path, target, settings=ArchiveSettings())
    assert [plan.run for plan in plans] == [2, 3]
    assert report.rows == 20
    assert {
        f"{r['store_timestamp']:%Y-%m-%d}" for r in read_here(archive=target, topic="orders")
    } == {"2026-01-01"}


def test_the_command_follows_until_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # the command uses the session that is there
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "archive"
    store.grow(12)
    # Ctrl-C, as the first round ends.

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    with failpoint.switched_on("archive_settle.after", interrupt):
        ran = run("archive", store.path, target, "--follow", "--poll", "30")
    assert ran.code == 0, ran.err
    assert "run 1: 12 messages in 2 files" in ran.out
    assert "following; Ctrl-C ends it" in ran.err
    assert len(read_here(archive=target, topicPattern=".*")) == 12


def test_a_dry_run_tells_of_a_killed_run(spark: SparkSession, tmp_path: Path) -> None:
    store, target = GrowingStore(tmp_path / "broker-a"), tmp_path / "table"
    settings = ArchiveSettings(format="orc")
    store.grow(20)

    def fail() -> None:
        raise ConfigError("killed")

    with (
        failpoint.switched_on("archive_table.after", fail),
        pytest.raises(ConfigError, match="killed"),
    ):
        catch_up(spark, store.path, target, settings=settings)
    ran = run("archive", store.path, target, "--format", "orc", "--dry-run")
    assert (ran.code, "run 1 was killed and is finished first" in ran.err) == (0, True), ran.err
    assert any(
        "may be in the table" in line for line in plan_archive(store.path, target, settings).lines()
    )
