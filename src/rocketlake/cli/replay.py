"""`rocketlake replay`: put messages of a store or an archive again."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rocketlake.cli.job_selection_options import takes_job_selection
from rocketlake.cli.parameters import json_option
from rocketlake.cli.screen import Bars, print_report
from rocketlake.cli.spark_options import SparkArguments, needs_spark, takes_spark

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.jobs import ReplayPlan, ReplayReport, Selection

# ruff: noqa: PLC0415 - Spark is an extra, and slow to import


@click.command()
@takes_job_selection
@click.argument("target", metavar="TARGET")
@click.option(
    "--to-topic",
    help="Topic to write to (default: that of the message; of dead letters, the original one).",
)
@click.option(
    "--queues",
    type=click.Choice(["keep", "spread"]),
    help="Keep queue numbers, or spread over all queues (default: spread for dead letters only).",
)
@click.option("--rate", type=float, metavar="N", help="At most this many messages per second.")
@click.option(
    "--id",
    "id_",
    metavar="NAME",
    help="Name of the job; a killed job is resumed under the same name.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and where.")
@json_option
@takes_spark
def replay(
    *,
    select: Callable[[], "Selection"],
    target: str,
    to_topic: str | None,
    queues: str | None,
    rate: float | None,
    id_: str | None,
    dry_run: bool,
    as_json: bool,
    spark: SparkArguments,
) -> int:
    """Write messages of SOURCE, a store or an archive, again into the store TARGET.

    TARGET may be SOURCE itself; no other process may have it open. Each queue keeps its order.
    Properties that RocketMQ added (delays, retries, transactions) are removed; ORIGIN_MESSAGE_ID
    names the original message.

    \b
    rocketlake replay /data/store /data/store --dead-letters billing --dry-run
    rocketlake replay /data/store /data/store --dead-letters billing --rate 50
    rocketlake replay /archive /data/store --topic orders --from-time 2026-01-31 --to-topic again
    """  # noqa: D301 - click wants the character itself
    with needs_spark():
        from rocketlake.spark.jobs import ReplaySettings, plan_replay_here
        from rocketlake.spark.jobs import replay as run
    settings = ReplaySettings(
        to_topic=to_topic,
        keeps_queues=None if queues is None else queues == "keep",
        rate=rate,
        id=id_,
    )
    selection = select()
    selection.check()  # reports mistakes before Spark starts
    if dry_run and (plan := plan_replay_here(selection, target, settings)) is not None:
        return _show(plan, as_json=as_json)
    with Bars() as bars, spark.session("rocketlake replay") as session:
        done = run(
            session,
            selection,
            target,
            settings=settings,
            dry_run=dry_run,
            on_progress=bars.follow("replaying"),
        )
    return _show(done, as_json=as_json)


def _show(done: "ReplayPlan | ReplayReport", *, as_json: bool) -> int:
    from rocketlake.spark.jobs import ReplayPlan

    print_report(done, as_json=as_json)
    is_lacking = isinstance(done, ReplayPlan) and bool(done.homeless)
    return 1 if is_lacking else 0
