"""`rocketlake salvage`: records that a start cut off, or in raw log files."""

import logging
import shlex
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec
from rich.markup import escape

from rocketlake.cli.export import opened_out, shape_for
from rocketlake.cli.screen import Bars, console, printable, progress, table
from rocketlake.cli.store_arguments import StoreArguments, note
from rocketlake.embedded.open_store import open_store
from rocketlake.errors import StoreError, StoreNotFoundError
from rocketlake.format import names
from rocketlake.model.size_text import size_text
from rocketlake.model.time_text import time_text
from rocketlake.store.exit_hook import closing_on_sigterm
from rocketlake.upkeep.export.rows import BodyColumn, RowMaker
from rocketlake.upkeep.export.writers import Format, open_sink
from rocketlake.upkeep.salvage.cut_off import find_refused
from rocketlake.upkeep.salvage.salvage import (
    RawSource,
    Replayer,
    ReplayReport,
    Summary,
    raw_source,
    salvaged,
    uncut_log,
)

_TOPICS_MAX = 3


@click.command()
@click.argument("store", metavar="[STORE]", required=False)
@click.option("--list", "lists", is_flag=True, help="List what can be salvaged (the default).")
@click.option("--replay", is_flag=True, help="Put the messages again, at the end of STORE.")
@click.option(
    "--out", metavar="FILE", help="Write the messages to a file: .jsonl, .parquet, … (see export)."
)
@click.option(
    "--from",
    "from_",
    metavar="FILE|DIR",
    help="Use the records of raw log files instead of those saved in STORE.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Include messages that were replayed before or are still in STORE.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON lines.")
@click.option("--options", "options_", metavar="FILE|JSON", help="broker.conf of STORE.")
def salvage(
    *,
    store: str | None,
    lists: bool,
    replay: bool,
    out: str | None,
    from_: str | None,
    force: bool,
    as_json: bool,
    options_: str | None,
) -> int:
    """List, export or replay records that are in no queue of STORE any more.

    If good records follow a bad one, a start cuts them off and saves them under STORE/salvage.
    Before such a start, all good records of the log are listed and exported. --replay opens STORE,
    which cuts the log and saves what it cuts, and puts each saved message again, as a new record at
    the end of its queue; messages whose unique key STORE still holds are left out. --from searches
    any file or directory for good records, such as a log without queues or a broken disk.

    \b
    rocketlake salvage /data/store
    rocketlake salvage /data/store --out cut.jsonl
    rocketlake salvage /data/store --replay
    rocketlake salvage --from /mnt/broken/commitlog --out rescued.parquet
    rocketlake salvage /data/new --from /mnt/broken/commitlog --replay

    Exit code 1: a message could not be put again. 2: nothing could be done.
    """  # noqa: D301 - click wants the character itself
    logging.basicConfig(level=logging.ERROR, format="rocketlake: %(message)s")
    if store is None and (from_ is None or replay):
        raise click.UsageError("name the STORE" + (" to replay to" if replay else ""))
    is_raw = from_ is not None
    sources = [raw_source(Path(from_ or ""))] if is_raw else _sources_of(str(store), options_)
    if lists or not (replay or out):
        _list(sources, as_json=as_json)
    if out is not None:
        _export(sources, out, force=force)
    if replay and sources:
        return _replay(str(store), sources if is_raw else None, options_, force=force)
    return 0


def _sources_of(store: str, options: str | None) -> list[RawSource]:
    """Return what starts of a store saved, and its log if the next start would cut it."""
    sources = salvaged(Path(store))
    try:
        with StoreArguments(store, None, options).open() as view:
            uncut, refused = uncut_log(view), find_refused(view)
    except StoreNotFoundError:
        uncut = refused = None  # what was saved can be used without a log
    except StoreError as error:
        uncut = refused = None
        log = shlex.quote(f"{store}/{names.COMMIT_LOG}")
        note(f"the log was not read: {error}; --from {log} reads it without STORE")
    if refused is not None:
        log = shlex.quote(f"{store}/{names.COMMIT_LOG}")
        note(
            f"{refused}: a start refuses the store, and changes nothing. Next: rocketlake salvage"
            f" NEW --from {log} --replay puts every good record into a new store NEW"
        )
    elif uncut is not None:
        note(
            f"{uncut.cut_off}. The next start cuts the log there; RocketLake saves them under"
            " salvage first, RocketMQ does not"
        )
    if uncut is not None:
        sources.append(uncut)
    if not sources and refused is None:
        note(
            f"nothing was cut off {store}, or it was removed: there is no salvage directory in it,"
            " and no good record behind the end of its log"
        )
    return sources


def _list(sources: Iterable[RawSource], *, as_json: bool) -> None:
    summaries = []
    for source in sources:
        with progress(f"looking at {source.path.name}", source.size) as advance:
            summaries.append((source, source.summary(advance)))
    if as_json:
        for source, summary in summaries:
            click.echo(msgspec.json.encode(_object(source, summary)))
        return
    if not summaries:
        return
    shown = table("", "WHERE", "#RECORDS", "#BYTES", "STORED", "TOPICS", "STATE")
    for source, summary in summaries:
        times = f"{time_text(summary.first_timestamp)} … {time_text(summary.last_timestamp)}"
        shown.add_row(
            escape(printable(str(source.path))),
            str(summary.records),
            size_text(summary.bytes),
            times if summary.records else "-",
            escape(_topics_text(summary)),
            _state(source),
        )
    console().print(shown)
    for source, _ in summaries:
        if source.description is not None:
            where = f"{source.description.path} at {source.description.position}"
            console().print(escape(f"{source.path.name}: {where}: {source.description.reason}"))


def _object(source: RawSource, summary: Summary) -> dict[str, object]:
    found = {"path": str(source.path), **msgspec.to_builtins(summary)}
    if source.description is not None:
        found["cut"] = msgspec.to_builtins(source.description)
    if source.cut_off is not None:
        found["cut_off"] = msgspec.to_builtins(source.cut_off)
    return found


def _topics_text(summary: Summary) -> str:
    named = [f"{printable(topic)} {count}" for topic, count in summary.topics.items()]
    more = len(named) - _TOPICS_MAX
    return ", ".join(named[:_TOPICS_MAX]) + (f", {more} more" if more > 0 else "") or "-"


def _state(source: RawSource) -> str:
    if source.cut_off is not None:
        return f"{source.cut_off.records} not cut off yet"
    if source.description is None:
        return "-"
    replayed = source.description.replayed_at
    return f"replayed {replayed}" if replayed is not None else "not replayed"


def _export(sources: list[RawSource], out: str, *, force: bool) -> None:
    shape = shape_for(out, Format.JSONL if out == "-" else None)
    maker = RowMaker(BodyColumn.BYTES)
    count = 0
    total = sum(source.size for source in sources)
    with opened_out(out, force=force) as stream, progress("records", total) as advance:
        sink = open_sink(shape, stream, BodyColumn.BYTES)
        for source in sources:
            for columns in source.records(advance):
                sink.write(maker.rows(columns, columns["queue_offset"].tolist()))
                count += len(columns)
        sink.close()
    note(f"{count} records in {out}")


def _replay(
    store: str, sources: list[RawSource] | None, options: str | None, *, force: bool
) -> int:
    """Put messages of sources again; None: of what starts of the store saved."""
    if not Path(store).exists():
        note(f"{store} does not exist: a new store is created there")
    refused = 0
    with Bars() as bars:
        opening = bars.follow("opening the store")
        with closing_on_sigterm(), open_store(store, options, on_progress=opening) as opened:
            bars.end()
            settled = opened.options
            can_find = settled.has_index and settled.index_file_read_enable
            if not can_find and not force:
                note(f"{store} keeps no index: nothing tells which of the messages it still holds")
            replayer = Replayer(opened, force=force)
            # Order: the store is open, so that what this start has cut off is among them.
            found = salvaged(Path(store)) if sources is None else sources
            for source in _wanted(found, force=force):
                advance = bars.begin(f"replaying {source.path.name}", source.size)
                report = replayer.replay(source, advance)
                bars.end()
                click.echo(f"{source.path}: {_report_text(report)}")
                refused += report.refused
    return 1 if refused else 0


def _wanted(sources: list[RawSource], *, force: bool) -> list[RawSource]:
    wanted = [source for source in sources if force or not source.is_replayed]
    for source in sources:
        if source not in wanted:
            note(f"{source.path.name} was replayed before; --force replays it again")
    return wanted


def _report_text(report: ReplayReport) -> str:
    parts = [f"{report.put} message{'' if report.put == 1 else 's'} put again"]
    if report.keyless:
        parts[0] += f" ({report.keyless} without a unique key: once more would repeat them)"
    if report.held:
        parts.append(f"{report.held} are still in the store")
    if report.left_out:
        parts.append(f"{report.left_out} halves of transactions and records of the broker left out")
    if report.refused:
        parts.append(f"{report.refused} refused, the first being {report.first_refusal}")
    return "; ".join(parts)
