"""`rocketlake dump`: the messages of a store, as a table or as JSON lines."""

import gc
from collections.abc import Iterator

import click

from rocketlake.cli.lines import BodyForm
from rocketlake.cli.opening import StoreArguments, note, opened, takes_store
from rocketlake.cli.printing import JsonPrinter
from rocketlake.cli.rows import RowPrinter
from rocketlake.cli.screen import progress
from rocketlake.cli.select import Found, Selection, Selector, parse_time
from rocketlake.store.offline import OfflineStore


class TimeType(click.ParamType[int]):
    """A time on the command line."""

    name = "TIME"

    def convert(self, value: object, param: object, ctx: object) -> int:
        """Read it."""
        del param, ctx
        return value if isinstance(value, int) else parse_time(str(value))


@click.command()
@takes_store
@click.option("--topic", "topics", multiple=True, help="Only this topic, or this pattern (T*).")
@click.option("--queue", type=int, help="Only this queue.")
@click.option("--from-offset", type=int, default=0, help="From this queue offset on.")
@click.option("--to-offset", type=int, default=1 << 62, help="Up to, without, this one.")
@click.option("--from-time", type=TimeType(), help="Stored at this time or later.")
@click.option("--to-time", type=TimeType(), help="Stored before this time.")
@click.option("--key", help="With this key or unique key.")
@click.option("--tag", help="With this tag; several as 'A || B'.")
@click.option("--sql", help="Whose properties fulfil this SQL92 expression.")
@click.option("--limit", type=click.IntRange(0), help="At most so many.")
@click.option(
    "--body",
    type=click.Choice([form.value for form in BodyForm]),
    help="How bodies are shown: text (plain), hex, base64 (as stored) or none.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
@click.option("--log", "along_log", is_flag=True, help="Walk the commit log, not the queues.")
def dump(
    *,
    store: StoreArguments,
    limit: int | None,
    body: str | None,
    as_json: bool,
    along_log: bool,
    **selection: object,
) -> int:
    """Print the messages of STORE, by topic, queue and offset.

    The store may be in use, copied or not shut down cleanly: it is shown as recovery would leave
    it. Times are milliseconds since 1970 or like 2026-01-31T23:59:59. Exit code 1 says that
    damage was skipped, 2 that the store could not be read.
    """
    form = BodyForm(body or ("base64" if as_json else "text"))
    wanted = Selection(**{**selection, "topics": tuple(selection["topics"])})  # type: ignore[arg-type]  # click checked the types
    gc.disable()  # Why: nothing here makes cycles, and looking for them costs a third of the time
    with opened(store) as (view, reporter):
        selector = Selector(view, wanted)
        found, total = _find(view, selector, wanted, along_log=along_log)
        with progress("messages", total) as advance:
            left = limit
            printer = JsonPrinter(view, form) if as_json else RowPrinter(form)
            for part in found:
                part = part if left is None else part.first(left)  # noqa: PLW2901 - cut
                printer.write(part)
                advance(len(part.columns))
                if left is not None:
                    left -= len(part.columns)
                    if left <= 0:
                        break
            printer.finish()
        return reporter.finish()


def _find(
    view: OfflineStore, selector: Selector, wanted: Selection, *, along_log: bool
) -> tuple[Iterator[Found], int]:
    if wanted.key is not None:
        for text in view.coverage.notes:
            note(text)
        return _by_key(view, selector), 0
    if along_log:
        return selector.along_log(), 0
    return selector.by_queue(), selector.total()


def _by_key(view: OfflineStore, selector: Selector) -> Iterator[Found]:
    """Find messages by key, with a bar while the log is scanned."""
    total = sum(end - begin for begin, end in view.coverage.scans)
    with progress("scanning the log", total) as advance:
        view.on_progress = advance
        yield from selector.by_key()
    view.on_progress = None
