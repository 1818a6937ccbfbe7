"""ArchivePlan: what a run would archive, found out without changing anything."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct, structs

from rocketlake.errors import ConfigError
from rocketlake.metadata.archive_manifest import (
    PARQUET,
    ArchivedFile,
    Gap,
    Manifest,
    QueueEnd,
    partition_path,
    wants_topic,
)
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq
from rocketlake.spark.jobs.archive.archive_dir import ArchiveDir
from rocketlake.spark.jobs.archive.days import cut_by_day
from rocketlake.spark.jobs.archive.table_marks import check_table_options
from rocketlake.spark.reading.archive.boundary import is_same_queue, last_physical
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import Partition
from rocketlake.spark.reading.planning import plan_spans
from rocketlake.spark.reading.queue_spans import QueueSpan, topic_hint
from rocketlake.spark.reading.stores import StoreSet
from rocketlake.store.offline import OfflineStore, QueueView

EVERY_TOPIC: Final = ("*",)
TARGET_BYTES: Final = 128 << 20
_SAMPLE: Final = 64
_BIN_BYTES: Final = 4 << 20
_TASKS_MAX: Final = 64  # files that one Spark task makes, about
_GUESSED_RATIO: Final = 0.5
"""Bytes of Parquet for a byte of the log, before anything is known."""


class ArchiveSettings(Struct, frozen=True, kw_only=True):
    """How files are made."""

    topics: tuple[str, ...] = EVERY_TOPIC
    """Names, or patterns such as `order*`."""
    target_bytes: int = TARGET_BYTES
    """How large a file is to become, about."""
    small_bytes: int = 0
    """A file below this size is rewritten with the messages that follow; 0: half the target."""
    compression: str = "zstd"
    format: str = PARQUET
    table_options: dict[str, str] = {}
    source_options: dict[str, str] = {}
    """Options of the source: onDamage, commitLogPath, options."""

    @property
    def small(self) -> int:
        """Below which size a file is small."""
        return self.small_bytes or self.target_bytes // 2

    def wants(self, topic: str) -> bool:
        """Tell whether a topic is to be archived."""
        return any(wants_topic(pattern, topic) for pattern in self.topics)


class ArchiveTask(Struct, frozen=True):
    """What becomes one file, mostly: parts of the log, and the small file they are added to."""

    number: int
    broker: str
    topic: str
    date: str
    parts: tuple[Partition, ...]
    weight: int
    """Bytes of the log, about."""
    base: ArchivedFile | None = None


class DayPlan(Struct, frozen=True):
    """What a run would add to a day of a topic."""

    broker: str
    topic: str
    date: str
    messages: int
    files: int
    merges: int


class ArchivePlan(Struct, frozen=True, kw_only=True):
    """What a run would do."""

    store: str
    target: str
    run: int
    settings: ArchiveSettings
    manifest: Manifest
    ends: tuple[QueueEnd, ...] = ()
    """Of every queue of the run, as they will be."""
    tasks: tuple[ArchiveTask, ...] = ()
    days: tuple[DayPlan, ...] = ()
    gaps: tuple[Gap, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def messages(self) -> int:
        """How many messages are new, as far as queue offsets tell."""
        return sum(day.messages for day in self.days)

    @property
    def covers(self) -> tuple[str, ...]:
        """The topics that the archive covers, those of earlier runs included."""
        return tuple(dict.fromkeys((*self.manifest.covers, *self.settings.topics)))

    def source(self) -> SourceOptions:
        """Return the options the stores are read with."""
        return source_options(self.store, self.settings)

    def summary(self) -> dict[str, Any]:
        """Return what there is to say, for programs."""
        return {
            "target": self.target,
            "run": self.run,
            "messages": self.messages,
            "days": [structs.asdict(day) for day in self.days],
            "gaps": [structs.asdict(gap) for gap in self.gaps],
            "notes": [*self._pending_texts(), *gap_texts(self.gaps), *self.problems],
        }

    def lines(self) -> Iterator[str]:
        """Say it in words."""
        yield f"run {self.run} would archive {self.messages} messages into {self.target}"
        for day in self.days:
            merged = f", {day.merges} of them rewritten" if day.merges else ""
            yield (
                f"{day.broker} {day.topic} {day.date}: {day.messages} messages,"
                f" {day.files} files{merged}"
            )
        yield from self._pending_texts()
        yield from gap_texts(self.gaps)
        yield from self.problems

    def _pending_texts(self) -> Iterator[str]:
        if self.manifest.pending is not None:
            yield (
                f"run {self.manifest.pending.run} was killed and is finished first: its messages"
                " count here, and may be in the table already"
            )


def gap_texts(gaps: Iterable[Gap]) -> Iterator[str]:
    """Say in words what is missing."""
    for gap in gaps:
        yield (
            f"gap: {gap.to_offset - gap.from_offset} messages of {gap.broker}"
            f" {gap.topic}/{gap.queue_id} expired before they were archived"
            f" ({gap.from_offset} to {gap.to_offset - 1})"
        )


def source_options(store: str, settings: ArchiveSettings) -> SourceOptions:
    """Return the options that stores are read with.

    Raises:
        ConfigError: one of them is wrong.
    """
    return SourceOptions.parse({"path": store, "topicPattern": ".*", **settings.source_options})


def plan_archive(
    store: str | Path,
    target: str | Path,
    settings: ArchiveSettings | None = None,
    *,
    until: Sequence[QueueEnd] | None = None,
) -> ArchivePlan:
    """Work out what the next run would archive, `until` given ends at most. Nothing is changed.

    Raises:
        ConfigError: an option is wrong, or no store has a topic that is named.
        StoreError: a store or the archive cannot be read.
    """
    settings = settings or ArchiveSettings()
    check_settings(settings)
    archive = ArchiveDir(target)
    manifest = archive.load_or_begin(settings.format)
    options = source_options(str(store), settings)
    ratio = _ratio(manifest.files)
    sized = structs.replace(
        options, max_partition_bytes=max(int(settings.target_bytes / ratio), 1), min_partitions=0
    )
    with StoreSet.open(options) as stores:
        _check_topics(stores.stores.values(), settings)
        planner = _Planner(manifest, settings, sized, until)
        planner.problems += _idle_patterns(stores.stores.values(), settings)
        for broker, view in stores.stores.items():
            planner.add(broker, view)
        stores.check_damage()
    return ArchivePlan(
        store=str(store),
        target=str(archive.path),
        run=manifest.run + 1,
        settings=settings,
        manifest=manifest,
        ends=tuple(planner.ends),
        tasks=tuple(planner.tasks),
        days=tuple(planner.days),
        gaps=tuple(planner.gaps),
        problems=tuple(planner.problems),
    )


class _Planner:
    """Collects the plan, store by store."""

    def __init__(
        self,
        manifest: Manifest,
        settings: ArchiveSettings,
        options: SourceOptions,
        until: Sequence[QueueEnd] | None,
    ) -> None:
        self._until = None
        if until is not None:
            self._until = {(end.broker, end.topic, end.queue_id): end for end in until}
        self._run = manifest.run + 1
        self._before = manifest.ends()
        self._settings = settings
        self._options = options
        self._small = _small_files(manifest.files, settings)
        self.ends: list[QueueEnd] = []
        self.tasks: list[ArchiveTask] = []
        self.days: list[DayPlan] = []
        self.gaps: list[Gap] = []
        self.problems: list[str] = []

    def add(self, broker: str, store: OfflineStore) -> None:
        """Plan what is new in a store."""
        by_day: dict[tuple[str, str], list[QueueSpan]] = defaultdict(list)
        for key, queue in store.queues.items():
            if not self._settings.wants(key.topic):
                continue
            span = self._span(broker, key, queue)
            if span is not None:
                for date, cut in cut_by_day(store, span):
                    by_day[key.topic, date].append(cut)
        for (topic, date), spans in sorted(by_day.items()):
            self._add_day(broker, store, (topic, date), spans)

    def _span(self, broker: str, key: QueueKey, queue: QueueView) -> QueueSpan | None:
        """Return the new messages of a queue; note its end, a gap, or that it was created again."""
        where = (broker, key.topic, key.queue_id)
        first, end = queue.min_offset, max(queue.max_offset, queue.min_offset)
        if self._until is not None:
            limit = self._until.get(where)
            if limit is None:
                return None
            end = max(min(end, limit.next_offset), first)
        before = self._before.get(where)
        if before is not None:
            if not is_same_queue(queue, before):
                self.problems.append(
                    f"{broker} {key} was created again (it ends at {end}, archived up to"
                    f" {before.next_offset}) and is left out; archive it into another directory"
                )
                return None
            if before.next_offset >= end:
                return None
            self._note_gap(before, first)
            first = max(first, before.next_offset)
        self.ends.append(
            QueueEnd(
                broker=broker,
                topic=key.topic,
                queue_id=key.queue_id,
                first_offset=before.first_offset if before is not None else first,
                next_offset=end,
                last_physical_offset=last_physical(queue, end),
            )
        )
        return QueueSpan(key.topic, key.queue_id, first, end) if first < end else None

    def _note_gap(self, before: QueueEnd, first: int) -> None:
        if first > before.next_offset:
            self.gaps.append(
                Gap(
                    broker=before.broker,
                    topic=before.topic,
                    queue_id=before.queue_id,
                    from_offset=before.next_offset,
                    to_offset=first,
                    run=self._run,
                )
            )

    def _add_day(
        self, broker: str, store: OfflineStore, day: tuple[str, str], spans: Sequence[QueueSpan]
    ) -> None:
        topic, date = day
        bases = self._small.pop((broker, topic, date), [])
        parts = plan_spans(store, broker, spans, self._options)
        messages = sum(_units(store.queues[span.key], span) for span in spans)
        size = sum(_size(store.queues[span.key], span) for span in spans)
        groups = _grouped(parts, -(-size // self._options.max_partition_bytes))
        used = bases[: len(groups)]
        for group, base in zip(groups, [*used, *[None] * (len(groups) - len(used))], strict=True):
            weight = size // len(groups) + (base.log_bytes if base is not None else 0)
            number = len(self.tasks)
            self.tasks.append(ArchiveTask(number, broker, topic, date, group, weight, base))
        self.days.append(DayPlan(broker, topic, date, messages, len(groups), len(used)))


def _grouped(parts: Sequence[Partition], count: int) -> list[tuple[Partition, ...]]:
    """Put neighbours together: the source cuts for many cores, an archive for few files."""
    count = min(max(count, 1), len(parts))
    edges = [len(parts) * number // max(count, 1) for number in range(count + 1)]
    return [tuple(parts[begin:end]) for begin, end in pairwise(edges)]


def _units(queue: QueueView, span: QueueSpan) -> int:
    """Return how many records a span has; a unit of a batch queue stands for one with several."""
    if not queue.kind.is_batch:
        return span.to_offset - span.from_offset
    return queue.index_of(span.to_offset) - queue.index_of(span.from_offset)


def _size(queue: QueueView, span: QueueSpan) -> int:
    """Return about how many bytes of the log a span has, by a sample of its units."""
    first, end = queue.index_of(span.from_offset), queue.index_of(span.to_offset)
    looks = {first, (first + end) // 2, max(first, end - _SAMPLE)}
    sizes = np.concatenate([queue.units(at, min(_SAMPLE, end - at))["size"] for at in looks])
    return int(sizes.clip(0).mean() * (end - first)) if len(sizes) else 0


def _ratio(files: Sequence[ArchivedFile]) -> float:
    """Return how many bytes of Parquet a byte of the log becomes."""
    written, log_bytes = sum(f.bytes for f in files), sum(f.log_bytes for f in files)
    if written < 1 << 20 or not log_bytes:
        return _GUESSED_RATIO
    return min(max(written / log_bytes, 1 / 16), 2.0)


def _small_files(
    files: Iterable[ArchivedFile], settings: ArchiveSettings
) -> dict[tuple[str, str, str], list[ArchivedFile]]:
    found: dict[tuple[str, str, str], list[ArchivedFile]] = defaultdict(list)
    for file in files:
        if file.bytes < settings.small:
            found[file.broker, file.topic, file.date].append(file)
    return {key: sorted(held, key=lambda f: f.bytes) for key, held in found.items()}


def check_settings(settings: ArchiveSettings) -> None:
    """Refuse settings that make no sense.

    Raises:
        ConfigError: one does.
    """
    if not settings.topics:
        raise ConfigError('topics is empty; name topics, or "*" for all')
    if settings.target_bytes < 1 or not 0 <= settings.small_bytes <= settings.target_bytes:
        raise ConfigError(
            f"target size {settings.target_bytes} and small size {settings.small_bytes}: wanted a"
            " target above 0, and a small size of at most the target"
        )
    codecs = ("zstd", "snappy", "gzip", "lz4", "none")
    if settings.compression not in codecs:
        raise ConfigError(
            f"compression {settings.compression!r}: wanted one of {', '.join(codecs)}"
        )
    check_table_options(settings.format, settings.table_options)


def _check_topics(stores: Iterable[OfflineStore], settings: ArchiveSettings) -> None:
    topics = {key.topic for store in stores for key in store.queues}
    for name in settings.topics:
        if is_lmq(name):
            raise ConfigError(
                f"{name!r} is a light queue: its messages are those of other topics; archive these"
            )
        is_pattern = bool(set(name) & set("*?["))
        if not is_pattern and name not in topics:
            raise ConfigError(f"no store has a topic {name!r}; {topic_hint(name, topics)}")


def _idle_patterns(stores: Iterable[OfflineStore], settings: ArchiveSettings) -> Iterator[str]:
    """Yield a text for each pattern that matches no topic: it may be misspelled."""
    topics = {key.topic for store in stores for key in store.queues}
    for pattern in settings.topics:
        if pattern not in EVERY_TOPIC and not any(wants_topic(pattern, t) for t in topics):
            yield f"no store has a topic like {pattern!r}"


def bins(tasks: Sequence[ArchiveTask], cores: int) -> list[list[ArchiveTask]]:
    """Put small tasks together: a Spark task costs more than writing a few messages."""
    total = sum(task.weight for task in tasks)
    room = max(math.ceil(total / max(cores * 4, 1)), _BIN_BYTES)
    found: list[list[ArchiveTask]] = []
    left = 0
    for task in sorted(tasks, key=lambda task: -task.weight):
        if not found or left < task.weight:
            found.append([])
            left = room
        found[-1].append(task)
        left -= max(task.weight, _BIN_BYTES // _TASKS_MAX)
    return found


def final_path(task: ArchiveTask, run: int, date: str, copy: int) -> str:
    """Return the name a new file of a run gets."""
    place = partition_path(task.topic, date)
    suffix = f"-{copy}" if copy else ""
    return f"{place}/part-{run:06d}-{task.number:05d}{suffix}.parquet"
