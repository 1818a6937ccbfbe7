"""Tables on stdout, progress on stderr; NO_COLOR and plain pipes are honoured."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, Self

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

_PIPE_WIDTH = 200


def console() -> Console:
    """Return the console for results; in a pipe it is wide."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def table(title: str, *columns: str) -> Table:
    """Return an empty table; columns whose name begins with `#` hold numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in columns:
        is_number = name.startswith("#")
        made.add_column(name.removeprefix("#"), justify="right" if is_number else "left")
    return made


class Report(Protocol):
    """The report of a job."""

    def lines(self) -> Iterable[str]:
        """Return the report as lines of text."""
        ...


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the report of a job as text, or as one JSON object."""
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        for line in report.lines():
            click.echo(line)


def printable(text: str) -> str:
    """Escape control characters: a body or a name must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Advance(Protocol):
    """Advances a progress bar."""

    def __call__(self, amount: int) -> None:
        """Advance by an amount."""
        ...


class Progressed(Protocol):
    """Sets a progress bar: how much is done, and of how much."""

    def __call__(self, done: int, total: int) -> None:
        """Set the progress."""
        ...


@contextmanager
def progress(text: str, total: int) -> Iterator[Advance]:
    """Show a bar on stderr while the block runs, if stderr is a terminal."""
    with _bar(text, total) as bar:
        if bar is None:
            yield lambda amount: None
        else:
            yield lambda amount: bar.advance(bar.task_ids[0], amount)


@contextmanager
def progress_of_unknown(text: str) -> Iterator[Progressed]:
    """Show a bar once the first update tells its length."""
    with _bar(text, None) as bar:
        if bar is None:
            yield lambda done, total: None
        else:
            task = bar.task_ids[0]
            yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def _bar(text: str, total: int | None) -> Iterator[Progress | None]:
    err = Console(stderr=True)
    if not err.is_terminal or (total is not None and total <= 0):
        yield None
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
        bar.add_task(text, total=total, visible=total is not None)
        yield bar


class Bars:
    """A sequence of progress bars, one at a time."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def begin(self, text: str, total: int) -> Callable[[int], None]:
        """Replace the current bar by another."""
        self._open.close()
        return self._open.enter_context(progress(text, total))

    def end(self) -> None:
        """Remove the bar, so that output can be printed."""
        self._open.close()

    def follow(self, text: str) -> Callable[[int, int], None]:
        """Return a callback for progress; its first call shows the bar."""
        bar: list[Callable[[int], None]] = []
        reached = 0

        def show(done: int, total: int) -> None:
            nonlocal reached
            if not bar:
                bar.append(self.begin(text, total))
            bar[0](done - reached)
            reached = done

        return show
