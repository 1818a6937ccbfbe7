"""`rocketlake archive`: topics into Parquet, each message once."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click
import msgspec

from rocketlake.cli.parameters import (
    SIZE,
    compression_option,
    json_option,
    pairs,
    target_size_option,
)
from rocketlake.cli.screen import Bars, console, print_report, table
from rocketlake.cli.spark_options import SparkArguments, needs_spark, takes_spark
from rocketlake.cli.store_arguments import note
from rocketlake.errors import ArchiveBusyError

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.jobs import ArchivePlan, ArchiveReport

# ruff: noqa: PLC0415 - Spark is an extra, and slow to import


class _ArchiveCommand(click.Command):
    """`archive`, which knows that `archive drop` was meant as `archive-drop`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        word = args[0] if args else ""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if word in {"drop", "compact"}:
                words = error.format_message().partition(" Did you mean")[0]
                hint = f"Did you mean `rocketlake archive-{word}`?"
                raise click.UsageError(f"{words} {hint}", ctx) from error
            raise


@click.command(cls=_ArchiveCommand)
@click.argument("store", metavar="STORE")
@click.argument("directory", metavar="DIR")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only this topic, or a pattern (T*); may be repeated. Default: every topic except the"
    " broker's own.",
)
@target_size_option
@click.option(
    "--min-bytes",
    type=SIZE,
    default="0",
    help="Rewrite files below this size with newer messages (default: half the target).",
)
@compression_option
@click.option(
    "--format",
    "format_",
    default="parquet",
    show_default=True,
    metavar="NAME",
    help="Parquet, or a table format that this Spark writes: delta, iceberg, …",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of that format; table=NAME writes to a catalog table.",
)
@click.option(
    "--source-option",
    "source_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the source, such as onDamage=skip or commitLogPath=DIR.",
)
@click.option("--follow", is_flag=True, help="Keep running as STORE grows, until Ctrl-C.")
@click.option(
    "--poll",
    type=click.FloatRange(0.01),
    default=60.0,
    show_default=True,
    help="With --follow: seconds between checks.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be archived.")
@json_option
@takes_spark
def archive(
    *,
    store: str,
    directory: str,
    topics: tuple[str, ...],
    target_size: int,
    min_bytes: int,
    compression: str,
    format_: str,
    options: tuple[str, ...],
    source_options: tuple[str, ...],
    follow: bool,
    poll: float,
    dry_run: bool,
    as_json: bool,
    spark: SparkArguments,
) -> int:
    """Archive what is new in STORE into DIR, by topic and day; the next run continues there.

    STORE may name several stores: a=/data/a,b=/data/b. A broker may keep writing. Each message is
    archived once, even if runs are killed: DIR/_manifest.json lists what the archive holds. Read it
    as one table with the live store by option("archive", DIR) of the Spark source, or alone with
    any program that reads Parquet.

    \b
    rocketlake archive /data/store /archive --dry-run
    rocketlake archive /data/store /archive
    rocketlake archive /data/store /archive --topic 'order*' --master spark://host:7077
    rocketlake archive /data/store /archive --follow --poll 300

    Exit code 1: messages are missing, because they expired before they were archived, could not be
    read, or their topic was deleted and created again.
    """  # noqa: D301 - click wants the character itself
    with needs_spark():
        from rocketlake.spark.jobs import ArchiveSettings, plan_archive
    settings = ArchiveSettings(
        topics=topics or ("*",),
        target_bytes=target_size,
        small_bytes=min_bytes,
        compression=compression,
        format=format_,
        table_options=pairs("--option", options),
        source_options=pairs("--source-option", source_options),
    )
    plan = plan_archive(store, directory, settings)
    if dry_run:
        _show(plan.summary(), as_json=as_json)
        return 1 if plan.gaps or plan.problems else 0
    told = _Told(as_json=as_json)
    if follow:
        _follow(plan, spark, poll, told)
    else:
        told(_run_once(plan, spark))
    return told.code


def _follow(plan: "ArchivePlan", spark: SparkArguments, poll: float, told: "_Told") -> None:
    """Archive until Ctrl-C or SIGTERM."""
    from rocketlake.spark.jobs import ArchiveJob
    from rocketlake.spark.jobs.dispatch.job import stopped_by_signals

    with spark.session("rocketlake archive") as session:
        job = ArchiveJob(session, plan.store, plan.target, settings=plan.settings)
        with stopped_by_signals(job.stop):
            note("following; Ctrl-C ends it")
            job.run(poll, told)


def _run_once(plan: "ArchivePlan", spark: SparkArguments) -> "ArchiveReport":
    """Carry out a plan, or a newer one if the archive has changed since."""
    from rocketlake.spark.jobs.archive.run import catch_up, run_archive

    with Bars() as bars, spark.session("rocketlake archive") as session:
        show = bars.follow("archiving")
        if plan.manifest.pending is None:
            # Another run may have changed the archive since, such as archive-drop.
            with suppress(ArchiveBusyError):
                return run_archive(session, plan, on_progress=show)
        return catch_up(session, plan.store, plan.target, settings=plan.settings, on_progress=show)


class _Told:
    """Prints reports; its exit code is 1 if one reports missing messages."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.code = 0

    def __call__(self, report: "ArchiveReport") -> None:
        """Print a report."""
        print_report(report, as_json=self._as_json)
        if report.gaps or report.problems or report.left_out:
            self.code = 1


def _show(summary: dict[str, object], *, as_json: bool) -> None:
    """Print a plan, as a table or as JSON."""
    if as_json:
        click.echo(msgspec.json.encode(summary))
        return
    out = console()
    days = msgspec.convert(summary["days"], list[dict[str, object]])
    shown = table(
        f"Run {summary['run']}: {summary['messages']} messages for {summary['target']}",
        *("broker", "topic", "date", "#messages", "#files", "#rewritten"),
    )
    for day in days:
        names = ("broker", "topic", "date", "messages", "files", "merges")
        shown.add_row(*(str(day[name]) for name in names))
    out.print(shown)
    for line in msgspec.convert(summary["notes"], list[str]):
        note(line)
