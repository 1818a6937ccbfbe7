"""The page: whole, self-contained, and nothing in it that a sender of messages can make work."""

from html.parser import HTMLParser

import profile_cases as cases
import pytest

from rocketlake.spark.jobs.profile.page import scales
from rocketlake.spark.jobs.profile.page.markup import Html, join, name_of, tag
from rocketlake.spark.jobs.profile.page.rendering import render

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
