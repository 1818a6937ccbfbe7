"""`rocketlake verify`: check that a store is sound."""

import itertools

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from rocketlake.cli import screen
from rocketlake.cli.parameters import json_option
from rocketlake.cli.spark_options import SparkArguments, may_take_spark, needs_spark
from rocketlake.cli.store_arguments import StoreArguments, note, takes_store
from rocketlake.model.size_text import size_text
from rocketlake.store.offline import Finding, OfflineStore
from rocketlake.upkeep.verify.findings import Fault, Pending
from rocketlake.upkeep.verify.verifier import (
    WHAT,
    Verifier,
    VerifyOptions,
    VerifySummary,
    plan_verify,
    total_bytes,
)

_SHOWN = 20


@click.command()
@takes_store
@json_option
@click.option(
    "--limit",
    type=click.IntRange(0),
    help=f"Show at most this many findings of each kind (default: {_SHOWN}; with --json all).",
)
@click.option("--jobs", type=click.IntRange(1), help="Worker threads (default: one per core).")
@click.option(
    "--only",
    type=click.Choice(sorted(WHAT)),
    multiple=True,
    help="Check only this part against the log; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be read; read nothing.")
@may_take_spark
def verify(
    *,
    store: StoreArguments,
    as_json: bool,
    limit: int | None,
    jobs: int | None,
    only: tuple[str, ...],
    dry_run: bool,
    spark: SparkArguments | None,
) -> int:
    """Check STORE: every record, queue unit and index entry against each other, and the tables.

    Nothing is changed. The store may be in use. What the next start repairs by itself, such as a
    torn end, is reported as pending, not as a finding. Exit code 0: the store is sound. 1: it has
    findings. 2: it could not be read.
    """
    options = VerifyOptions(what=frozenset(only) or WHAT, jobs=jobs or 0)
    with store.open() as view:
        if view.traits.has_rocksdb_queues:
            note("the queues are in RocksDB, and are not checked")
        if view.traits.has_dledger_log:
            note("the log is in DLedger, which is not read: queues and index are not checked")
        if dry_run:
            screen.print_report(plan_verify(view, options), as_json=as_json)
            return 0
        if spark is not None:
            summary, faults = _on_spark(view, options, spark)
        else:
            summary, faults = _in_threads(view, options)
    if as_json:
        shown = faults if limit is None else faults[:limit]
        click.echo(as_object(shown, summary))
    else:
        out = screen.console()
        print_findings(out, faults, summary, _SHOWN if limit is None else limit)
        print_summary(out, summary)
    return 0 if summary.is_sound else 1


def _in_threads(view: OfflineStore, options: VerifyOptions) -> tuple[VerifySummary, list[Fault]]:
    verifier = Verifier(view, options)
    with screen.progress("verifying", total_bytes(view, options.what)) as advance:
        summary = verifier.run(on_bytes=advance)
    return summary, verifier.ledger.faults


def _on_spark(
    view: OfflineStore, options: VerifyOptions, spark: SparkArguments
) -> tuple[VerifySummary, list[Fault]]:
    with needs_spark():
        from rocketlake.spark.jobs.verify import run_verify  # noqa: PLC0415 - an extra
    with (
        spark.session("rocketlake verify") as session,
        screen.progress_of_unknown("verifying") as on_progress,
    ):
        report = run_verify(session, view, options, on_progress=on_progress)
    return report.summary, report.faults


def as_object(faults: list[Fault], summary: VerifySummary) -> bytes:
    """Return findings and summary as one JSON object."""
    findings = [Finding(fault.path, fault.position, fault.reason) for fault in faults]
    return msgspec.json.encode({"findings": findings, "summary": summary})


def print_findings(out: Console, faults: list[Fault], summary: VerifySummary, limit: int) -> None:
    """Print the findings of each kind as a table."""
    by_kind = sorted(faults, key=lambda fault: list(summary.kinds).index(fault.kind.value))
    for kind, found in itertools.groupby(by_kind, key=lambda fault: fault.kind.value):
        count = summary.kinds[kind]
        table = screen.table(f"{kind[0].upper()}{kind[1:]}: {count}", "path", "#position", "reason")
        for shown, fault in enumerate(found):
            if shown == limit:
                break
            table.add_row(
                _safe(_within(fault.path, summary.path)), str(fault.position), _safe(fault.reason)
            )
        out.print(table)
        if count > limit:
            out.print(f"[dim]and {count - limit} more (--limit, --json)[/dim]")
        out.print()


def print_summary(out: Console, summary: VerifySummary) -> None:
    """Print what was checked, and the verdict."""
    for text in pending_texts(summary.pending):
        out.print(f"[dim]pending: {_safe(text)}[/dim]")
    if summary.deleted_topics:
        count = sum(summary.deleted_topics.values())
        named = ", ".join(sorted(summary.deleted_topics))
        out.print(f"[dim]{count} records are of deleted topics: {_safe(named)}[/dim]")
    if summary.earlier_lives:
        text = f"{summary.earlier_lives} records are of topics that were made again since"
        out.print(f"[dim]{text}[/dim]")
    looked = (
        f"{summary.records} records ({size_text(summary.bytes)}) in {summary.files} files, "
        f"{summary.units} units in {summary.queues} queues, {summary.keys} keys"
    )
    verdict = "[green]sound[/green]" if summary.is_sound else "[red]not sound[/red]"
    found = "no findings" if summary.is_sound else f"{summary.findings} findings"
    out.print(f"[bold]{_safe(summary.path)}[/bold]  {summary.state}: {looked}; {found}: {verdict}")


def pending_texts(pending: Pending) -> list[str]:
    """Return texts of what the next start repairs by itself."""
    counted = (
        (pending.torn_bytes, "bytes behind the last good record, which a start cuts off"),
        (pending.not_dispatched, "messages that a start puts into their queues"),
        (pending.units_to_cut, "units behind the end of the log, which a start cuts off"),
        (pending.keys_to_index, "keys that a start puts into the index"),
    )
    return [f"{count} {text}" for count, text in counted if count] + pending.notes


def _within(path: str, root: str) -> str:
    return path.removeprefix(root).lstrip("/") or path


def _safe(text: str) -> str:
    return escape(screen.printable(text))
