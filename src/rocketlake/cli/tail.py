"""`rocketlake tail`: the messages of a store as they arrive."""

import threading
from collections.abc import Iterator

import click
import numpy as np

from rocketlake.cli.json_printer import JsonPrinter
from rocketlake.cli.lines import BodyForm
from rocketlake.cli.message_search import Found, Selection, Selector
from rocketlake.cli.parameters import sql_option, tag_option
from rocketlake.cli.rows import RowPrinter
from rocketlake.cli.store_arguments import StoreArguments, note, opened, takes_store
from rocketlake.format.record import RecordColumns
from rocketlake.store.offline import OfflineStore
from rocketlake.store.offline.follow import Follower


@click.command()
@takes_store
@click.option("--topic", "topics", multiple=True, help="Only this topic, or a pattern (T*).")
@click.option("--queue", type=int, help="Only this queue.")
@tag_option
@sql_option
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    default=10,
    help="Number of newest messages to print first.",
)
@click.option("--limit", type=click.IntRange(1), help="Stop after this many new messages.")
@click.option(
    "--interval", type=click.FloatRange(0.01), default=0.2, help="Seconds between checks."
)
@click.option(
    "--body",
    type=click.Choice([form.value for form in BodyForm]),
    help="How bodies are shown; a body of a table is cut to one line.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def tail(
    *,
    store: StoreArguments,
    topics: tuple[str, ...],
    queue: int | None,
    tag: str | None,
    sql: str | None,
    lines: int,
    limit: int | None,
    interval: float,
    body: str | None,
    as_json: bool,
) -> int:
    """Follow STORE as it grows, until interrupted.

    A broker may keep writing to the store; it is only read.
    """
    form = BodyForm(body or ("base64" if as_json else "text"))
    with opened(store) as (view, reporter):
        selection = Selection(topics=topics, queue=queue, tag=tag, sql=sql)
        selector = Selector(view, selection)
        selector.keys()  # prints a note if a topic does not exist (yet)
        printer = JsonPrinter(view, form) if as_json else RowPrinter(form)
        for found in _last(view, selector, lines):
            printer.write(found)
        printer.finish()
        if view.traits.is_clean and view.traits.held_by is None:
            note("no process has this store open; waiting for messages (Ctrl-C ends)")
        try:
            _follow(Follower(view, view.max_offset), selector, printer, (limit, interval))
        except KeyboardInterrupt:
            return reporter.finish()
        return reporter.finish()


def _follow(
    follower: Follower,
    selector: Selector,
    printer: JsonPrinter | RowPrinter,
    until: tuple[int | None, float],
) -> None:
    left, interval = until
    never = threading.Event()
    while True:
        for chunk in follower.poll():
            for found in selector.of_log(chunk.columns, with_units=False):
                part = found if left is None else found.first(left)
                printer.write(part)
                if left is not None:
                    left -= len(part.columns)
                    if left <= 0:
                        printer.finish()
                        return
        printer.finish()
        never.wait(interval)


def _last(view: OfflineStore, selector: Selector, count: int) -> Iterator[Found]:
    """Yield the newest messages there are, in the order of the log."""
    if count == 0:
        return
    newest: list[tuple[int, Found]] = []
    for key in selector.keys(quiet=True):
        queue = view.queues[key]
        for found in selector.of_queue(key, max(queue.max_offset - count, queue.min_offset)):
            offsets = found.columns["physical_offset"].tolist()
            newest += [(offset, _one(found, i)) for i, offset in enumerate(offsets)]
    for _, found in sorted(newest, key=lambda item: item[0])[-count:]:
        yield found


def _one(found: Found, index: int) -> Found:
    return Found(
        RecordColumns(found.columns.buffer, found.columns.rows[np.array([index])]),
        found.tags_codes[index : index + 1],
        found.queue_offsets[index : index + 1],
        found.batch_sizes[index : index + 1],
    )
