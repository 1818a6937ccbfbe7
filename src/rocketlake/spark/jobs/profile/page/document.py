"""The page as a whole: head, what stands out, sections, foot."""

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Final

import msgspec

from rocketlake.model.size_text import size_text
from rocketlake.spark.jobs.profile.bins import RELATIVE_ERROR
from rocketlake.spark.jobs.profile.findings import RULES
from rocketlake.spark.jobs.profile.number_text import (
    NONE,
    plural,
    share_text,
    short_count,
)
from rocketlake.spark.jobs.profile.page import sections
from rocketlake.spark.jobs.profile.page.markup import Html, join, name_of, tag
from rocketlake.spark.jobs.profile.page.over_time import over_time
from rocketlake.spark.jobs.profile.tables import ProfileTables, Summary
from rocketlake.spark.jobs.profile.time_axis import span_text, utc_text
from rocketlake.version import __version__

_SECTIONS: Final[tuple[tuple[str, str, Callable[[ProfileTables], Html]], ...]] = (
    ("topics", "Topics", sections.topics),
    ("groups", "Consumer groups", sections.groups),
    ("retries", "Retries and dead letters", sections.retries),
    ("queues", "Queues: how even they are", sections.queues),
    ("latencies", "Latency from producer to store", sections.latencies),
    ("sizes", "Message sizes", sections.sizes),
    ("tags", "Tags", sections.tags),
    ("keys", "Biggest keys", sections.keys),
)


def render(profile: ProfileTables) -> str:
    """Return the page."""
    style, script = _asset("profile.css"), _asset("profile.js")
    body, readouts = _body(profile)
    # Why: no `<` may stand in a script's data, or a name could end the element.
    data = msgspec.json.encode(readouts).decode().replace("<", "\\u003c")
    title = f"{profile.summary.store}: profile"
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script, data)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(style)),
    )
    page = tag(
        "html",
        tag("head", head),
        tag(
            "body",
            body,
            tag("script", Html(data), type="application/json", id="readouts"),
            tag("script", Html(script)),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _policy(*scripts: str) -> str:
    """Allow nothing but this page's own style and script: a second wall behind the escaping."""
    sums = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in scripts
    ]
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {' '.join(sums)};"
        " base-uri 'none'; form-action 'none'"
    )


@cache
def _asset(name: str) -> str:
    place = resources.files("rocketlake.spark.jobs.profile.page") / "assets" / name
    return place.read_text(encoding="utf-8")


def _body(profile: ProfileTables) -> tuple[Html, dict[str, object]]:
    plots, readouts = over_time(profile)
    is_empty = not profile.summary.messages
    shown = [] if is_empty else [item for item in _SECTIONS if _has(profile, item[0])]
    if is_empty and profile.groups:
        shown = [item for item in _SECTIONS if item[0] == "groups"]
    parts = [tag("section", tag("h2", "Over time"), plots, id="time")] if not is_empty else []
    parts += [
        tag("section", tag("h2", title), make(profile), id=anchor) for anchor, title, make in shown
    ]
    links = [("time", "Over time"), *((anchor, title) for anchor, title, _ in shown)]
    nav = tag(
        "nav",
        tag("ul", [tag("li", tag("a", text, href=f"#{anchor}")) for anchor, text in links]),
        aria_label="Sections",
    )
    main = tag("main", _stands_out(profile), None if is_empty else nav, parts)
    return join(_head(profile), main, _foot(profile)), dict(readouts)


def _has(profile: ProfileTables, anchor: str) -> bool:
    if anchor == "keys":
        return bool(profile.keys)
    if anchor == "tags":
        return any(row.tag is not None for row in profile.tags)
    return True


def _head(profile: ProfileTables) -> Html:
    summary = profile.summary
    return tag(
        "header",
        tag("p", "Profile of a message store", class_="dim"),
        tag("h1", name_of(summary.store)),
        tag("p", first_line(summary), class_="first"),
        tag("p", summary.selection, class_="dim") if summary.selection else None,
        _figures(summary) if summary.messages else None,
    )


def first_line(summary: Summary) -> str:
    """Say what is in the store, in one line."""
    if not summary.messages:
        return "No messages."
    span = (summary.last_ms or 0) - (summary.first_ms or 0)
    counts = f"{plural(summary.messages, 'message')} in {plural(summary.topics, 'topic')}"
    if summary.messages == 1:
        return f"{counts}, {size_text(summary.bytes)}, stored {utc_text(summary.first_ms)} UTC."
    return (
        f"{counts}, {size_text(summary.bytes)}, stored {utc_text(summary.first_ms, 1000)} to"
        f" {utc_text(summary.last_ms, 1000)} UTC ({span_text(span)})."
    )


def _figures(summary: Summary) -> Html:
    span = ((summary.last_ms or 0) - (summary.first_ms or 0)) / 1000
    rate = (
        f"{short_count(summary.messages / span)}/s" if span >= 1 and summary.messages > 1 else NONE
    )
    pairs = [
        ("messages", short_count(summary.messages)),
        ("bytes", size_text(summary.bytes)),
        ("topics", short_count(summary.topics)),
        ("on average", rate),
        ("median size", size_text(summary.size_p50 or 0)),
        ("latency p50", _latency(summary.latency_p50)),
        ("latency p99", _latency(summary.latency_p99)),
        ("with a key", share_text(summary.keyed, summary.messages)),
    ]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", text)) for name, text in pairs])


def _latency(value: float | None) -> str:
    return NONE if value is None else span_text(value)


def _stands_out(profile: ProfileTables) -> Html:
    items = [
        tag(
            "li",
            tag("span", "look" if finding.is_warning else "note", class_="badge"),
            tag("strong", finding.kind),
            " ",
            tag("bdi", finding.text),
            class_="warning" if finding.is_warning else "plain",
        )
        for finding in profile.findings
    ]
    nothing = tag("p", "Nothing stands out." if profile.summary.messages else "There is no data.")
    return tag(
        "section",
        tag("h2", "What stands out"),
        tag("ul", items, class_="findings") if items else nothing,
        [tag("p", note, class_="dim") for note in profile.notes],
        tag(
            "details",
            tag("summary", "What is looked for"),
            tag("ul", [tag("li", rule) for rule in RULES]),
        ),
        id="stands-out",
    )


def _foot(profile: ProfileTables) -> Html:
    stores = profile.summary.stores
    return tag(
        "footer",
        tag("p", "Stores: ", ", ".join(stores)) if len(stores) > 1 else None,
        tag(
            "p",
            "Times are UTC. Counts, bytes and maxima are exact; percentiles come from bins and are"
            f" off by at most {100 * RELATIVE_ERROR:.1f} %. Made by rocketlake {__version__}.",
        ),
    )
