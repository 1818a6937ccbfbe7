"""What a run of an archive leaves: the next manifest, and a report."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, structs

from rocketlake.metadata.archive_manifest import RUNS_KEPT, ArchivedFile, Gap, Manifest, RunNote
from rocketlake.spark.jobs.archive.parquet_file import StagedFile
from rocketlake.spark.jobs.archive.plan import ArchivePlan, gap_texts

_DAMAGE_SHOWN: Final = 20


class ArchiveReport(Struct, frozen=True, kw_only=True):
    """What a run has done."""

    target: str
    run: int
    rows: int
    files: int
    rewritten: int
    bytes: int
    left_out: int
    """Messages that the queues name and that could not be read, or were never there."""
    gaps: tuple[Gap, ...]
    problems: tuple[str, ...]
    odd_times: int = 0
    """Messages with a time that no calendar has: it is null, its number beside it."""
    damage: tuple[str, ...] = ()
    """What was passed over, the first places of it."""
    damaged: int = 0
    """How many places that were."""
    damaged_bytes: int = 0
    """Bytes of the log that were passed over, as far as units tell."""

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        if self.rows or self.files:
            again = f", {self.rewritten} of them rewritten" if self.rewritten else ""
            yield (
                f"run {self.run}: {self.rows} messages in {self.files} files ({self.bytes} bytes"
                f"{again}) in {self.target}"
            )
        else:
            yield f"nothing new for {self.target}"
        if self.left_out:
            yield f"{self.left_out} queue offsets have no message that can be read (table damage)"
        for text in self.damage:
            yield f"damage passed over: {text}"
        if self.damaged:
            more = f", {self.damaged - len(self.damage)} not shown"
            more = more if self.damaged > len(self.damage) else ""
            yield (
                f"{self.damaged} places of damage{more}, {self.damaged_bytes} bytes of records; the"
                " table damage lists all"
            )
        if self.odd_times:
            yield (
                f"{self.odd_times} messages have a time outside of the years 1 to 9999: it is null,"
                " its number is in store_timestamp_ms or born_timestamp_ms"
            )
        yield from gap_texts(self.gaps)
        yield from self.problems


def next_manifest(
    plan: ArchivePlan, at: str, rows: int, files: dict[str, ArchivedFile]
) -> Manifest:
    """Return the manifest after a run."""
    ends = plan.manifest.ends()
    ends.update({(end.broker, end.topic, end.queue_id): end for end in plan.ends})
    written = [file for file in files.values() if file.run == plan.run]
    note = RunNote(
        run=plan.run,
        at=at,
        rows=rows,
        bytes=sum(file.bytes for file in written),
        files=len(written),
        left_out=plan.messages - rows,
    )
    return structs.replace(
        plan.manifest,
        run=plan.run,
        covers=plan.covers,
        queues=tuple(ends[key] for key in sorted(ends)),
        files=tuple(files[path] for path in sorted(files)),
        gaps=(*plan.manifest.gaps, *plan.gaps),
        runs=(*plan.manifest.runs, note)[-RUNS_KEPT:],
        pending=None,
    )


def make_report(plan: ArchivePlan, staged: Sequence[StagedFile], rows: int) -> ArchiveReport:
    """Return what a run has done."""
    return ArchiveReport(
        target=plan.target,
        run=plan.run,
        rows=rows,
        files=len(staged),
        rewritten=sum(file.base is not None for file in staged),
        bytes=sum(file.bytes for file in staged),
        left_out=plan.messages - rows if plan.ends else 0,
        gaps=plan.gaps,
        problems=plan.problems,
        odd_times=sum(file.odd_times for file in staged),
        damage=tuple(text for file in staged for text in file.damage)[:_DAMAGE_SHOWN],
        damaged=sum(file.damaged for file in staged),
        damaged_bytes=sum(file.damaged_bytes for file in staged),
    )
