"""`rocketlake dump`: the messages of a store, as a table or as JSON lines."""

import gc
from collections.abc import Iterator

import click

from rocketlake.cli.json_printer import JsonPrinter
from rocketlake.cli.lines import BodyForm
from rocketlake.cli.message_search import Found, Selection, Selector
from rocketlake.cli.rows import RowPrinter
from rocketlake.cli.screen import Bars
from rocketlake.cli.selection_options import takes_selection
from rocketlake.cli.store_arguments import (
    StoreArguments,
    note,
    opened,
    stdout_is_terminal,
    takes_store,
)
from rocketlake.store.offline import OfflineStore


@click.command()
@takes_store
@takes_selection
@click.option("--limit", type=click.IntRange(0), help="Print at most this many messages.")
@click.option(
    "--body",
    type=click.Choice([form.value for form in BodyForm]),
    help="How bodies are shown: text (plain), hex, base64 (as stored) or none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--log", "along_log", is_flag=True, help="Read the commit log instead of the queues.")
def dump(
    *,
    store: StoreArguments,
    wanted: Selection,
    limit: int | None,
    body: str | None,
    as_json: bool,
    along_log: bool,
) -> int:
    """Print the messages of STORE, by topic, queue and offset.

    The store may be in use, a copy, or not shut down cleanly: it is shown as recovery would leave
    it. Exit code 1: damage was skipped. 2: the store could not be read.
    """
    form = BodyForm(body or ("base64" if as_json else "text"))
    gc.disable()  # Why: nothing here makes cycles, and looking for them costs a third of the time
    with opened(store) as (view, reporter), Bars() as bars:
        left = limit
        printer = JsonPrinter(view, form) if as_json else RowPrinter(form)
        for part in find(view, wanted, bars, along_log=along_log):
            part = part if left is None else part.first(left)  # noqa: PLW2901 - cut
            if stdout_is_terminal():
                bars.end()  # rows and a bar would overwrite each other
            printer.write(part)
            if left is not None:
                left -= len(part.columns)
                if left <= 0:
                    break
        bars.end()
        printer.finish()
        return reporter.finish()


def find(view: OfflineStore, wanted: Selection, bars: Bars, *, along_log: bool) -> Iterator[Found]:
    """Yield the messages of a selection, with a progress bar."""
    selector = Selector(view, wanted)
    if wanted.key is not None:
        for text in view.coverage.notes:
            note(text)
        total = sum(end - begin for begin, end in view.coverage.scans)
        view.on_progress = bars.begin("scanning the log", total)
        yield from selector.by_key()
        view.on_progress = None
    elif along_log:
        yield from selector.along_log()
    else:
        advance = bars.begin("messages", selector.total())
        for found in selector.by_queue():
            advance(len(found.columns))
            yield found
