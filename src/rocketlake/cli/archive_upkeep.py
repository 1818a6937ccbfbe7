"""`rocketlake archive-drop` and `archive-compact`: drop old days, merge small files.

Why not `archive drop`: `archive STORE DIR` takes any two names, and a store may be called `drop`.
"""

from typing import Any

import click
import msgspec

from rocketlake.cli.parameters import (
    DURATION_MS,
    SIZE,
    compression_option,
    json_option,
    target_size_option,
)
from rocketlake.cli.screen import Bars, console, table
from rocketlake.cli.spark_options import SparkArguments, needs_spark, takes_spark
from rocketlake.cli.store_arguments import note

# ruff: noqa: PLC0415 - Spark is an extra, and slow to import

_topics = click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only this topic, or a pattern (T*); may be repeated.",
)
_grace = click.option(
    "--grace",
    "grace_ms",
    type=DURATION_MS,
    default="1h",
    show_default=True,
    help="Keep the files this long for running queries; the first run after that deletes them.",
)


@click.command(name="archive-drop")
@click.argument("directory", metavar="DIR")
@click.option(
    "--before", required=True, metavar="DATE", help="First day to keep, in UTC: 2026-01-31."
)
@_topics
@_grace
@click.option("--dry-run", is_flag=True, help="Show what would be dropped.")
@json_option
def archive_drop(
    *,
    directory: str,
    before: str,
    topics: tuple[str, ...],
    grace_ms: int,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Drop the days before DATE from the archive DIR; dropped messages are not archived again.

    The manifest changes first, atomically; then the files are removed. A run that is killed leaves
    the archive with these days or without them, and the next run cleans up. Spark is not needed.

    \b
    rocketlake archive-drop /archive --before 2026-01-01 --dry-run
    rocketlake archive-drop /archive --before 2026-01-01 --topic 'trace*'
    """  # noqa: D301 - click wants the character itself
    with needs_spark():
        from rocketlake.spark.jobs import drop_days, plan_drop
    wanted = topics or ("*",)
    if dry_run:
        done = plan_drop(directory, before, wanted)
    else:
        done = drop_days(directory, before, wanted, grace_ms=grace_ms)
    columns = ("broker", "topic", "date", "#messages", "#files", "#bytes")
    _show(done, done.summary(), columns, as_json=as_json)
    for problem in done.problems if not as_json else ():
        note(problem)
    return 0


@click.command(name="archive-compact")
@click.argument("directory", metavar="DIR")
@_topics
@target_size_option
@click.option(
    "--min-bytes",
    type=SIZE,
    default="0",
    help="Files below this size are merged (default: half the target).",
)
@compression_option
@_grace
@click.option("--dry-run", is_flag=True, help="Show what would be merged.")
@json_option
@takes_spark
def archive_compact(
    *,
    directory: str,
    topics: tuple[str, ...],
    target_size: int,
    min_bytes: int,
    compression: str,
    grace_ms: int,
    dry_run: bool,
    as_json: bool,
    spark: SparkArguments,
) -> int:
    """Merge the small files of each topic and day in the archive DIR.

    The manifest names either the small files or the merged ones: a reader of the archive sees each
    message once at any time. Spark is started only if there is something to merge.

    \b
    rocketlake archive-compact /archive --dry-run
    rocketlake archive-compact /archive --topic orders --target-size 256m
    """  # noqa: D301 - click wants the character itself
    with needs_spark():
        from rocketlake.spark.jobs import ArchiveSettings, compact_archive, plan_archive_compaction
    settings = ArchiveSettings(
        topics=topics or ("*",),
        target_bytes=target_size,
        small_bytes=min_bytes,
        compression=compression,
    )
    done = plan_archive_compaction(directory, settings)
    if done.tasks and not dry_run:
        with Bars() as bars, spark.session("rocketlake archive-compact") as session:
            done = compact_archive(
                session,
                directory,
                settings=settings,
                grace_ms=grace_ms,
                on_progress=bars.follow("merging"),
            )
    columns = ("broker", "topic", "date", "#merged", "#into", "#bytes")
    _show(done, done.summary(), columns, as_json=as_json)
    return 0


def _show(done: Any, summary: dict[str, Any], columns: tuple[str, ...], *, as_json: bool) -> None:  # noqa: ANN401 - one of two plans
    """Print what would be done, or was done, as a table or as JSON."""
    if as_json:
        click.echo(msgspec.json.encode(summary))
        return
    title = next(iter(done.lines()))
    if not summary["days"]:
        click.echo(title)
        return
    shown = table(title, *columns)
    for day in summary["days"]:
        shown.add_row(*(str(day[name.removeprefix("#")]) for name in columns))
    console().print(shown)
