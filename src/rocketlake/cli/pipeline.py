"""`rocketlake pipeline`: declarative pipelines of Spark's over a store."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketlake.cli import screen
from rocketlake.cli.spark_options import SparkArguments, load, takes_spark
from rocketlake.cli.store_arguments import commitlog_option, note, options_option

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.pipelines.run import FlowState, PipelineReport

_TOLD = {"RUNNING": "runs", "COMPLETED": "done", "FAILED": "failed", "SKIPPED": "left out"}


@click.group()
def pipeline() -> None:
    """Write and run a declarative pipeline: topics as tables that grow, and back into a topic."""


@pipeline.command()
@click.argument("directory", metavar="DIR")
@click.option("--store", required=True, metavar="STORE", help="Store to read.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only this topic; may be repeated (default: all except system topics).",
)
@click.option(
    "--sink", "sink_topic", metavar="TOPIC", help="Write the rows of silver to this topic."
)
@click.option("--sink-store", metavar="STORE", help="Store of that topic (default: one below DIR).")
@commitlog_option
@options_option
@click.option("-f", "--force", is_flag=True, help="Write into DIR even if it is not empty.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
def init(
    *,
    directory: str,
    store: str,
    topics: tuple[str, ...],
    sink_topic: str | None,
    sink_store: str | None,
    commitlog: str | None,
    options_: str | None,
    force: bool,
    dry_run: bool,
) -> None:
    """Write a project to DIR: bronze, silver and gold tables for the topics of a store.

    Bronze has the messages as they are; silver the JSON bodies, decoded by a schema that a sample
    of the store shows, with a quarantine for what does not fit; gold has counts and latencies by
    minute.

    \b
    rocketlake pipeline init orders --store /data/store --topic orders --sink orders-clean
    rocketlake pipeline run orders
    """  # noqa: D301 - click wants the character itself
    project = load("rocketlake.spark.pipelines.project", "pipelines")
    settings = project.ProjectSettings(
        store=store,
        topics=topics,
        sink_topic=sink_topic,
        sink_store=sink_store,
        commit_log_path=commitlog,
        options=options_,
    )
    plan = project.plan_project(Path(directory), settings)
    if not dry_run:
        project.write_project(plan, force=force)
    for line in plan.lines():
        click.echo(screen.printable(line))
    if not dry_run:
        note(f"rocketlake pipeline run {directory}")


@pipeline.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "--full-refresh",
    metavar="TABLE,…|all",
    default="",
    help="Rebuild these tables from the beginning.",
)
@click.option("--refresh", metavar="TABLE,…", default="", help="Refresh only these tables.")
@click.option("--dry-run", is_flag=True, help="Only check the project; change no table.")
@takes_spark
def run(
    *, directory: str, full_refresh: str, refresh: str, dry_run: bool, spark: SparkArguments
) -> None:
    """Run the project in DIR: each table takes what is new since the last run."""
    running = load("rocketlake.spark.pipelines.run", "pipelines")
    wanted = running.PipelineRun(
        directory=directory,
        full_refresh=_names(full_refresh),
        refresh=_names(refresh),
        is_dry=dry_run,
    )
    running.spec_of(Path(directory))
    running.check_packages()
    spark.conf = {**running.connect_settings(Path(directory)), **spark.conf}
    with spark.session("rocketlake pipeline") as session:
        report = running.run_pipeline(session, wanted, on_flow=_tell)
    if dry_run:
        click.echo(f"{directory} is valid; nothing was run")
    else:
        show(report)


def show(report: "PipelineReport") -> None:
    """Print how many rows the tables hold."""
    out = screen.console()
    table = screen.table("Tables", "table", "#rows")
    for item in report.tables:
        table.add_row(item.name, f"{item.rows:,}")
    out.print(table)


def _tell(flow: "FlowState") -> None:
    word = _TOLD.get(flow.state)
    if word is not None:
        click.echo(f"{flow.name}: {word}", err=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
