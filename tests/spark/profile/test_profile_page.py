"""The page: whole, self-contained, and nothing in it that a sender of messages can make work."""

import re
from html.parser import HTMLParser

import msgspec
import profile_cases as cases
import pytest

from rocketlake.spark.jobs.profile.page import scales, sections
from rocketlake.spark.jobs.profile.page.document import render
from rocketlake.spark.jobs.profile.page.markup import Html, join, name_of, tag
from rocketlake.spark.jobs.profile.page.over_time import over_time
from rocketlake.spark.jobs.profile.tables import BinRow

VOID = {"meta"}
KNOWN = {
    *("html", "head", "meta", "title", "style", "body", "script", "header", "main", "footer"),
    *("section", "nav", "h1", "h2", "h3", "p", "a", "ul", "li", "dl", "dt", "dd", "div", "span"),
    *("bdi", "strong", "i", "details", "summary", "figure", "figcaption", "svg", "path", "rect"),
    *("line", "table", "caption", "thead", "tbody", "tr", "th", "td", "button"),
}


class Reader(HTMLParser):
    """Checks that elements close in order; keeps what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


@pytest.mark.parametrize("made", [cases.full, cases.single, cases.empty])
def test_page_is_whole_and_reaches_for_nothing(made):
    page = render(made())
    found = read(page)
    names = {name for name, _ in found.seen}
    assert names <= KNOWN
    for name, attributes in found.seen:
        assert not [key for key in attributes if key.startswith("on") or key in {"src", "srcset"}]
        if name == "a":
            assert (attributes["href"] or "").startswith("#")
    assert "url(" not in page
    assert "//" not in page.replace("// Reads values", "")
    assert "\u202e" not in page


def test_sections_that_are_linked_exist():
    found = read(render(cases.full()))
    anchors = {attributes.get("id") for _, attributes in found.seen}
    links = [(attributes["href"] or "")[1:] for name, attributes in found.seen if name == "a"]
    assert len(links) == 9
    assert set(links) <= anchors


def test_first_lines_say_what_matters():
    text = " ".join(read(render(cases.full())).texts)
    assert "messages in 1 topic, " in text
    assert "group billing is 120,344 messages behind in orders" in text
    assert "No messages." in " ".join(read(render(cases.empty())).texts)
    one = " ".join(read(render(cases.single())).texts)
    assert "1 message in 1 topic" in one
    assert "Nothing stands out." in one


def test_a_topic_has_one_colour_everywhere():
    """The topic with most bytes is not that with most messages; both plots agree all the same."""
    profile = cases.lopsided()
    drawn = {}
    for plot in over_time(profile)[1].values():
        for name, color in zip(plot.names, plot.colors, strict=True):
            drawn.setdefault(name, set()).add(color)
    assert drawn["many small"] == {"c0"}
    assert drawn["few large"] == {"c1"}
    assert {len(colors) for colors in drawn.values()} == {1}
    sparks = re.findall(r"<bdi[^>]*>([^<]*)</bdi>.*?class=\"area (\w+)\"", sections.topics(profile))
    assert {name: {color} for name, color in sparks} == {
        row.topic: drawn.get(row.topic, {"rest"}) for row in profile.topics
    }


def test_a_run_of_empty_rows_of_a_histogram_is_one_row():
    rows = [
        BinRow(first=first, end=end, messages=count)
        for first, end, count in [(8, 16, 5), (16, 32, 0), (32, 64, 0), (64, 128, 0), (128, 256, 1)]
    ]
    profile = msgspec.structs.replace(cases.full(), latencies=rows)
    cells = re.findall(r"<tr>(.*?)</tr>", sections.latencies(profile))
    assert len(cells) == 1 + 3
    assert "none from 16 ms to 128 ms" in cells[2]
    assert "100 %" in cells[3]


def test_text_is_escaped_and_markup_is_not():
    assert join("<b>", Html("<i></i>"), ["&", 1, None]) == "&lt;b&gt;<i></i>&amp;1"
    assert tag("p", "x", title="\"'<", hidden=True, id=None, data_v=3) == (
        '<p title="&quot;&#x27;&lt;" hidden data-v="3">x</p>'
    )
    assert "\\u202e" in name_of("a\u202eb")
    assert "\\u0000" in name_of("a\0b")
    assert len(name_of("x" * 10_000)) < 1200
    assert "(empty)" in name_of("")


@pytest.mark.parametrize("top", [0, 1e-9, 0.3, 1, 7, 99, 1023, 1025, 3e12])
@pytest.mark.parametrize("base", [10, 1024])
def test_linear_ticks_are_few_and_reach_the_top(top, base):
    ticks = scales.linear_ticks(top, base=base)
    assert 2 <= len(ticks) <= 7
    assert ticks[0] == 0
    assert ticks[-1] >= top


def test_log_ticks_enclose_and_shares_stay_inside():
    ticks = scales.log_ticks(1, 8910)
    assert ticks == [1, 10, 100, 1000, 10_000]
    assert [scales.log_share(value, ticks) for value in (0, 1, 100, 10_000, 1e9)] == [
        *(0, 0, 0.5, 1, 1),
    ]


@pytest.mark.parametrize("span_ms", [100, 5000, 3_600_000, 86_400_000, 10**11])
def test_time_ticks_are_few_and_within(span_ms):
    ticks = scales.time_ticks(cases.START_MS + 17, cases.START_MS + 17 + span_ms)
    assert len(ticks) <= 9
    assert all(cases.START_MS + 17 <= tick <= cases.START_MS + 17 + span_ms for tick in ticks)
