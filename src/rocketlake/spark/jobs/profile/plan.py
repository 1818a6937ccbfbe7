"""What a profile will read: looked up on the driver, before Spark reads anything."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from rocketlake.model.queues import QueueKey
from rocketlake.model.size_text import size_text
from rocketlake.spark.jobs.profile.number_text import plural
from rocketlake.spark.jobs.profile.time_axis import span_text, step_for, utc_text
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.queue_spans import check_topics, wanted_queues
from rocketlake.spark.reading.stores import StoreSet
from rocketlake.store.offline import OfflineStore

TOP = 20


class ProfileSettings(Struct, frozen=True, kw_only=True):
    """What of a store is looked at, and how closely."""

    topics: tuple[str, ...] = ()
    from_time: int | None = None
    to_time: int | None = None
    top: int = TOP
    with_keys: bool = True
    commit_log_path: str | None = None
    options: str | None = None

    def selection(self) -> str:
        """Say what is left out; nothing if nothing is."""
        parts = []
        if self.topics:
            parts.append(f"only {', '.join(self.topics)}")
        if self.from_time is not None:
            parts.append(f"stored at {utc_text(self.from_time)} or later")
        if self.to_time is not None:
            parts.append(f"stored before {utc_text(self.to_time)}")
        return "; ".join(parts)


class ProfilePlan(Struct, frozen=True, kw_only=True):
    """What will be read."""

    stores: list[str]
    source: dict[str, str]
    settings: ProfileSettings
    log_bytes: int
    queues: int
    topics: int
    span_ms: tuple[int, int] | None
    step_ms: int
    notes: list[str]

    def lines(self) -> list[str]:
        """Say it, for people."""
        span = "no messages"
        if self.span_ms is not None:
            begin, end = self.span_ms
            span = f"{utc_text(begin, 1000)} to {utc_text(end, 1000)} UTC"
            span += f", plotted by {span_text(self.step_ms)}"
        passes = "one pass, and one more over keys" if self.settings.with_keys else "one pass"
        lines = [
            f"read {', '.join(self.stores)}: {size_text(self.log_bytes)} of log,"
            f" {plural(self.topics, 'topic')}, {plural(self.queues, 'queue')}",
            span,
            f"{passes}; bodies are not read; tables of the {self.settings.top} biggest",
        ]
        if self.settings.selection():
            lines.append(self.settings.selection())
        return lines + [f"note: {note}" for note in self.notes]


def plan_profile(stores: Sequence[str], settings: ProfileSettings | None = None) -> ProfilePlan:
    """Look at stores: what there is to read, and from which time to which.

    Raises:
        StoreNotFoundError: one is not there.
        ConfigError: settings are wrong, or contradict the files.
    """
    settings = settings or ProfileSettings()
    source = _source(stores, settings)
    options = SourceOptions.parse(source)
    spans: list[tuple[int, int]] = []
    queues: list[QueueKey] = []
    notes: list[str] = []
    log_bytes = 0
    with StoreSet.open(options) as opened:
        check_topics(opened.stores, options)
        for store in opened.stores.values():
            wanted = wanted_queues(store, options)
            queues += wanted
            log_bytes += store.max_offset - store.min_offset
            spans += _spans(store, wanted)
            notes += _notes(store)
    span = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
    span = _cut(span, settings)
    return ProfilePlan(
        stores=[path for _, path in options.paths],
        source=source,
        settings=settings,
        log_bytes=log_bytes,
        queues=len(queues),
        topics=len({key.topic for key in queues}),
        span_ms=span,
        step_ms=step_for(span[1] - span[0]) if span else step_for(0),
        notes=notes,
    )


def _source(stores: Sequence[str], settings: ProfileSettings) -> dict[str, str]:
    """Spell what is wanted as options of the source."""
    source = {
        "paths": msgspec.json.encode(list(stores)).decode(),
        # An operator at night wants what can be read, and to be told of the rest.
        "onDamage": "skip",
        "failOnDataLoss": "false",
    }
    given = {
        "topics": ",".join(settings.topics) or None,
        "commitLogPath": settings.commit_log_path,
        "options": settings.options,
    }
    source.update({name: value for name, value in given.items() if value is not None})
    if settings.from_time is not None:
        source["startingTimestamp"] = str(settings.from_time)
        source["startingOffsetsByTimestampStrategy"] = "latest"
    if settings.to_time is not None:
        source["endingTimestamp"] = str(settings.to_time)
    return source


def _spans(store: OfflineStore, wanted: Sequence[QueueKey]) -> list[tuple[int, int]]:
    """Return the store times of the first and the last message of each queue that has any."""
    bounds = (store.time_bounds(key) for key in wanted)
    return [(first, last) for first, last in bounds if first is not None and last is not None]


def _cut(span: tuple[int, int] | None, settings: ProfileSettings) -> tuple[int, int] | None:
    if span is None:
        return None
    begin = max(span[0], settings.from_time or span[0])
    end = min(span[1], settings.to_time or span[1])
    return (begin, max(begin, end))


def _notes(store: OfflineStore) -> list[str]:
    root = store.directory.root
    notes = []
    if store.traits.held_by is not None:
        notes.append(f"{root} is in use by process {store.traits.held_by}: a view of this moment")
    elif not store.traits.is_clean:
        notes.append(f"{root} was not shut down cleanly: shown as recovery would leave it")
    findings = list(store.damage.findings)
    if findings:
        more = f" (and {len(findings) - 1:,} more)" if len(findings) > 1 else ""
        notes.append(f"damage is left out: {findings[0]}{more}; rocketlake verify shows all of it")
    return notes
