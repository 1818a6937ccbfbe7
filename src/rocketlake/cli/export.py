"""`rocketlake export`: the messages of a store as a file for other programs."""

import gc
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import click

from rocketlake.cli.dump import find
from rocketlake.cli.message_search import Selection
from rocketlake.cli.screen import Bars
from rocketlake.cli.selection_options import takes_selection
from rocketlake.cli.store_arguments import (
    StoreArguments,
    note,
    opened,
    stdout_is_terminal,
    takes_store,
)
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.size_text import size_text
from rocketlake.store.offline import OfflineStore
from rocketlake.upkeep.export.new_file import NewFile
from rocketlake.upkeep.export.rows import BodyColumn, RowMaker
from rocketlake.upkeep.export.writers import Format, Shape, open_sink, shape_of

_BUFFER = 1 << 20


@click.command()
@takes_store
@click.argument("out", metavar="OUT")
@click.option(
    "--format",
    "format_",
    type=click.Choice([item.value for item in Format]),
    help="Format, if the name of OUT does not imply it (default for stdout: jsonl).",
)
@click.option(
    "--body",
    type=click.Choice([item.value for item in BodyColumn]),
    default="bytes",
    help="Column body: bytes (base64 except in Parquet), text (as UTF-8), or none.",
)
@click.option("--raw", is_flag=True, help="Export bodies as stored, without decompressing them.")
@click.option("-f", "--force", is_flag=True, help="Replace OUT if it exists.")
@takes_selection
@click.option("--limit", type=click.IntRange(0), help="Print at most this many messages.")
@click.option("--log", "along_log", is_flag=True, help="Read the commit log instead of the queues.")
def export(
    *,
    store: StoreArguments,
    out: str,
    format_: str | None,
    body: str,
    raw: bool,
    force: bool,
    wanted: Selection,
    limit: int | None,
    along_log: bool,
) -> int:
    """Write the messages of STORE to OUT: .parquet, .jsonl or .csv; - is stdout.

    JSON lines and CSV may be compressed: .jsonl.gz, .csv.zst. OUT appears only when it is complete.
    Times are UTC: a timestamp in Parquet, milliseconds since 1970 elsewhere.

    \b
    rocketlake export /data/store orders.parquet --topic orders
    rocketlake export /data/store - --from-time 2026-01-31T08:00 --body text | jq .body
    rocketlake export /data/store all.jsonl.zst

    Exit code 1: damage was skipped, and the rest is exported. 2: nothing was written.
    """  # noqa: D301 - click wants the character itself
    chosen = Format(format_) if format_ is not None else None
    shape = shape_for(out, chosen)
    column = BodyColumn(body)
    gc.disable()  # Why: as in dump
    with opened(store) as (view, reporter), Bars() as bars:
        maker = RowMaker(column, is_raw=raw, on_bad_body=lambda at, why: _report(view, at, why))
        with opened_out(out, force=force) as stream:
            sink = open_sink(shape, stream, column)
            count, left = 0, limit
            for part in find(view, wanted, bars, along_log=along_log):
                part = part if left is None else part.first(left)  # noqa: PLW2901 - cut
                if out == "-" and stdout_is_terminal():
                    bars.end()  # lines and a bar would overwrite each other
                sink.write(maker.rows(part.columns, part.queue_offsets))
                count += len(part.columns)
                if left is not None:
                    left -= len(part.columns)
                    if left <= 0:
                        break
            sink.close()
        bars.end()
        if sink.odd_times:
            note(
                f"{sink.odd_times} messages have a time outside the years 1 to 9999: it is null"
                " (JSON lines and CSV have its number)"
            )
        if out != "-":
            size = Path(out).stat().st_size
            note(f"{count} messages in {out} ({size_text(size)})")
        return reporter.finish()


def shape_for(out: str, chosen: Format | None) -> Shape:
    """Return the format of OUT."""
    if out == "-":
        shape = Shape(chosen or Format.JSONL)
        if shape.format is Format.PARQUET and stdout_is_terminal():
            raise click.UsageError(
                "Parquet cannot be printed on a terminal; name a file, or use a pipe"
            )
        return shape
    try:
        return shape_of(Path(out), chosen)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def opened_out(out: str, *, force: bool) -> Iterator[IO[bytes]]:
    """Open the stream of OUT; a file gets its name when it is complete."""
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    path = Path(out)
    if path.exists() and not path.is_dir() and not force:
        raise click.UsageError(f"{out} exists; --force replaces it")
    new = NewFile(PosixFileOps(), path)
    try:
        buffered = io.BufferedWriter(cast(io.RawIOBase, new), _BUFFER)
        yield cast(IO[bytes], buffered)
        buffered.flush()
        new.commit()
    finally:
        new.abandon()


def _report(view: OfflineStore, physical_offset: int, reason: str) -> None:
    path, position = view.log.describe(physical_offset)
    text = f"the body cannot be inflated and is exported as it is stored: {reason}"
    view.damage.report(path, position, text)
