"""Tables on stdout, progress on stderr; NO_COLOR and plain pipes are honoured."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

_PIPE_WIDTH = 200


def console() -> Console:
    """Return where results go; a pipe has room for wide tables."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def table(title: str, *columns: str) -> Table:
    """Return an empty table; columns whose name begins with `#` hold numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in columns:
        is_number = name.startswith("#")
        made.add_column(name.removeprefix("#"), justify="right" if is_number else "left")
    return made


def printable(text: str) -> str:
    """Make control characters visible: a body or a name must not command the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def time_text(timestamp_ms: int | None) -> str:
    """Spell a time of a record in local time; `-` for none."""
    if timestamp_ms is None or timestamp_ms <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # a damaged record may hold any number
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def size_text(size: int) -> str:
    """Spell a number of bytes."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{size} B"


class Advance(Protocol):
    """Tells a progress bar how much more is done."""

    def __call__(self, amount: int) -> None:
        """Go on by an amount."""
        ...


@contextmanager
def progress(text: str, total: int) -> Iterator[Advance]:
    """Show a bar on stderr while something runs, if a person is looking there."""
    err = Console(stderr=True)
    if not err.is_terminal or total <= 0:
        yield lambda amount: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    # What is printed meanwhile must go to stdout, not through the bar's console.
    with Progress(
        *columns, console=err, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task = bar.add_task(text, total=total)
        yield lambda amount: bar.advance(task, amount)
