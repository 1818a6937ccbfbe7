"""`rocketlake profile`: what is in a store, over time, as a page for people."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from rocketlake.cli import screen
from rocketlake.cli.export import opened_out
from rocketlake.cli.parameters import from_time_option, to_time_option
from rocketlake.cli.spark_options import SparkArguments, load, takes_spark
from rocketlake.cli.store_arguments import commitlog_option, note, options_option
from rocketlake.model.size_text import size_text
from rocketlake.model.time_text import time_text

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.jobs.profile.report import Profile

_TOPICS_SHOWN = 10


@click.command()
@click.argument("stores", metavar="STORE…", nargs=-1, required=True)
@click.option("--out", metavar="FILE", help="Write a self-contained HTML page.")
@click.option("--tables", metavar="DIR", help="Write each table as a Parquet file.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole profile as one JSON object.")
@click.option("-f", "--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@from_time_option
@to_time_option
@click.option(
    "--top",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Number of topics shown in detail, of tags per topic, and of keys.",
)
@click.option("--no-keys", is_flag=True, help="Skip the pass over message keys.")
@commitlog_option
@options_option
@click.option("--dry-run", is_flag=True, help="Show what would be read; read nothing.")
@takes_spark
def profile(
    *,
    stores: tuple[str, ...],
    out: str | None,
    tables: str | None,
    as_json: bool,
    force: bool,
    topics: tuple[str, ...],
    from_time: int | None,
    to_time: int | None,
    top: int,
    no_keys: bool,
    commitlog: str | None,
    options_: str | None,
    dry_run: bool,
    spark: SparkArguments,
) -> None:
    """Report what stands out in STORE over time: rates, sizes, latency, skew, keys, groups.

    \b
    rocketlake profile /data/store --out report.html
    rocketlake profile /data/broker-a /data/broker-b --out both.html --tables numbers/
    rocketlake profile /data/store --topic orders --from-time 2026-01-31T08:00 --json | jq .findings

    Bodies are not read. Damage is skipped and reported.
    """  # noqa: D301 - click wants the character itself
    planning = load("rocketlake.spark.jobs.profile.plan")
    settings = planning.ProfileSettings(
        topics=topics,
        from_time=from_time,
        to_time=to_time,
        top=top,
        with_keys=not no_keys,
        commit_log_path=commitlog,
        options=options_,
    )
    plan = planning.plan_profile(stores, settings)
    if dry_run:
        for line in plan.lines():
            click.echo(screen.printable(line))
        return
    if out is not None and Path(out).exists() and not force:
        raise click.UsageError(f"{out} exists; --force replaces it")
    running = load("rocketlake.spark.jobs.profile.run")
    with (
        spark.session("rocketlake profile") as session,
        screen.progress_of_unknown("profiling") as on_progress,
    ):
        found = running.run_profile(session, plan, on_progress=on_progress)
    if as_json:
        click.echo(found.to_json())
    else:
        show(found)
    if tables is not None:
        paths = found.save_tables(Path(tables))
        note(f"{len(paths)} tables in {tables}")
    if out is not None:
        _save_page(found, out, force=force)


def _save_page(found: "Profile", out: str, *, force: bool) -> None:
    with opened_out(out, force=force) as stream:
        stream.write(found.page().encode())
    note(f"the page is {out}")


def show(found: "Profile") -> None:
    """Print the first screen of a profile."""
    out = screen.console()
    out.print(f"[bold]{_safe(found.summary.store)}[/bold]")
    out.print(_safe(load("rocketlake.spark.jobs.profile.page.document").first_line(found.summary)))
    for finding in found.findings:
        kind = f"[bold red]{finding.kind}[/]" if finding.is_warning else f"[dim]{finding.kind}[/]"
        out.print(f"  {kind}: {_safe(finding.text)}")
    for text in found.notes:
        note(screen.printable(text))
    if not found.topics:
        return
    out.print()
    table = screen.table("Topics", "topic", "#messages", "#bytes", "#p99 latency", "last stored")
    for row in found.topics[:_TOPICS_SHOWN]:
        latency = "-" if row.latency_p99 is None else f"{row.latency_p99:,.0f} ms"
        table.add_row(
            _safe(row.topic),
            f"{row.messages:,}",
            size_text(row.bytes),
            latency,
            time_text(row.last_ms),
        )
    out.print(table)
    if len(found.topics) > _TOPICS_SHOWN:
        out.print(f"[dim]and {len(found.topics) - _TOPICS_SHOWN:,} topics more[/dim]")


def _safe(text: str) -> str:
    return escape(screen.printable(text))
