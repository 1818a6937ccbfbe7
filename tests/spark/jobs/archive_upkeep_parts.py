"""Parts of tests of drop and compact: archives with small files of several days."""

from collections.abc import Sequence
from pathlib import Path

from archive_parts import GrowingStore, archive_here

from rocketlake.spark.jobs.archive.compaction import (
    MergePlan,
    MergeTask,
    MergeWriting,
    carry_out_merge,
    merge_files,
)
from rocketlake.spark.jobs.archive.parquet_file import StagedFile
from rocketlake.spark.jobs.archive.plan import ArchiveSettings

SMALL = ArchiveSettings(small_bytes=1)
"""Runs that leave every file as it is, so that small ones pile up."""


def merge_here(writing: MergeWriting, tasks: Sequence[MergeTask]) -> list[StagedFile]:
    """Merge files in this process."""
    return [merge_files(task, writing) for task in tasks]


def compact_here(target: Path, settings: ArchiveSettings | None = None, **given: int) -> MergePlan:
    """Run a compaction without Spark."""
    return carry_out_merge(target, merge_here, settings=settings, **given)  # type: ignore[arg-type]


def many_small_files(place: Path, runs: int = 4, each: int = 300) -> GrowingStore:
    """Make a store, and an archive of two days with files from each of several runs."""
    store = GrowingStore(place / "broker-a", mapped_file_size_commit_log=1 << 18)
    for _ in range(runs):
        store.grow(each)
        archive_here(store.path, place / "archive", SMALL)
    return store


def parquet_files(target: Path) -> list[Path]:
    """Return the files that a program sees which lists the directory."""
    return [
        path
        for path in target.rglob("*.parquet")
        if not any(part.startswith("_") for part in path.relative_to(target).parts)
    ]
