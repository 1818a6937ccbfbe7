"""Drops whole days from an archive: out of the manifest first, then the files.

Nothing that is dropped is archived again: queues keep the offset that is archived next. An open
query that was planned before goes on: the files stay below `_retired` for a grace period.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from rocketlake.clock import Clock, SystemClock
from rocketlake.errors import ConfigError, DiskFullError, StoreError
from rocketlake.metadata.archive_manifest import (
    MANIFEST,
    PARQUET,
    RUNS_KEPT,
    ArchivedFile,
    DropNote,
    Gap,
    Manifest,
    QueueEnd,
    RetiredFile,
    RunNote,
    wants_topic,
)
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.days import utc_text
from rocketlake.spark.reading.queue_spans import topic_hint

GRACE_MS: Final = 3_600_000
"""How long files that were dropped or merged stay for queries that were planned before."""

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class DroppedDay(Struct, frozen=True):
    """What is dropped of a day of a topic."""

    broker: str
    topic: str
    date: str
    files: int
    messages: int
    bytes: int


class DropPlan(Struct, frozen=True, kw_only=True):
    """What a drop would do, or has done."""

    target: str
    run: int
    before: str
    topics: tuple[str, ...]
    days: tuple[DroppedDay, ...]
    problems: tuple[str, ...] = ()
    is_done: bool = False

    @property
    def files(self) -> int:
        """How many files are dropped."""
        return sum(day.files for day in self.days)

    @property
    def messages(self) -> int:
        """How many messages are dropped."""
        return sum(day.messages for day in self.days)

    @property
    def bytes(self) -> int:
        """How large the files are."""
        return sum(day.bytes for day in self.days)

    def summary(self) -> dict[str, Any]:
        """Return what there is to say, for programs."""
        return {
            **structs.asdict(self),
            "days": [structs.asdict(day) for day in self.days],
            "files": self.files,
            "messages": self.messages,
            "bytes": self.bytes,
        }

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        if not self.days:
            yield f"{self.target} has no day before {self.before}"
        else:
            did = f"run {self.run}: dropped" if self.is_done else "would drop"
            yield (
                f"{did} {self.messages} messages in {self.files} files ({self.bytes} bytes) of days"
                f" before {self.before} from {self.target}"
            )
        for day in self.days:
            yield (
                f"{day.broker} {day.topic} {day.date}: {day.messages} messages, {day.files} files"
            )
        yield from self.problems


def plan_drop(target: str | Path, before: str, topics: Sequence[str] = ("*",)) -> DropPlan:
    """Plan a drop. Nothing is changed.

    Raises:
        ConfigError: `before` is no date, or the archive has no topic that is named.
        StoreError: the archive cannot be read, or its messages are in a table.
    """
    place = ArchiveDir(target)
    check_date(before)
    manifest = load_parquet(place)
    check_archived_topics(manifest, topics)
    return _plan(place, manifest, before, topics)


def drop_days(
    target: str | Path,
    before: str,
    topics: Sequence[str] = ("*",),
    *,
    grace_ms: int = GRACE_MS,
    clock: Clock | None = None,
) -> DropPlan:
    """Drop the days before a date (YYYY-MM-DD, UTC) from an archive; return what was dropped.

    The manifest is replaced first: from then on no reader plans with these days. Their files stay
    below `_retired` for `grace_ms`, and the first run after that deletes them; 0: at once.

    Raises:
        ConfigError, StoreError: as `plan_drop`; or the archive cannot be written.
    """
    plan_drop(target, before, topics)  # errors are raised before anything is locked
    clock = clock or SystemClock()
    place = ArchiveDir(target, clock=clock)
    with place.locked():
        manifest = check_parquet(place, place.recover())
        plan = _plan(place, manifest, before, topics)
        if plan.days:
            now_ms = clock.now_ms()
            fresh = _without(manifest, plan, utc_text(now_ms), now_ms + grace_ms)
            _commit(place, fresh)
            place.finish_commit(fresh)
    return structs.replace(plan, is_done=True)


def _commit(place: ArchiveDir, manifest: Manifest) -> None:
    try:
        place.commit(manifest)
    except DiskFullError as error:
        # Why not delete first: a manifest that names deleted files would fail every read.
        raise StoreError(
            f"{error}. Nothing was dropped: the new manifest is written before files are deleted."
            f" Free {error.wanted} bytes on this disk, then drop with a grace of 0 (--grace 0),"
            " which deletes the files at once"
        ) from error


def _plan(place: ArchiveDir, manifest: Manifest, before: str, topics: Sequence[str]) -> DropPlan:
    days: dict[tuple[str, str, str], list[ArchivedFile]] = defaultdict(list)
    kept: list[ArchivedFile] = []
    undated = 0
    for file in manifest.files:
        is_meant = any(wants_topic(pattern, file.topic) for pattern in topics)
        if is_meant and _is_before(file, before):
            days[file.date, file.topic, file.broker].append(file)
        else:
            kept.append(file)
        undated += is_meant and not _DAY.fullmatch(file.date)
    gone = [file for files in days.values() for file in files]
    problems = [f"{undated} files whose messages have no date are kept"] if undated else []
    problems += [
        f"the archive has no topic like {pattern!r}"
        for pattern in topics
        if pattern != "*" and not any(wants_topic(pattern, end.topic) for end in manifest.queues)
    ]
    problems += [
        f"{gap.broker} {gap.topic}/{gap.queue_id}: dropped messages among the offsets"
        f" {gap.from_offset} to {gap.to_offset - 1} lie behind others that stay; reads pass over"
        " them, also with failOnDataLoss = true"
        for gap in _holes(gone, kept, manifest.run + 1)
    ]
    return DropPlan(
        target=str(place.path),
        run=manifest.run + 1,
        before=before,
        topics=tuple(topics),
        days=tuple(
            DroppedDay(
                broker=broker,
                topic=topic,
                date=day,
                files=len(files),
                messages=sum(file.rows for file in files),
                bytes=sum(file.bytes for file in files),
            )
            for (day, topic, broker), files in sorted(days.items())
        ),
        problems=tuple(problems),
    )


def _is_before(file: ArchivedFile, before: str) -> bool:
    return _DAY.fullmatch(file.date) is not None and file.date < before


def _without(manifest: Manifest, plan: DropPlan, at: str, until: int) -> Manifest:
    """Return the manifest after a drop."""
    wanted = {(day.broker, day.topic, day.date) for day in plan.days}
    gone: list[ArchivedFile] = []
    kept: list[ArchivedFile] = []
    for file in manifest.files:
        is_gone = (file.broker, file.topic, file.date) in wanted
        (gone if is_gone else kept).append(file)
    counts = {"files": plan.files, "rows": plan.messages, "bytes": plan.bytes}
    note = RunNote(run=plan.run, at=at, job="drop", **counts)
    drop = DropNote(run=plan.run, at=at, before=plan.before, topics=plan.topics, **counts)
    return structs.replace(
        manifest,
        run=plan.run,
        files=tuple(kept),
        queues=tuple(_moved(manifest.queues, gone, kept)),
        gaps=(*manifest.gaps, *_holes(gone, kept, plan.run)),
        runs=(*manifest.runs, note)[-RUNS_KEPT:],
        retired=(*manifest.retired, *(RetiredFile(path=f.path, until=until) for f in gone)),
        drops=(*manifest.drops, drop)[-RUNS_KEPT:],
    )


def _moved(
    queues: Sequence[QueueEnd], gone: Collection[ArchivedFile], kept: Collection[ArchivedFile]
) -> Iterator[QueueEnd]:
    """Yield the queues; each that lost messages begins at its first remaining one."""
    touched = {(file.broker, file.topic, queue_id) for file in gone for queue_id in file.queues}
    firsts = _firsts(kept)
    for end in queues:
        where = (end.broker, end.topic, end.queue_id)
        if where not in touched:
            yield end
            continue
        first = firsts.get(where, end.next_offset)
        yield structs.replace(end, first_offset=max(end.first_offset, first))


def _holes(gone: Iterable[ArchivedFile], kept: Iterable[ArchivedFile], run: int) -> list[Gap]:
    """Return the offsets of dropped files that lie behind messages that stay.

    Why: the order of days is not that of offsets where a clock was set back, or a time is absurd.
    """
    firsts = _firsts(kept)
    found = []
    for file in gone:
        for queue_id, (first, last) in file.queues.items():
            begin = max(first, firsts.get((file.broker, file.topic, queue_id), last))
            if begin < last:
                found.append(
                    Gap(
                        broker=file.broker,
                        topic=file.topic,
                        queue_id=queue_id,
                        from_offset=begin,
                        to_offset=last,
                        run=run,
                    )
                )
    return found


def _firsts(files: Iterable[ArchivedFile]) -> dict[tuple[str, str, int], int]:
    """Return the first offset that files have of each queue."""
    firsts: dict[tuple[str, str, int], int] = {}
    for file in files:
        for queue_id, (first, _) in file.queues.items():
            where = (file.broker, file.topic, queue_id)
            firsts[where] = min(firsts.get(where, first), first)
    return firsts


# --- what drop and compact share ------------------------------------------------------------------


def load_parquet(place: ArchiveDir) -> Manifest:
    """Read the manifest of an archive of Parquet files.

    Raises:
        StoreError: there is none, or the messages are in a table.
    """
    return check_parquet(place, place.load())


def check_parquet(place: ArchiveDir, found: Manifest | None) -> Manifest:
    """Refuse anything but an archive of Parquet files.

    Raises:
        StoreError: there is none, or the messages are in a table.
    """
    if found is None:
        raise StoreError(
            f"{place.path} has no {MANIFEST}; name the directory that `rocketlake archive` wrote"
        )
    if found.format != PARQUET:
        raise StoreError(
            f"{place.path} is an archive in the format {found.format}: its messages are in a table,"
            " which the format's own commands maintain (DELETE, OPTIMIZE, VACUUM,"
            " rewrite_data_files)"
        )
    return found


def check_archived_topics(manifest: Manifest, topics: Sequence[str]) -> None:
    """Refuse names of topics that an archive does not have.

    Raises:
        ConfigError: one is not there, or none is named.
    """
    if not topics:
        raise ConfigError('topics is empty; name topics, or "*" for all')
    known = {end.topic for end in manifest.queues}
    for name in topics:
        if not set(name) & set("*?[") and name not in known:
            raise ConfigError(f"the archive has no topic {name!r}; {topic_hint(name, known)}")


def check_date(text: str) -> None:
    """Refuse a text that is not a date.

    Raises:
        ConfigError: it is not.
    """
    try:
        is_date = _DAY.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        is_date = False
    if not is_date:
        raise ConfigError(f"{text!r} is not a date; wanted a day (UTC) like 2026-01-31")
