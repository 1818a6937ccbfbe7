"""The plots over time: messages, bytes, latency."""

from collections.abc import Callable
from typing import Final

from rocketlake.model.size_text import size_text
from rocketlake.spark.jobs.profile.number_text import NONE, share_text, short_count
from rocketlake.spark.jobs.profile.page import plots, scales
from rocketlake.spark.jobs.profile.page.colors import REST, topic_colors
from rocketlake.spark.jobs.profile.page.grids import Cell, Head, grid
from rocketlake.spark.jobs.profile.page.markup import Html, tag
from rocketlake.spark.jobs.profile.page.plots import Readout, Series, TimeAxis
from rocketlake.spark.jobs.profile.tables import ProfileTables, TimeRow, TopicTimeRow
from rocketlake.spark.jobs.profile.time_axis import span_text, utc_text

_OTHERS: Final = "all other topics"


def over_time(profile: ProfileTables) -> tuple[Html, dict[str, Readout]]:
    """Make the section, and what its plots read out."""
    times = profile.times
    if len(times) < 2:
        return tag("p", _short_text(profile), class_="dim"), {}
    axis = TimeAxis([row.start_ms for row in times], profile.summary.step_ms)
    per_s = 1000 / axis.step_ms
    readouts: dict[str, Readout] = {}
    parts = [
        _rate(
            profile,
            axis,
            readouts,
            _Rate(
                ("messages", "Messages per second"), lambda row: row.messages * per_s, short_count
            ),
        ),
        _rate(
            profile,
            axis,
            readouts,
            _Rate(
                ("bytes", "Bytes per second"), lambda row: row.bytes * per_s, size_text, base=1024
            ),
        ),
    ]
    if any(row.latency_p50 is not None for row in times):
        parts.append(_latency(profile, axis, readouts))
    parts.append(_numbers(profile, axis))
    return tag("div", parts), readouts


class _Rate:
    """What is plotted as a rate, and how it is spelled."""

    def __init__(
        self,
        names: tuple[str, str],
        value: Callable[[TimeRow | TopicTimeRow], float],
        spell: plots.Spell,
        base: int = 10,
    ) -> None:
        self.names = names
        self.value = value
        self.spell = spell
        self.base = base


def _short_text(profile: ProfileTables) -> str:
    if not profile.times:
        return "There is nothing to plot over time."
    step = profile.summary.step_ms
    moment = utc_text(profile.times[0].start_ms, step)
    return f"All of it was stored within {span_text(step)} from {moment}: no plot over time."


def _rate(
    profile: ProfileTables,
    axis: TimeAxis,
    readouts: dict[str, Readout],
    rate: _Rate,
) -> Html:
    plot_id, title = rate.names
    series = _by_topic(profile, axis, rate)
    sums = [rate.value(row) for row in profile.times]
    peak = max(range(len(sums)), key=sums.__getitem__)
    ticks = scales.linear_ticks(sums[peak], base=rate.base)
    mean = sum(sums) / len(sums)
    say = (
        f"{rate.spell(mean)}/s on average, {rate.spell(sums[peak])}/s at"
        f" {utc_text(axis.starts_ms[peak], axis.step_ms)} (per {span_text(axis.step_ms)})"
    )
    total = Series(name="all", color="all", values=list(sums))
    shown = [*series, total] if len(series) > 1 else series
    readouts[plot_id] = plots.readout(axis, shown, lambda value: f"{rate.spell(value)}/s")
    drawn = plots.frame(
        axis,
        plots.stacked(axis, series, ticks),
        y_ticks=[(tick / ticks[-1], rate.spell(tick)) for tick in ticks],
        label=f"{title} over time: {say}",
        plot_id=plot_id,
    )
    return _figure(title, say, drawn, plots.legend(series))


def _by_topic(profile: ProfileTables, axis: TimeAxis, rate: _Rate) -> list[Series]:
    """Return the topics that have a colour as series of their own, and the rest as one."""
    place = {start: index for index, start in enumerate(axis.starts_ms)}
    sums: dict[str | None, list[float]] = {}
    for row in profile.topic_times:
        values = sums.setdefault(row.topic, [0.0] * len(place))
        values[place[row.start_ms]] += rate.value(row)
    own = topic_colors(profile)
    rest = [sums[topic] for topic in sums if topic not in own]
    whole = sum(sum(values) for values in sums.values())
    series = [
        Series(
            name=topic,
            color=color,
            values=list(sums[topic]),
            legend=share_text(sum(sums[topic]), whole),
        )
        for topic, color in own.items()
    ]
    if rest:
        joined = [sum(column) for column in zip(*rest, strict=True)]
        legend = share_text(sum(joined), whole)
        series.append(Series(name=_OTHERS, color=REST, values=list(joined), legend=legend))
    return series


def _latency(profile: ProfileTables, axis: TimeAxis, readouts: dict[str, Readout]) -> Html:
    times, summary = profile.times, profile.summary
    p50, p90 = [row.latency_p50 for row in times], [row.latency_p90 for row in times]
    p99 = [row.latency_p99 for row in times]
    highest: list[float | None] = [
        None if row.latency_max is None else float(max(row.latency_max, 0)) for row in times
    ]
    top = max((value for value in highest if value is not None), default=1.0)
    ticks = scales.log_ticks(1, max(top, 10))
    series = [
        Series(name="p50", color="l0", values=p50, legend="half are faster"),
        Series(name="p90", color="l1", values=p90),
        Series(name="p99", color="l2", values=p99, legend="one in a hundred is slower"),
        Series(name="max", color="l3", values=highest),
    ]
    say = (
        f"half within {span_text(summary.latency_p50 or 0)}, 99 % within"
        f" {span_text(summary.latency_p99 or 0)}, slowest {span_text(max(top, 0))};"
        " logarithmic scale"
    )
    readouts["latency"] = plots.readout(axis, series, span_text)
    drawing = [
        plots.band(p90, p99, ticks, "l2"),
        plots.band(p50, p90, ticks, "l1"),
        plots.levels(highest, ticks, "l3"),
        plots.levels(p50, ticks, "l0"),
    ]
    drawn = plots.frame(
        axis,
        Html("".join(drawing)),
        y_ticks=[
            (scales.log_share(tick, ticks), span_text(tick) if tick > 1 else "≤ 1 ms")
            for tick in ticks
        ],
        label=f"Latency from producer to store over time: {say}",
        plot_id="latency",
    )
    return _figure("From producer to store", say, drawn, plots.legend(series))


def _figure(title: str, say: str, drawn: Html, below: Html) -> Html:
    caption = tag("figcaption", tag("h3", title), tag("p", say))
    return tag("figure", caption, drawn, below)


def _numbers(profile: ProfileTables, axis: TimeAxis) -> Html:
    heads = [
        Head("from (UTC)", is_number=False),
        Head("messages"),
        Head("bytes"),
        Head("p50"),
        Head("p90"),
        Head("p99"),
        Head("max"),
    ]
    rows = []
    for row in profile.times:
        latencies = (row.latency_p50, row.latency_p90, row.latency_p99, row.latency_max)
        cells = [
            Cell(utc_text(row.start_ms, axis.step_ms), row.start_ms),
            Cell(f"{row.messages:,}", row.messages),
            Cell(size_text(row.bytes), row.bytes),
        ]
        for value in latencies:
            text = NONE if value is None else span_text(value) if value >= 0 else "< 0"
            cells.append(Cell(text, -1 if value is None else value))
        rows.append(cells)
    step = span_text(axis.step_ms)
    return tag(
        "details",
        tag("summary", f"All numbers of these plots, by {step}"),
        grid("Messages, bytes and latency over time", heads, rows),
    )
