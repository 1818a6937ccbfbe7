"""`rocketlake rebuild`: rebuild queues and index from the log on Spark."""

from pathlib import Path

import click
import msgspec

from rocketlake.cli import screen
from rocketlake.cli.backup import tell
from rocketlake.cli.parameters import json_option
from rocketlake.cli.spark_options import SparkArguments, needs_spark, takes_spark
from rocketlake.cli.store_arguments import Reporter, StoreArguments, note, takes_store
from rocketlake.upkeep.backup.copier import Listener
from rocketlake.upkeep.file_queue_copy import copy_with_file_queues, plan_copy


@click.command()
@takes_store
@takes_spark
@click.option(
    "--what",
    type=click.Choice(["all", "queues", "index"]),
    default="all",
    show_default=True,
    help="Rebuild only the queues, or only the index.",
)
@click.option(
    "--to",
    "target",
    metavar="DIRECTORY",
    help="Copy a STORE with queues and tables in RocksDB to one that has them in files.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@json_option
def rebuild(
    *,
    store: StoreArguments,
    spark: SparkArguments,
    what: str,
    target: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Rebuild consume queues and index of STORE from its commit log alone.

    Executors read the log in parts, and must have access to STORE. New files are built in
    STORE/repair and swapped in at the end: a crash leaves the old state, and replaced files are
    kept. No process may have the store open.

    With --to, STORE is only read, and may be in use: the copy in DIRECTORY is a store with the same
    messages, queue offsets, topics, groups and progress, for RocketMQ (storeType=default) and
    RocketLake. Spark is not needed for it.
    """
    if target is not None:
        if what != "all" or as_json:
            raise click.UsageError("--to makes a whole copy: leave out --what and --json")
        return _copy(store, Path(target), dry_run=dry_run)
    with needs_spark():
        from rocketlake.spark.jobs.rebuild import plan_rebuild, run_rebuild  # noqa: PLC0415 - an extra

    with store.open() as view:
        plan = plan_rebuild(view, what=what)
    if dry_run:
        for line in plan.lines():
            click.echo(screen.printable(line))
        return 0
    with spark.session("rocketlake rebuild") as session, screen.Bars() as bars:
        report = run_rebuild(session, plan, on_progress=bars.follow("rebuilding"))
    if as_json:
        click.echo(msgspec.json.encode(report))
        return 0
    click.echo(
        f"{report.records} records: {report.units} units in {report.queues} queues, {report.keys} "
        f"keys in {report.index_files} index files, in {report.seconds:.1f} s"
    )
    if report.bad_parts:
        click.echo(f"{report.bad_parts} parts of the log hold no records; see rocketlake verify")
    click.echo(f"replaced files are kept in {report.kept}")
    return 0


def _copy(store: StoreArguments, target: Path, *, dry_run: bool) -> int:
    reporter = Reporter()
    if dry_run:
        with store.open(reporter) as view:
            for line in plan_copy(view, target):
                click.echo(screen.printable(line))
        return reporter.finish()
    with screen.Bars() as bars:
        listener = Listener(note, reporter, bars.begin)
        report = copy_with_file_queues(lambda: store.open(reporter), target, listener)
    tell(report, str(target), can_prune=False)
    return reporter.finish()
