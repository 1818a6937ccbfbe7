"""`rocketlake grep`: messages that match a pattern, as rows with the match or as JSON lines."""

import gc
from collections.abc import Callable, Iterator

import click
from msgspec import Struct
from msgspec.structs import replace

from rocketlake.cli.dump import find
from rocketlake.cli.json_printer import JsonPrinter
from rocketlake.cli.lines import BodyForm
from rocketlake.cli.message_search import Found, Selection, Selector
from rocketlake.cli.rows import AlignedRows, styled
from rocketlake.cli.screen import Bars, printable
from rocketlake.cli.selection_options import takes_selection
from rocketlake.cli.store_arguments import (
    Reporter,
    StoreArguments,
    opened,
    stdout_is_terminal,
    takes_store,
)
from rocketlake.format.record import RecordColumns
from rocketlake.model.time_text import time_text
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.search.matcher import Field, Hit, Matcher, Wish

_HEADER = ("TOPIC", "QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "IN", "MATCH")
_NUMBERS = frozenset({1, 2})
_BEFORE, _SHOWN = 30, 100
_MATCH_STYLE = "1;31"

Advance = Callable[[int], None]


class FieldsType(click.ParamType[frozenset[Field]]):
    """Parts of a message, separated by commas."""

    name = "FIELD[,FIELD…]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[Field]:
        """Read them."""
        if isinstance(value, frozenset):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        try:
            return frozenset(Field(part) for part in parts)
        except ValueError:
            known = ", ".join(field.value for field in Field)
            self.fail(f"{value!r} is not a part of a message; known: {known}", param, ctx)


class Finds(Struct, frozen=True):
    """Messages that are wanted, and where each matched (None with --invert)."""

    found: Found
    hits: list[Hit | None]


@click.command()
@takes_store
@click.argument("pattern")
@click.option("-F", "--fixed", is_flag=True, help="Treat PATTERN as plain text.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case.")
@click.option("-v", "--invert", is_flag=True, help="Print messages that do not match.")
@click.option(
    "-c", "--count", "only_count", is_flag=True, help="Print only the number of messages."
)
@click.option("-m", "--max", "limit", type=click.IntRange(1), help="Stop after this many messages.")
@click.option(
    "--in",
    "fields",
    type=FieldsType(),
    default=frozenset(Field),
    show_default="all",
    help="Where to search: body, keys, tags, properties, topic.",
)
@click.option("--encoding", default="utf-8", show_default=True, help="Text encoding of bodies.")
@takes_selection
@click.option("--log", "along_log", is_flag=True, help="Include records that no queue points to.")
@click.option(
    "--body",
    type=click.Choice([form.value for form in BodyForm]),
    default="base64",
    help="How --json shows bodies: text (plain), hex, base64 (as stored) or none.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, as dump does."
)
def grep(
    *,
    store: StoreArguments,
    pattern: str,
    fixed: bool,
    ignore_case: bool,
    invert: bool,
    only_count: bool,
    limit: int | None,
    fields: frozenset[Field],
    encoding: str,
    wanted: Selection,
    along_log: bool,
    body: str,
    as_json: bool,
) -> int:
    """Print the messages of STORE that match PATTERN, a Python regular expression.

    Bodies are searched uncompressed. A property matches by its value or as name=value. Messages
    come in log order; with --topic, --queue or --key they come by queue, as dump prints them.

    \b
    rocketlake grep /data/store 'timeout after [0-9]+ ms'
    rocketlake grep /data/store -F o-1001 --in keys --topic 'order*'
    rocketlake grep /data/store '^region=EU$' --in properties -c

    Exit codes are those of grep. 0: a message matched. 1: none did. 2: an error, or skipped damage
    could have matched.
    """  # noqa: D301 - click wants the character itself
    wish = Wish(
        pattern=pattern,
        fields=fields,
        is_fixed=fixed,
        ignore_case=ignore_case,
        encoding=encoding,
    )
    try:
        matcher = Matcher(wish)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    gc.disable()  # Why: as in dump
    with opened(store) as (view, reporter), Bars() as bars:
        search = _Search(view, matcher, bars, is_inverted=invert)
        count = 0
        printer = _printer(view, body, as_json=as_json, only_count=only_count)
        for finds in search.run(wanted, along_log=along_log):
            part = finds
            if limit is not None and count + len(finds.hits) >= limit:
                part = Finds(finds.found.first(limit - count), finds.hits[: limit - count])
            count += len(part.hits)
            if stdout_is_terminal() and not only_count:
                bars.end()  # what is found shows how it goes
            printer.write(part)
            if limit is not None and count >= limit:
                break
        bars.end()
        printer.finish(count)
        return _exit_code(reporter, count)


def _exit_code(reporter: Reporter, count: int) -> int:
    if reporter.finish():
        return 2
    return 0 if count else 1


class _Search:
    """Finds the matching messages of one store."""

    def __init__(
        self, view: OfflineStore, matcher: Matcher, bars: Bars, *, is_inverted: bool
    ) -> None:
        self._view = view
        self._bars = bars
        self._matcher = matcher
        self._is_inverted = is_inverted

    def run(self, wanted: Selection, *, along_log: bool) -> Iterator[Finds]:
        """Yield the messages of a selection that match."""
        by_queue = bool(wanted.topics) or wanted.queue is not None or wanted.key is not None
        if by_queue and not along_log:
            yield from self._of_parts(find(self._view, wanted, self._bars, along_log=False))
            return
        selector = Selector(self._view, wanted)
        begin = _begin(self._view, wanted.from_time)
        advance = self._bars.begin("searching the log", self._view.max_offset - begin)
        for found in self._along_log(selector, begin, advance):
            # What no queue holds is no message (any more), unless the log itself is asked for.
            rows = [row for row, queued in enumerate(found.queued or ()) if queued]
            kept = found if along_log else replace(found.only(rows), queued=None)
            yield from self._of_found(kept)

    def _of_parts(self, parts: Iterator[Found]) -> Iterator[Finds]:
        for part in parts:
            if self._is_inverted:
                yield from self._of_found(part)
            else:
                keep = self._matcher.may_match(part.columns)
                yield from self._of_found(part.only(keep.nonzero()[0].tolist()))

    def _along_log(self, selector: Selector, begin: int, advance: Advance) -> Iterator[Found]:
        for chunk in self._view.walk(begin):
            columns = chunk.columns
            advance(int(columns["size"].sum()))
            if not self._is_inverted:
                keep = self._matcher.may_match(columns)
                columns = RecordColumns(columns.buffer, columns.rows[keep])
            if len(columns):
                yield from selector.of_log(columns)

    def _of_found(self, found: Found) -> Iterator[Finds]:
        rows, hits = [], []
        for row, message in enumerate(found.columns.messages()):
            hit = self._matcher.match(message)
            if (hit is None) is self._is_inverted:
                rows.append(row)
                hits.append(hit)
        if rows:
            yield Finds(found.only(rows), hits)


def _begin(view: OfflineStore, from_time: int | None) -> int:
    """Return where to begin: the newest file that begins before a time, or the first."""
    if from_time is not None:
        for file in reversed(view.log.files):
            first = view.log.first_timestamp(file)
            if first is not None and first < from_time:
                return file.base_offset
    return view.log.min_offset


# --- printing --------------------------------------------------------------------------------


class _Rows:
    """A row for each message, with the text around the match."""

    def __init__(self) -> None:
        self._rows = AlignedRows(_HEADER, _NUMBERS)

    def write(self, finds: Finds) -> None:
        """Write a row for each message."""
        self._rows.add(list(_rows_of(finds)))

    def finish(self, count: int) -> None:
        """Write what is buffered."""
        del count
        self._rows.finish()


class _Lines:
    """JSON lines, as dump prints them."""

    def __init__(self, printer: JsonPrinter) -> None:
        self._printer = printer

    def write(self, finds: Finds) -> None:
        """Write a line for each message."""
        self._printer.write(finds.found)

    def finish(self, count: int) -> None:
        """Write what is buffered."""
        del count
        self._printer.finish()


class _Count:
    """Counts messages and prints only their number."""

    def write(self, finds: Finds) -> None:
        """Write nothing."""

    def finish(self, count: int) -> None:
        """Print the number."""
        click.echo(count)


def _printer(
    view: OfflineStore, body: str, *, as_json: bool, only_count: bool
) -> _Rows | _Lines | _Count:
    if only_count:
        return _Count()
    return _Lines(JsonPrinter(view, BodyForm(body))) if as_json else _Rows()


def _rows_of(finds: Finds) -> Iterator[tuple[str, ...]]:
    found = finds.found
    messages = zip(found.columns.messages(), found.queue_offsets, finds.hits, strict=True)
    for message, offset, hit in messages:
        yield (
            printable(message.topic),
            str(message.queue_id),
            str(offset),
            time_text(message.store_timestamp),
            printable(message.tags or "-"),
            printable(" ".join(message.keys) or "-"),
            printable(hit.where) if hit is not None else "-",
            _excerpt(hit) if hit is not None else "-",
        )


def _excerpt(hit: Hit) -> str:
    """Return the text around a match, which stands out on a terminal."""
    first = max(hit.begin - _BEFORE, 0)
    last = max(hit.end, min(first + _SHOWN, len(hit.text)))
    last = min(last, hit.begin + 2 * _SHOWN)
    end = min(hit.end, last)
    before, match, behind = (
        printable(hit.text[begin:stop])
        for begin, stop in ((first, hit.begin), (hit.begin, end), (end, last))
    )
    match = styled(match, _MATCH_STYLE) if match else ""
    return f"{'…' if first else ''}{before}{match}{behind}{'…' if last < len(hit.text) else ''}"
