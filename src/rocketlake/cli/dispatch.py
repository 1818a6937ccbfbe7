"""`rocketlake dispatch`: build missing queue units and index entries on Spark."""

import click
import msgspec

from rocketlake.cli import screen
from rocketlake.cli.parameters import json_option
from rocketlake.cli.spark_options import SparkArguments, needs_spark, takes_spark
from rocketlake.cli.store_arguments import StoreArguments, note, takes_store


@click.command()
@takes_store
@takes_spark
@click.option("--follow", is_flag=True, help="Keep running as the log grows, until Ctrl-C.")
@click.option(
    "--poll",
    type=click.FloatRange(0.01),
    default=1.0,
    show_default=True,
    help="With --follow: seconds between checks.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@json_option
def dispatch(
    *,
    store: StoreArguments,
    spark: SparkArguments,
    follow: bool,
    poll: float,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Dispatch records of STORE that its queues and index lack, byte for byte as RocketMQ does.

    STORE may be closed, or open in a program that opened it with dispatch="external". A store whose
    program dispatches by itself, such as a broker's, is refused. After a killed run the next one
    continues, without gaps or duplicates.
    """
    with needs_spark():
        from rocketlake.spark.jobs.dispatch.job import (  # noqa: PLC0415 - an extra
            DispatchJob,
            plan_dispatch,
            stopped_by_signals,
        )

    with store.open() as view:
        plan = plan_dispatch(view) if dry_run else None
    if plan is not None:
        for line in plan.lines():
            click.echo(screen.printable(line))
        return 0
    with spark.session("rocketlake dispatch") as session, screen.Bars() as bars:
        on_progress = None if follow else bars.follow("dispatching")
        job = DispatchJob(
            session, store.path, store.conf, options=store.keywords, on_progress=on_progress
        )
        with stopped_by_signals(job.stop):
            if follow:
                note("following; Ctrl-C ends it")
            report = job.run(once=not follow, poll_s=poll)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        click.echo(
            f"{report.records} records: {report.units} units, {report.keys} keys; everything below "
            f"{report.where} is dispatched"
        )
    return 0
