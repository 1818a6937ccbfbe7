"""Tables of the page: numbers to the right, bars behind shares, columns that sort."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rocketlake.spark.jobs.profile.number_text import shortened
from rocketlake.spark.jobs.profile.page.markup import Html, tag


class Cell(Struct, frozen=True):
    """One cell: what it shows, what it is sorted by, and how much of a bar it fills (0 to 1)."""

    shown: object
    value: float | str | None = None
    bar: float | None = None


class Head(Struct, frozen=True):
    """The head of a column."""

    text: str
    is_number: bool = True
    is_wide: bool = False


def grid(
    caption: str, heads: Sequence[Head], rows: Iterable[Sequence[Cell]], *, is_sortable: bool = True
) -> Html:
    """Make a table; a wide one scrolls by itself, so that the page need not."""
    head_cells = [
        tag(
            "th",
            tag("button", head.text, type="button") if is_sortable else head.text,
            scope="col",
            class_=_kind(head),
        )
        for head in heads
    ]
    body = [
        tag("tr", [_cell(head, cell) for head, cell in zip(heads, row, strict=True)])
        for row in rows
    ]
    made = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", head_cells)),
        tag("tbody", body),
        data_sort=is_sortable,
    )
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def bar_cell(share: float) -> Cell:
    """Make a cell that is only a bar."""
    width = min(max(share, 0.0), 1.0)
    drawn = tag(
        "span",
        tag("span", style=f"width:{100 * width:.2f}%", class_="fill" if width else "fill none"),
        class_="bar",
        aria_hidden="true",
    )
    return Cell(drawn, width)


def _kind(head: Head) -> str | None:
    return "number" if head.is_number else "wide" if head.is_wide else None


def _cell(head: Head, cell: Cell) -> Html:
    style = None if cell.bar is None else f"--share:{100 * min(max(cell.bar, 0.0), 1.0):.2f}%"
    kinds = [_kind(head) or "", "filled" if cell.bar is not None else ""]
    return tag(
        "td",
        cell.shown,
        class_=" ".join(kinds).strip() or None,
        style=style,
        data_v=cell.value if not isinstance(cell.value, str) else shortened(cell.value),
    )
