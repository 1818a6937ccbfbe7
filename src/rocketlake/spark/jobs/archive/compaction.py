"""Merges small files of an archive: those of a broker, topic and day become few large ones.

No message is added or lost: a merged file has the rows of its sources, one source behind the other.
The manifest names either the sources or the merged file. The sources stay below `_retired` for a
grace period, for queries that were planned before.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct, structs
from pyspark.sql import SparkSession

from rocketlake import failpoint
from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.metadata.archive_manifest import (
    RUNS_KEPT,
    ArchivedFile,
    Manifest,
    RetiredFile,
    RunNote,
    partition_path,
)
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.days import utc_text
from rocketlake.spark.jobs.archive.drop import GRACE_MS, check_archived_topics, load_parquet
from rocketlake.spark.jobs.archive.parquet_file import ParquetFile, StagedFile, read_batches, sum_of
from rocketlake.spark.jobs.archive.plan import ArchiveSettings, check_settings
from rocketlake.spark.jobs.archive.tasks import FILE_SCHEMA, described
from rocketlake.spark.progress import OnProgress, watching
from rocketlake.spark.schema import arrow_schema

Stage = Callable[["MergeWriting", Sequence["MergeTask"]], list[StagedFile]]
_ENOUGH: Final = 2


class MergeTask(Struct, frozen=True):
    """What becomes one file."""

    number: int
    sources: tuple[ArchivedFile, ...]

    @property
    def bytes(self) -> int:
        """How large the sources are."""
        return sum(file.bytes for file in self.sources)


class MergedDay(Struct, frozen=True):
    """What happens to a day of a topic."""

    broker: str
    topic: str
    date: str
    merged: int
    into: int
    bytes: int


class MergePlan(Struct, frozen=True, kw_only=True):
    """What a compaction would do, or has done."""

    target: str
    run: int
    settings: ArchiveSettings
    manifest: Manifest
    tasks: tuple[MergeTask, ...]
    days: tuple[MergedDay, ...]
    bytes_after: int = 0
    """How large the merged files are, when it is done."""
    is_done: bool = False

    def summary(self) -> dict[str, Any]:
        """Return what there is to say, for programs."""
        return {
            "target": self.target,
            "run": self.run,
            "is_done": self.is_done,
            "merged": sum(day.merged for day in self.days),
            "into": len(self.tasks),
            "bytes": sum(day.bytes for day in self.days),
            "bytes_after": self.bytes_after,
            "days": [structs.asdict(day) for day in self.days],
        }

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        merged, size = sum(day.merged for day in self.days), sum(day.bytes for day in self.days)
        if not self.tasks:
            yield f"{self.target} has no small files to merge"
        elif self.is_done:
            yield (
                f"run {self.run}: merged {merged} files ({size} bytes) into {len(self.tasks)}"
                f" ({self.bytes_after} bytes) in {self.target}"
            )
        else:
            yield f"would merge {merged} files ({size} bytes) into {len(self.tasks)}"
        for day in self.days:
            yield f"{day.broker} {day.topic} {day.date}: {day.merged} files into {day.into}"


class MergeWriting(Struct, frozen=True):
    """The common arguments of the tasks of a run."""

    archive: str
    work: str
    compression: str


def plan_archive_compaction(
    target: str | Path, settings: ArchiveSettings | None = None
) -> MergePlan:
    """Work out which files would be merged. Nothing is changed.

    Raises:
        ConfigError: a setting makes no sense, or the archive has no topic that is named.
        StoreError: the archive cannot be read, or its messages are in a table.
    """
    settings = settings or ArchiveSettings()
    check_settings(settings)
    place = ArchiveDir(target)
    return _plan(place, load_parquet(place), settings)


def compact_archive(
    spark: SparkSession,
    target: str | Path,
    *,
    settings: ArchiveSettings | None = None,
    grace_ms: int = GRACE_MS,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> MergePlan:
    """Merge the small files of an archive; return what was merged.

    Of the settings `topics`, `target_bytes`, `small_bytes` and `compression` count. The files that
    were merged stay below `_retired` for `grace_ms`, and the first run after that deletes them.

    Raises:
        ConfigError, StoreError: as `plan_archive_compaction`; or a file is damaged, or the archive
            cannot be written.
    """
    if dry_run:
        return plan_archive_compaction(target, settings)

    def stage(writing: MergeWriting, tasks: Sequence[MergeTask]) -> list[StagedFile]:
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        with watching(spark, on_progress):
            rows = numbers.mapInArrow(merging(writing, list(tasks)), "file string").collect()
        return [msgspec.json.decode(row["file"], type=StagedFile) for row in rows]

    return carry_out_merge(target, stage, settings=settings, grace_ms=grace_ms)


def carry_out_merge(
    target: str | Path,
    stage: Stage,
    *,
    settings: ArchiveSettings | None = None,
    grace_ms: int = GRACE_MS,
    clock: Clock | None = None,
) -> MergePlan:
    """Have files merged, and make the merged ones part of the archive in one step.

    Raises:
        ConfigError, StoreError: as `compact_archive`.
    """
    clock = clock or SystemClock()
    settings = settings or ArchiveSettings()
    plan_archive_compaction(target, settings)  # errors are raised before anything is locked
    place = ArchiveDir(target, clock=clock)
    with place.locked():
        place.recover()
        plan = _plan(place, load_parquet(place), settings)
        if not plan.tasks:
            return structs.replace(plan, is_done=True)
        work = place.new_work(plan.run)
        codec = settings.compression.upper()
        failpoint.hit("archive_stage.before")
        staged = stage(MergeWriting(str(place.path), str(work), codec), plan.tasks)
        failpoint.hit("archive_stage.after")
        # Why: the files are on the disk, but not their names on every file system.
        place.ops.sync_dir(work)
        now_ms = clock.now_ms()
        manifest = _next_manifest(plan, staged, utc_text(now_ms), now_ms + grace_ms)
        place.commit(manifest)
        place.finish_commit(manifest)
    return structs.replace(plan, is_done=True, bytes_after=sum(file.bytes for file in staged))


def _plan(place: ArchiveDir, manifest: Manifest, settings: ArchiveSettings) -> MergePlan:
    check_archived_topics(manifest, settings.topics)
    by_day: dict[tuple[str, str, str], list[ArchivedFile]] = defaultdict(list)
    for file in manifest.files:
        if file.bytes < settings.small and settings.wants(file.topic):
            by_day[file.topic, file.date, file.broker].append(file)
    tasks: list[MergeTask] = []
    days: list[MergedDay] = []
    for (topic, date, broker), files in sorted(by_day.items()):
        groups = list(_groups(files, settings.target_bytes))
        merged = [file for group in groups for file in group]
        for group in groups:
            tasks.append(MergeTask(len(tasks), tuple(group)))
        if groups:
            size = sum(file.bytes for file in merged)
            days.append(MergedDay(broker, topic, date, len(merged), len(groups), size))
    return MergePlan(
        target=str(place.path),
        run=manifest.run + 1,
        settings=settings,
        manifest=manifest,
        tasks=tuple(tasks),
        days=tuple(days),
    )


def _groups(files: Iterable[ArchivedFile], target_bytes: int) -> Iterator[list[ArchivedFile]]:
    """Put files together, in the order of their messages, up to about the target size."""
    group: list[ArchivedFile] = []
    for file in sorted(files, key=lambda f: (min(first for first, _ in f.queues.values()), f.path)):
        if group and sum(held.bytes for held in group) + file.bytes > target_bytes:
            if len(group) >= _ENOUGH:
                yield group
            group = []
        group.append(file)
    if len(group) >= _ENOUGH:
        yield group


def _next_manifest(plan: MergePlan, staged: Sequence[StagedFile], at: str, until: int) -> Manifest:
    """Return the manifest that has the merged files in the place of their sources."""
    files = {file.path: file for file in plan.manifest.files}
    retired = list(plan.manifest.retired)
    by_task = {file.task: file for file in staged}
    for task in plan.tasks:
        merged, first = by_task[task.number], task.sources[0]
        for source in task.sources:
            del files[source.path]
            retired.append(RetiredFile(path=source.path, until=until))
        place = partition_path(first.topic, first.date)
        path = f"{place}/part-{plan.run:06d}-{task.number:05d}-merged.parquet"
        files[path] = ArchivedFile(
            path=path, broker=first.broker, topic=first.topic, run=plan.run, **described(merged)
        )
    note = RunNote(
        run=plan.run,
        at=at,
        rows=sum(file.rows for file in staged),
        bytes=sum(file.bytes for file in staged),
        files=len(staged),
        job="compact",
    )
    return structs.replace(
        plan.manifest,
        run=plan.run,
        files=tuple(files[path] for path in sorted(files)),
        runs=(*plan.manifest.runs, note)[-RUNS_KEPT:],
        retired=tuple(retired),
    )


# --- on executors ---------------------------------------------------------------------------------


def merging(
    writing: MergeWriting, tasks: list[MergeTask]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what Spark runs: takes numbers of tasks, gives what was written as JSON."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                text = msgspec.json.encode(merge_files(tasks[number], writing)).decode()
                yield pa.RecordBatch.from_pydict({"file": pa.array([text], pa.string())})

    return run


def merge_files(task: MergeTask, writing: MergeWriting, ops: FileOps | None = None) -> StagedFile:
    """Write the rows of the sources into one file below `_work`.

    Raises:
        StoreError: a source is not what the manifest says of it.
    """
    schema = arrow_schema(FILE_SCHEMA)
    path = Path(writing.work) / f"{task.number:05d}-{uuid.uuid4().hex[:12]}.parquet"
    file = ParquetFile(ops or PosixFileOps(), path, schema, writing.compression)
    try:
        for source in task.sources:
            for batch in _checked_batches(Path(writing.archive), source):
                file.add(batch.cast(schema))
        fields = file.finish()
    except BaseException:
        file.abandon()
        raise
    rows = sum(source.rows for source in task.sources)
    if fields["rows"] != rows:
        raise StoreError(f"merged {fields['rows']} rows of {rows}; nothing was changed")
    return StagedFile(
        task=task.number,
        staged=str(path.relative_to(writing.archive)),
        date=task.sources[0].date,
        base=None,
        new_rows=0,
        **fields,
    )


def _checked_batches(archive: Path, source: ArchivedFile) -> Iterator[pa.RecordBatch]:
    words = f"{source.path} of the archive cannot be merged"
    path = archive / source.path
    try:
        if sum_of(path) != source.sha256:
            raise StoreError(f"{words}: its sha256 is not that of the manifest; restore it")
        yield from read_batches(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{words}: {error}; restore it from a copy") from error
