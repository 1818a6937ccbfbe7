"""`rocketlake rebuild`: queues and index anew from the log, on Spark."""

import click
import msgspec

from rocketlake.cli import screen
from rocketlake.cli.opening import StoreArguments, takes_store
from rocketlake.cli.spark_options import SparkArguments, needs_spark, takes_spark


@click.command()
@takes_store
@takes_spark
@click.option(
    "--what",
    type=click.Choice(["all", "queues", "index"]),
    default="all",
    show_default=True,
    help="Build only the queues, or only the index.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def rebuild(
    *, store: StoreArguments, spark: SparkArguments, what: str, dry_run: bool, as_json: bool
) -> int:
    """Build consume queues and index of STORE anew from its commit log alone.

    Executors read the log in parts, wherever Spark runs them; they must see STORE. Everything is
    built in STORE/repair and swapped in at the end: a crash leaves the old state, and what was
    replaced is kept. Nobody may have the store open.
    """
    with needs_spark():
        from rocketlake.spark.jobs.rebuild_job import plan_rebuild, run_rebuild  # noqa: PLC0415 - an extra

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
        click.echo(f"{report.bad_parts} parts of the log are no records; see rocketlake verify")
    click.echo(f"what was replaced is kept in {report.kept}")
    return 0
