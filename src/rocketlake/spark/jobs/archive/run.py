"""Runs an archive plan: files by executors, one manifest, names at the end."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from rocketlake import failpoint
from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import ArchiveBusyError, StoreError
from rocketlake.metadata.archive_manifest import PARQUET, ArchivedFile, Manifest
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.days import utc_text
from rocketlake.spark.jobs.archive.parquet_file import StagedFile
from rocketlake.spark.jobs.archive.plan import (
    ArchivePlan,
    ArchiveSettings,
    ArchiveTask,
    bins,
    final_path,
    plan_archive,
)
from rocketlake.spark.jobs.archive.report import ArchiveReport, make_report, next_manifest
from rocketlake.spark.jobs.archive.tables import finish_pending, run_table
from rocketlake.spark.jobs.archive.tasks import Writing, described, task_function
from rocketlake.spark.progress import OnProgress, watching
from rocketlake.spark.session import is_connect

_CONNECT_CORES = 16  # a client of Spark Connect does not know the number
_PLANS_MAX = 3


def archive(
    spark: SparkSession,
    store: str | Path,
    target: str | Path,
    *,
    settings: ArchiveSettings | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> ArchivePlan | ArchiveReport:
    """Archive what is new in a store, or in several (`a=/data/a,b=/data/b`), into a directory.

    Each message is archived once, whatever happens on the way: a run that is killed leaves the
    archive as it was or as it will be, and the next one goes on there. With `dry_run` the plan is
    returned and nothing is changed.

    Raises:
        ConfigError: an option is wrong.
        StoreError: a store cannot be read, or the archive not be written.
    """
    settings = settings or ArchiveSettings()
    if dry_run:
        return plan_archive(store, target, settings)
    return catch_up(spark, store, target, settings=settings, on_progress=on_progress)


def catch_up(
    spark: SparkSession,
    store: str | Path,
    target: str | Path,
    *,
    settings: ArchiveSettings,
    on_progress: OnProgress | None = None,
) -> ArchiveReport:
    """Finish what a killed run left, plan and run.

    Where another run changes the archive between plan and run, such as archive-drop, it is planned
    again.

    Raises:
        ConfigError, StoreError: as `archive`.
    """
    place = ArchiveDir(target)
    place.load_or_begin(settings.format)
    with place.locked():
        found = place.recover()
        if found is not None and found.pending is not None:
            finish_pending(spark, place, manifest=found, store=str(store), settings=settings)
    for _ in range(_PLANS_MAX - 1):
        with suppress(ArchiveBusyError):
            plan = plan_archive(store, target, settings)
            return run_archive(spark, plan, on_progress=on_progress)
    return run_archive(spark, plan_archive(store, target, settings), on_progress=on_progress)


def run_archive(
    spark: SparkSession,
    plan: ArchivePlan,
    *,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> ArchiveReport:
    """Do what a plan says.

    Raises:
        StoreError: a store cannot be read, the archive not be written, or it has changed since it
            was planned for.
    """
    at = utc_text((clock or SystemClock()).now_ms())

    def stage(writing: Writing, tasks: Sequence[ArchiveTask]) -> list[StagedFile]:
        groups = bins(tasks, _cores(spark))
        numbers = spark.range(0, len(groups), 1, len(groups))
        with watching(spark, on_progress):
            rows = numbers.mapInArrow(task_function(writing, groups), "file string").collect()
        return [msgspec.json.decode(row["file"], type=StagedFile) for row in rows]

    if plan.settings.format == PARQUET:
        return carry_out(plan, stage, at)
    place = ArchiveDir(plan.target)
    with place.locked():
        _check_unchanged(plan, place.recover())
        rows = 0
        if plan.ends:
            rows = run_table(spark, place, plan, at=at, on_progress=on_progress)
    return make_report(plan, [], rows)


def carry_out(
    plan: ArchivePlan,
    stage: Callable[[Writing, Sequence[ArchiveTask]], list[StagedFile]],
    at: str,
) -> ArchiveReport:
    """Have the files of a plan written, and make them part of the archive in one step.

    Raises:
        StoreError: as `run_archive`.
    """
    place = ArchiveDir(plan.target)
    with place.locked():
        _check_unchanged(plan, place.recover())
        if not plan.ends:
            return make_report(plan, [], 0)
        staged: list[StagedFile] = []
        if plan.tasks:
            work = place.new_work(plan.run)
            codec = plan.settings.compression.upper()
            writing = Writing(str(place.path), str(work), codec, plan.source())
            failpoint.hit("archive_stage.before")
            staged = stage(writing, plan.tasks)
            failpoint.hit("archive_stage.after")
            # Why: the files are on the disk, but not their names on every file system.
            place.ops.sync_dir(work)
        manifest = _next_manifest(plan, staged, at)
        place.commit(manifest)
        place.finish_commit(manifest)
    return make_report(plan, staged, sum(file.new_rows for file in staged))


def _check_unchanged(plan: ArchivePlan, now: Manifest | None) -> None:
    run, archive_id = (now.run, now.archive) if now is not None else (0, plan.manifest.archive)
    if (run, archive_id) != (plan.run - 1, plan.manifest.archive):
        raise ArchiveBusyError(
            f"{plan.target}: another run was faster; plan again (planned run {plan.run}, the"
            f" manifest has {run})"
        )
    if now is not None and now.pending is not None:
        raise StoreError(f"{plan.target}: a run was killed; `archive` finishes it first")


def _next_manifest(plan: ArchivePlan, staged: list[StagedFile], at: str) -> Manifest:
    """Return the manifest that makes the files of a run part of the archive."""
    files = {file.path: file for file in plan.manifest.files}
    copies: Counter[int] = Counter()
    for file in sorted(staged, key=lambda file: (file.task, file.staged)):
        task = plan.tasks[file.task]
        path = file.base
        if path is None:
            path = final_path(task, plan.run, file.date, copies[file.task])
            copies[file.task] += 1
        files[path] = ArchivedFile(
            path=path, broker=task.broker, topic=task.topic, run=plan.run, **described(file)
        )
    return next_manifest(plan, at, sum(file.new_rows for file in staged), files)


def _cores(spark: SparkSession) -> int:
    return _CONNECT_CORES if is_connect(spark) else spark.sparkContext.defaultParallelism
