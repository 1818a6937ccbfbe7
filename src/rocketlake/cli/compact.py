"""`rocketlake compact`: the newest message of each key."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rocketlake.cli.job_selection_options import takes_job_selection
from rocketlake.cli.parameters import json_option, pairs
from rocketlake.cli.screen import Bars, print_report
from rocketlake.cli.spark_options import SparkArguments, needs_spark, takes_spark

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.jobs import Selection

# ruff: noqa: PLC0415 - Spark is an extra, and slow to import


@click.command()
@takes_job_selection
@click.argument("target", metavar="TARGET")
@click.option(
    "--by",
    default="keys",
    show_default=True,
    metavar="WHAT",
    help="What identifies a message: keys (each key of it), unique_key, or property:NAME.",
)
@click.option(
    "--order",
    default="store_timestamp",
    show_default=True,
    metavar="WHAT",
    help="What is newer: by store_timestamp, born_timestamp, queue_offset, or property:NAME.",
)
@click.option(
    "--drop-tombstones", is_flag=True, help="Leave out keys whose newest message has an empty body."
)
@click.option("--keep-keyless", is_flag=True, help="Keep messages without a key.")
@click.option(
    "--to",
    default="store",
    show_default=True,
    metavar="FORMAT",
    help="Format of TARGET: store, or one that Spark writes (parquet, delta, …).",
)
@click.option("--to-topic", help="Name of the topic in the new store.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="Option of that format."
)
@click.option(
    "--id",
    "id_",
    metavar="NAME",
    help="Name of the job; a killed job is resumed under the same name.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be kept.")
@json_option
@takes_spark
def compact(
    *,
    select: Callable[[], "Selection"],
    target: str,
    by: str,
    order: str,
    drop_tombstones: bool,
    keep_keyless: bool,
    to: str,
    to_topic: str | None,
    options: tuple[str, ...],
    id_: str | None,
    dry_run: bool,
    as_json: bool,
    spark: SparkArguments,
) -> int:
    """Write the newest message of each key of SOURCE, a store or an archive, to the new TARGET.

    \b
    rocketlake compact /data/store /data/newest --topic prices
    rocketlake compact /archive /lake/prices --topic prices --to parquet --drop-tombstones
    """  # noqa: D301 - click wants the character itself
    with needs_spark():
        from rocketlake.spark.jobs import CompactSettings, plan_compact_here
        from rocketlake.spark.jobs import compact as run
        from rocketlake.spark.jobs.compact.settings import check
    settings = CompactSettings(
        by=by,
        order=order,
        drops_tombstones=drop_tombstones,
        keeps_keyless=keep_keyless,
        to=to,
        to_topic=to_topic,
        id=id_,
        table_options=pairs("--option", options),
    )
    check(settings)
    selection = select()
    selection.check()  # reports mistakes before Spark starts
    if dry_run and (plan := plan_compact_here(selection, target, settings)) is not None:
        print_report(plan, as_json=as_json)
        return 0
    with Bars() as bars, spark.session("rocketlake compact") as session:
        done = run(
            session,
            selection,
            target,
            settings=settings,
            dry_run=dry_run,
            on_progress=bars.follow("compacting"),
        )
    print_report(done, as_json=as_json)
    return 0
