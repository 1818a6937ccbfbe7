"""Plots as inline SVG that stretches to any width; their marks and texts are HTML beside it.

A picture that is scaled down for a phone would have unreadable text, so only areas and lines are in
the SVG (one unit wide for each step, 100 high), and texts stand at percentages around it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from rocketlake.spark.jobs.profile.number_text import NONE, shortened
from rocketlake.spark.jobs.profile.page import scales
from rocketlake.spark.jobs.profile.page.markup import Html, join, name_of, tag, visible
from rocketlake.spark.jobs.profile.time_axis import clock_text, utc_text

HEIGHT: Final = 100
_FAR_ABOVE: Final = 1.5

Spell = Callable[[float], str]


class TimeAxis(Struct, frozen=True):
    """Steps of equal length."""

    starts_ms: list[int]
    step_ms: int

    def labels(self) -> list[str]:
        """Spell every step."""
        return [utc_text(start, self.step_ms) for start in self.starts_ms]


class Series(Struct, frozen=True, kw_only=True):
    """One line or area: its name, its class (which gives the colour), its value at each step."""

    name: str
    color: str
    values: list[float | None]
    legend: str = ""


class Readout(Struct, frozen=True):
    """What the page's script shows for a step: texts only, spelled here."""

    labels: list[str]
    names: list[str]
    colors: list[str]
    texts: list[list[str]]


def readout(axis: TimeAxis, series: Iterable[Series], spell: Spell) -> Readout:
    """Spell every value of a plot."""
    kept = list(series)
    return Readout(
        axis.labels(),
        [shortened(visible(item.name)) for item in kept],
        [item.color for item in kept],
        [[NONE if v is None else spell(v) for v in item.values] for item in kept],
    )


def stacked(axis: TimeAxis, series: Sequence[Series], ticks: Sequence[float]) -> Html:
    """Draw areas on top of each other, from zero."""
    top = ticks[-1]
    below = [0.0] * len(axis.starts_ms)
    paths = []
    for item in series:
        above = [low + (value or 0.0) for low, value in zip(below, item.values, strict=True)]
        outline = _steps(above, top)
        back = _steps(below, top)[::-1]
        points = " ".join(f"{x:g},{y:g}" for x, y in [*outline, *back])
        paths.append(tag("path", d=f"M{points}Z", class_=f"area {item.color}"))
        below = above
    return join(*reversed(paths))


def band(
    low: Sequence[float | None], high: Sequence[float | None], ticks: Sequence[float], color: str
) -> Html:
    """Fill what lies between two values on a logarithmic scale; steps without values stay open."""
    boxes = []
    for index, (bottom, top) in enumerate(zip(low, high, strict=True)):
        if bottom is None or top is None:
            continue
        y_top = HEIGHT * (1 - scales.log_share(top, ticks))
        y_low = HEIGHT * (1 - scales.log_share(bottom, ticks))
        boxes.append(f"M{index} {y_top:.2f}h1V{max(y_low, y_top + 0.4):.2f}h-1Z")
    return tag("path", d="".join(boxes), class_=f"area {color}")


def levels(values: Sequence[float | None], ticks: Sequence[float], color: str) -> Html:
    """Draw a value at each step on a logarithmic scale, as a line that breaks where none is."""
    parts, is_down = [], False
    for index, value in enumerate(values):
        if value is None:
            is_down = False
            continue
        y = HEIGHT * (1 - scales.log_share(value, ticks))
        parts.append(f"{'V' if is_down else f'M{index} '}{y:.2f}h1")
        is_down = True
    return tag("path", d="".join(parts), class_=f"level {color}")


def frame(
    axis: TimeAxis,
    drawing: Html,
    *,
    y_ticks: Sequence[tuple[float, str]],
    label: str,
    plot_id: str,
) -> Html:
    """Put a drawing between its axes; `y_ticks` are (height from 0 to 1, text)."""
    steps = len(axis.starts_ms)
    lines = [
        tag("line", x1=0, x2=steps, y1=f"{y:.2f}", y2=f"{y:.2f}", class_="grid")
        for share, _ in y_ticks
        for y in [HEIGHT * (1 - share)]
    ]
    svg = tag(
        "svg",
        join(*lines, drawing),
        viewBox=f"0 0 {steps} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    y_labels = [
        tag("span", text, style=f"bottom:{100 * share:.2f}%", class_="y") for share, text in y_ticks
    ]
    return tag(
        "div",
        tag("div", y_labels, class_="ys", aria_hidden="true"),
        tag(
            "div",
            svg,
            tag("div", class_="cursor", hidden=True),
            class_="canvas",
            tabindex=0,
            role="group",
            aria_label="arrow keys read the values step by step",
            data_plot=plot_id,
        ),
        tag("div", _x_labels(axis), class_="xs", aria_hidden="true"),
        tag("p", class_="readout", aria_live="polite", id=f"read-{plot_id}"),
        class_="plot",
    )


def sparkline(values: Sequence[float], label: str, color: str) -> Html:
    """Draw a small area for a table's cell."""
    top = max(values, default=0) or 1
    points = " ".join(f"{x:g},{y:.1f}" for x, y in _steps(list(values), top))
    end = len(values)
    return tag(
        "svg",
        tag("path", d=f"M0,{HEIGHT} {points} {end},{HEIGHT}Z", class_=f"area {color}"),
        viewBox=f"0 0 {max(end, 1)} {HEIGHT}",
        preserveAspectRatio="none",
        class_="spark",
        role="img",
        aria_label=label,
    )


def columns(values: Sequence[float], label: str) -> Html:
    """Draw one small bar for each value; the highest is marked if it is far above the others."""
    top = max(values, default=0) or 1
    marked = top if top > _FAR_ABOVE * sum(values) / max(len(values), 1) else math.inf
    bars = [
        tag(
            "rect",
            x=f"{index + 0.12:g}",
            y=f"{HEIGHT * (1 - max(value / top, 0.02)):.1f}",
            width="0.76",
            height=f"{HEIGHT * max(value / top, 0.02):.1f}",
            class_="area most" if value >= marked else "area even",
        )
        for index, value in enumerate(values)
    ]
    return tag(
        "svg",
        join(*bars),
        viewBox=f"0 0 {max(len(values), 4)} {HEIGHT}",
        preserveAspectRatio="none",
        class_="spark",
        role="img",
        aria_label=label,
    )


def legend(series: Iterable[Series]) -> Html:
    """Name the colours."""
    items = [
        tag(
            "li",
            tag("span", class_=f"swatch {item.color}"),
            name_of(item.name),
            " ",
            tag("span", item.legend, class_="dim"),
        )
        for item in series
    ]
    return tag("ul", items, class_="legend")


def _x_labels(axis: TimeAxis) -> list[Html]:
    first, end = axis.starts_ms[0], axis.starts_ms[-1] + axis.step_ms
    ticks = scales.time_ticks(first, end)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else axis.step_ms
    found = []
    for number, tick in enumerate(ticks):
        share = 100 * (tick - first) / (end - first)
        if share > 97:
            continue
        kind = "x minor" if number % 2 else "x"
        found.append(tag("span", clock_text(tick, step), style=f"left:{share:.2f}%", class_=kind))
    return found


def _steps(values: Sequence[float], top: float) -> list[tuple[float, float]]:
    """Return the corners of a line of steps."""
    corners: list[tuple[float, float]] = []
    for index, value in enumerate(values):
        y = round(HEIGHT * (1 - min(value / top, 1.0)), 2)
        if corners and corners[-1][1] == y:
            corners[-1] = (index + 1, y)
            continue
        corners += [(index, y), (index + 1, y)]
    return corners
