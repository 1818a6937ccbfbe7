"""The sections below the plots: topics, sizes, latencies, tags, keys, queues, groups, retries."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from rocketlake.model.size_text import size_text
from rocketlake.spark.jobs.profile.findings import DEAD_LETTERS, RETRIES
from rocketlake.spark.jobs.profile.number_text import (
    NONE,
    plural,
    share_text,
    short_count,
)
from rocketlake.spark.jobs.profile.page import plots
from rocketlake.spark.jobs.profile.page.colors import REST, topic_colors
from rocketlake.spark.jobs.profile.page.grids import Cell, Head, bar_cell, grid
from rocketlake.spark.jobs.profile.page.markup import Html, join, name_of, tag
from rocketlake.spark.jobs.profile.tables import BinRow, ProfileTables, QueueRow, TopicRow
from rocketlake.spark.jobs.profile.time_axis import span_text, utc_text

_SHOWN = 100  # rows of a table that may be long
_QUEUES_DRAWN = 64


def topics(profile: ProfileTables) -> Html:
    """Every topic, the biggest first."""
    sparks: dict[str | None, list[float]] = {}
    place = {row.start_ms: index for index, row in enumerate(profile.times)}
    for row in profile.topic_times:
        values = sparks.setdefault(row.topic, [0.0] * len(place))
        values[place[row.start_ms]] = row.messages
    heads = [
        Head("topic", is_number=False, is_wide=True),
        Head("over time", is_number=False),
        Head("messages"),
        Head("share"),
        Head("bytes"),
        Head("per s"),
        Head("size p50"),
        Head("p99"),
        Head("latency p50"),
        Head("p99"),
        Head("queues"),
        Head("last stored (UTC)", is_number=False),
    ]
    colors = topic_colors(profile)
    rows = [
        _topic(profile, row, _spark(sparks.get(row.topic), colors.get(row.topic, REST)))
        for row in profile.topics[:_SHOWN]
    ]
    return join(
        grid("Topics", heads, rows),
        _more(len(profile.topics) - _SHOWN, "topic", "--tables writes all of them"),
    )


def _spark(values: Sequence[float] | None, color: str) -> Html:
    if values is None or len(values) < 2:
        return Html("")
    label = f"messages over time, at most {max(values):,.0f} a step"
    return plots.sparkline(values, label, color)


def _topic(profile: ProfileTables, row: TopicRow, spark: Html) -> list[Cell]:
    summary = profile.summary
    span = (row.last_ms or 0) - (row.first_ms or 0)
    rate = row.messages * 1000 / span if span >= 1000 else None
    return [
        Cell(name_of(row.topic), row.topic),
        Cell(spark),
        Cell(f"{row.messages:,}", row.messages),
        _share(row.messages, summary.messages),
        Cell(size_text(row.bytes), row.bytes, row.bytes / summary.bytes if summary.bytes else 0),
        Cell(NONE if rate is None else short_count(rate), rate or 0),
        _number(row.size_p50, size_text),
        _number(row.size_p99, size_text),
        _number(row.latency_p50, span_text),
        _number(row.latency_p99, span_text),
        Cell(f"{row.queues:,}", row.queues),
        Cell(utc_text(row.last_ms, 1000), row.last_ms or 0),
    ]


def sizes(profile: ProfileTables) -> Html:
    """How large messages are, in the log."""
    summary = profile.summary
    say = (
        f"Half have at most {size_text(summary.size_p50 or 0)}, 99 % at most"
        f" {size_text(summary.size_p99 or 0)}, the largest {size_text(summary.size_max or 0)}:"
        " a whole record in the log, with its properties, as stored (compressed, if so)."
    )
    return join(tag("p", say), _histogram("Sizes", profile.sizes, size_text))


def latencies(profile: ProfileTables) -> Html:
    """How long messages took from the producer to the store."""
    summary = profile.summary
    slowest = max(summary.latency_max or 0, 0)
    say = (
        f"Half took at most {span_text(summary.latency_p50 or 0)}, 90 % at most"
        f" {span_text(summary.latency_p90 or 0)}, 99 % at most"
        f" {span_text(summary.latency_p99 or 0)}, the slowest {span_text(slowest)}: the time of the"
        " broker's clock at storing, less the time of the producer's clock at sending."
        " Retries, dead letters and settled transactions keep the birth time of the first message,"
        " and are left out."
    )
    return join(tag("p", say), _histogram("Latencies", profile.latencies, span_text))


def _histogram(caption: str, rows: Sequence[BinRow], spell: Callable[[float], str]) -> Html:
    total = sum(row.messages for row in rows)
    most = max((row.messages for row in rows), default=0) or 1
    heads = [
        Head("from", is_number=True),
        Head("", is_number=False, is_wide=True),
        Head("messages"),
        Head("share"),
        Head("up to here"),
    ]
    cells, seen = [], 0
    for row in _joined(rows):
        if not row.messages:
            text = f"none from {spell(row.first)} to {spell(row.end)}"
            cells.append([Cell(""), Cell(tag("span", text, class_="dim")), *[Cell("")] * 3])
            continue
        seen += row.messages
        first = "below 0" if row.first < 0 else spell(row.first)
        cells.append(
            [
                Cell(first, row.first),
                bar_cell(row.messages / most),
                Cell(f"{row.messages:,}", row.messages),
                Cell(share_text(row.messages, total)),
                Cell(share_text(seen, total)),
            ]
        )
    return grid(caption, heads, cells, is_sortable=False)


def _joined(rows: Sequence[BinRow]) -> list[BinRow]:
    """Return the rows of a histogram, each run of several empty ones as one."""
    found: list[BinRow] = []
    for row in rows:
        if found and not row.messages and not found[-1].messages:
            found[-1] = BinRow(first=found[-1].first, end=row.end, messages=0)
        else:
            found.append(row)
    return found


def tags(profile: ProfileTables) -> Html:
    """The most frequent tags of the biggest topics."""
    totals = {row.topic: row.messages for row in profile.topics}
    heads = [
        Head("topic", is_number=False),
        Head("tag", is_number=False, is_wide=True),
        Head("of the topic"),
        Head("messages"),
        Head("bytes"),
    ]
    rows = [
        [
            Cell(name_of(row.topic), row.topic),
            Cell(tag("i", "none") if row.tag is None else name_of(row.tag), row.tag or ""),
            _share(row.messages, totals.get(row.topic, 0)),
            Cell(f"{row.messages:,}", row.messages),
            Cell(size_text(row.bytes), row.bytes),
        ]
        for row in profile.tags[:_SHOWN]
    ]
    return join(grid("Tags", heads, rows), _more(len(profile.tags) - _SHOWN, "tag", "--tables"))


def keys(profile: ProfileTables) -> Html:
    """The keys with most messages."""
    totals = {row.topic: row.messages for row in profile.topics}
    heads = [
        Head("topic", is_number=False),
        Head("key", is_number=False, is_wide=True),
        Head("of the topic"),
        Head("messages"),
        Head("bytes"),
    ]
    rows = [
        [
            Cell(name_of(row.topic), row.topic),
            Cell(name_of(row.key), row.key),
            _share(row.messages, totals.get(row.topic, 0)),
            Cell(f"{row.messages:,}", row.messages),
            Cell(size_text(row.bytes), row.bytes),
        ]
        for row in profile.keys
    ]
    return grid("Keys", heads, rows)


def queues(profile: ProfileTables) -> Html:
    """How evenly the queues of a topic are filled."""
    by_topic: dict[str, list[QueueRow]] = defaultdict(list)
    for row in profile.queues:
        by_topic[row.topic].append(row)
    heads = [
        Head("topic", is_number=False, is_wide=True),
        Head("queues"),
        Head("messages per queue", is_number=False),
        Head("fullest queue"),
        Head("its share"),
        Head("even share"),
        Head("of the mean"),
    ]
    rows = []
    for topic, found in by_topic.items():
        if len(found) < 2:
            continue
        counts = [row.messages for row in found]
        top = max(found, key=lambda row: row.messages)
        ratio = top.messages * len(counts) / max(sum(counts), 1)
        where = f"{top.broker} {top.queue_id}" if len(profile.summary.stores) > 1 else top.queue_id
        drawn = plots.columns(counts[:_QUEUES_DRAWN], f"messages in each of {len(counts)} queues")
        rows.append(
            [
                Cell(name_of(topic), topic),
                Cell(f"{len(counts):,}", len(counts)),
                Cell(drawn),
                Cell(where, top.queue_id),
                _share(top.messages, sum(counts)),
                Cell(share_text(1, len(counts)), 1 / len(counts)),
                Cell(f"{ratio:.2f} times", ratio),
            ]
        )
    rows.sort(key=lambda cells: -float(cells[-1].value or 0))
    if not rows:
        return tag("p", "No topic has messages in more than one queue.", class_="dim")
    return grid("Queues", heads, rows[:_SHOWN])


def groups(profile: ProfileTables) -> Html:
    """How far consumer groups have come."""
    if not profile.groups:
        return tag("p", "The store holds no progress of consumer groups.", class_="dim")
    held = {row.topic: row.messages for row in profile.topics}
    most = max(row.lag for row in profile.groups) or 1
    heads = [
        Head("group", is_number=False, is_wide=True),
        Head("topic", is_number=False),
        Head("behind by"),
        Head("", is_number=False),
        Head("of the topic"),
        Head("missed"),
        Head("queues"),
    ]
    ordered = sorted(profile.groups, key=lambda row: (-row.lag, -row.missed, row.group, row.topic))
    rows = [
        [
            Cell(name_of(row.group), row.group),
            Cell(name_of(row.topic), row.topic),
            Cell(f"{row.lag:,}", row.lag),
            bar_cell(row.lag / most),
            Cell(share_text(row.lag, held.get(row.topic, 0))),
            Cell(f"{row.missed:,}", row.missed),
            Cell(f"{row.queues:,}", row.queues),
        ]
        for row in ordered[:_SHOWN]
    ]
    return join(
        grid("Consumer groups", heads, rows),
        _more(len(ordered) - _SHOWN, "line", "--tables writes all of them"),
    )


def retries(profile: ProfileTables) -> Html:
    """What was consumed again, and what was given up."""
    found = [row for row in profile.topics if row.topic.startswith((DEAD_LETTERS, RETRIES))]
    count = plural(profile.summary.retried, "message") if profile.summary.retried else "No message"
    say = f"{count} came back from a consumer (reconsume times above zero)."
    if not found:
        return tag("p", say, " There are no retry or dead letter topics.", class_="dim")
    heads = [
        Head("group", is_number=False, is_wide=True),
        Head("kind", is_number=False),
        Head("messages"),
        Head("first (UTC)", is_number=False),
        Head("last (UTC)", is_number=False),
    ]
    rows = []
    for row in found[:_SHOWN]:
        is_dead = row.topic.startswith(DEAD_LETTERS)
        group = row.topic.removeprefix(DEAD_LETTERS if is_dead else RETRIES)
        rows.append(
            [
                Cell(name_of(group), group),
                Cell("dead letters" if is_dead else "retries", int(is_dead)),
                Cell(f"{row.messages:,}", row.messages),
                Cell(utc_text(row.first_ms, 1000), row.first_ms or 0),
                Cell(utc_text(row.last_ms, 1000), row.last_ms or 0),
            ]
        )
    return join(tag("p", say), grid("Retries and dead letters", heads, rows))


def _share(part: float, whole: float) -> Cell:
    share = part / whole if whole else 0.0
    return Cell(share_text(part, whole), share, share)


def _number(value: float | None, spell: Callable[[float], str]) -> Cell:
    return Cell(NONE, -1) if value is None else Cell(spell(value), value)


def _more(count: int, what: str, where: str) -> Html:
    if count <= 0:
        return Html("")
    return tag("p", f"{plural(count, what)} more not shown; {where}.", class_="dim")
