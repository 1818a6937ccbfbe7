"""From the counts of a pass to the tables of a profile."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct
from pyspark.sql import Row

from rocketlake.spark.jobs.profile import bins
from rocketlake.spark.jobs.profile.findings import Evidence, find
from rocketlake.spark.jobs.profile.report import Profile
from rocketlake.spark.jobs.profile.scan import Facts
from rocketlake.spark.jobs.profile.tables import (
    BinRow,
    GroupRow,
    KeyRow,
    QueueRow,
    Summary,
    TagRow,
    TimeRow,
    TopicRow,
    TopicTimeRow,
)
from rocketlake.spark.jobs.profile.time_axis import STEPS_MAX, utc_text

_SHARES: Final = (0.5, 0.9, 0.99)
_PLOTTED: Final = 20  # topics that are counted over time
_TOPICS_MAX: Final = 1000
_QUEUES_MAX: Final = 5000
_WILD: Final = 4  # so many times the log's own span are not plotted


class Ask(Struct, frozen=True, kw_only=True):
    """What a profile is made of, beside the counts."""

    store: str
    stores: list[str]
    selection: str
    step_ms: int
    span_ms: tuple[int, int] | None
    top: int
    notes: list[str]


class _Axis(NamedTuple):
    """Time as plots have it: steps from `first` to `last`, each of `fold` buckets of the pass."""

    step_ms: int
    fold: int
    first: int
    last: int

    @property
    def window(self) -> tuple[int, int]:
        """The buckets of the pass that are plotted."""
        return self.first * self.fold, (self.last + 1) * self.fold - 1

    def starts(self) -> Iterable[tuple[int, int]]:
        """Each step's number and time."""
        return ((step, step * self.step_ms) for step in range(self.first, self.last + 1))


def build(facts: Facts, ask: Ask, keys: list[Row], groups: list[GroupRow]) -> Profile:
    """Ask for every table."""
    total = facts.totals
    notes = list(ask.notes)
    if total["odd_times"]:
        notes.append(
            f"{total['odd_times']:,} messages have a time outside of the years 1 to 9999: they are"
            " in no plot over time and in no latency"
        )
    axis = _axis(total, ask, notes)
    topics = facts.topics(_TOPICS_MAX)
    if (total["topics"] or 0) > len(topics):
        notes.append(f"the {len(topics):,} biggest of {total['topics']:,} topics are listed")
    named = [row["topic"] for row in topics[: ask.top]]
    sizes, latencies = _by_topic(facts.sizes(named)), _by_topic(facts.latencies(named))
    all_sizes, all_latencies = _joined(sizes), _joined(latencies)
    times, topic_times = _times(facts, axis, named[:_PLOTTED]) if axis else ([], [])
    queues = [_queue_row(row) for row in facts.queues(named, _QUEUES_MAX)]
    step_ms = axis.step_ms if axis else ask.step_ms
    summary = _summary(total, ask, all_sizes, all_latencies, step_ms=step_ms)
    evidence = Evidence(
        summary=summary,
        topics=[_topic_row(row, sizes, latencies) for row in topics],
        times=times,
        topic_times=topic_times,
        keys=[KeyRow(**row.asDict()) for row in keys],
        queues=queues,
        groups=groups,
    )
    findings = find(evidence, lambda moment, latency: _slow_topic(facts, axis, moment, latency))
    return Profile(
        summary=summary,
        findings=findings,
        notes=notes,
        topics=evidence.topics,
        times=times,
        topic_times=topic_times,
        sizes=_bin_rows(all_sizes),
        latencies=_bin_rows(all_latencies),
        tags=[_tag_row(row) for row in facts.tags(named, ask.top)],
        keys=evidence.keys,
        queues=queues,
        groups=groups,
    )


def _axis(total: Row, ask: Ask, notes: list[str]) -> _Axis | None:
    """Choose what is plotted: all of it, or the log's own span if some times are far off."""
    first, last = total["first_bucket"], total["last_bucket"]
    if first is None:
        return None
    if ask.span_ms is not None:
        begin, end = (moment // ask.step_ms for moment in ask.span_ms)
        if last - first > max(_WILD * (end - begin), 2 * STEPS_MAX):
            notes.append(
                "some messages have store times far from the others, from"
                f" {utc_text(total['first_ms'])} to {utc_text(total['last_ms'])}: plots over"
                f" time show {utc_text(ask.span_ms[0])} to {utc_text(ask.span_ms[1])}"
            )
            first, last = begin, end
    fold = max(-(-(last - first + 1) // (2 * STEPS_MAX)), 1)
    return _Axis(ask.step_ms * fold, fold, first // fold, last // fold)


def _times(
    facts: Facts, axis: _Axis, plotted: list[str]
) -> tuple[list[TimeRow], list[TopicTimeRow]]:
    """Count over time; steps without a message are there too."""
    counts: dict[tuple[str | None, int], Row] = {
        (row["topic"], row["bucket"]): row for row in facts.times(plotted, axis.fold, axis.window)
    }
    latencies: dict[int, Counter[int]] = defaultdict(Counter)
    for row in facts.latency_times(axis.fold, axis.window):
        if row["latency_bin"] is not None:
            latencies[row["bucket"]][row["latency_bin"]] += row["messages"]
    names: list[str | None] = [*plotted, None]
    times, topic_times = [], []
    for step, start in axis.starts():
        rows = [(name, counts.get((name, step))) for name in names]
        known = [row["latency_max"] for _, row in rows if row and row["latency_max"] is not None]
        highest = max(known, default=None)
        p50, p90, p99 = bins.percentiles(latencies[step], _SHARES, highest)
        times.append(
            TimeRow(
                start_ms=start,
                messages=sum(row["messages"] for _, row in rows if row),
                bytes=sum(row["bytes"] or 0 for _, row in rows if row),
                latency_p50=p50,
                latency_p90=p90,
                latency_p99=p99,
                latency_max=highest,
            )
        )
        topic_times += [
            TopicTimeRow(
                topic=name, start_ms=start, messages=row["messages"], bytes=row["bytes"] or 0
            )
            for name, row in rows
            if row
        ]
    return times, topic_times


def _slow_topic(facts: Facts, axis: _Axis | None, moment_ms: int, latency: float) -> str | None:
    if axis is None:
        return None
    begin = moment_ms // axis.step_ms * axis.fold
    return facts.slowest_topic(bins.bin_of(int(latency)), (begin, begin + axis.fold - 1))


def _by_topic(rows: Iterable[Row]) -> dict[str | None, Counter[int]]:
    found: dict[str | None, Counter[int]] = defaultdict(Counter)
    for row in rows:
        if row["bin"] is not None:
            found[row["topic"]][row["bin"]] += row["messages"]
    return found


def _joined(by_topic: dict[str | None, Counter[int]]) -> Counter[int]:
    return sum(by_topic.values(), Counter())


def _bin_rows(counts: Counter[int]) -> list[BinRow]:
    joined = bins.doublings(counts.items())
    return [BinRow(first=first, end=end, messages=count) for first, end, count in joined]


def _summary(
    total: Row, ask: Ask, sizes: Counter[int], latencies: Counter[int], *, step_ms: int
) -> Summary:
    size_p50, _, size_p99 = bins.percentiles(sizes, _SHARES, total["size_max"])
    latency_p50, latency_p90, latency_p99 = bins.percentiles(
        latencies, _SHARES, total["latency_max"]
    )
    return Summary(
        store=ask.store,
        stores=ask.stores,
        selection=ask.selection,
        messages=total["messages"] or 0,
        bytes=total["bytes"] or 0,
        topics=total["topics"] or 0,
        keyed=total["keyed"] or 0,
        retried=total["retried"] or 0,
        first_ms=total["first_ms"],
        last_ms=total["last_ms"],
        step_ms=step_ms,
        size_p50=size_p50,
        size_p99=size_p99,
        size_max=total["size_max"],
        latency_p50=latency_p50,
        latency_p90=latency_p90,
        latency_p99=latency_p99,
        latency_max=total["latency_max"],
        latency_below_zero=latencies.get(bins.NEGATIVE, 0),
    )


def _topic_row(row: Row, sizes: dict[Any, Counter[int]], latencies: dict[Any, Any]) -> TopicRow:
    topic = row["topic"]
    size_p50, _, size_p99 = bins.percentiles(sizes.get(topic, {}), _SHARES, row["size_max"])
    latency_p50, _, latency_p99 = bins.percentiles(
        latencies.get(topic, {}), _SHARES, row["latency_max"]
    )
    same = ("messages", "queues", "first_ms", "last_ms", "keyed", "retried")
    return TopicRow(
        topic=topic,
        bytes=row["bytes"] or 0,
        size_max=row["size_max"],
        latency_max=row["latency_max"],
        size_p50=size_p50,
        size_p99=size_p99,
        latency_p50=latency_p50,
        latency_p99=latency_p99,
        **{name: row[name] for name in same},
    )


def _queue_row(row: Row) -> QueueRow:
    same = ("topic", "queue_id", "messages", "first_ms", "last_ms")
    return QueueRow(
        broker=row["broker"] or "",
        bytes=row["bytes"] or 0,
        **{name: row[name] for name in same},
    )


def _tag_row(row: Row) -> TagRow:
    return TagRow(
        topic=row["topic"], tag=row["tag"], messages=row["messages"], bytes=row["bytes"] or 0
    )
