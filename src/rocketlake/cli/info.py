"""`rocketlake info`: what a store directory holds."""

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from rocketlake.cli import screen
from rocketlake.cli.parameters import json_option
from rocketlake.cli.store_arguments import StoreArguments, note, opened, takes_store
from rocketlake.cli.survey import Survey, survey
from rocketlake.model.size_text import size_text
from rocketlake.model.time_text import time_text


@click.command()
@takes_store
@json_option
@click.option("--queues", "with_queues", is_flag=True, help="List every queue.")
def info(*, store: StoreArguments, as_json: bool, with_queues: bool) -> int:
    """Show what STORE holds: files, offsets, topics, times, groups and their lag.

    Exit code 1: damage was found. 2: the store could not be read.
    """
    with opened(store) as (view, reporter):
        found = survey(view)
        if as_json:
            click.echo(msgspec.json.encode(found))
        else:
            for text in found.notes:
                note(text)
            print_survey(found, with_queues=with_queues)
        return reporter.finish()


def print_survey(found: Survey, *, with_queues: bool) -> None:
    """Print what was found as tables."""
    out = screen.console()
    log = found.commit_log
    state = f"in use by process {found.in_use_by}" if found.in_use_by else f"{found.shutdown} stop"
    out.print(f"[bold]{_safe(found.path)}[/bold]  {state}, as {found.generation} writes it")
    if found.variants:
        out.print(f"also holds: {', '.join(found.variants)}")
    times = [time_text(t) for t in (log.first_store_timestamp, log.last_store_timestamp)]
    out.print(
        f"commit log {log.min_offset} to {log.max_offset} in {log.files} files of "
        f"{size_text(log.file_size)}; stored {times[0]} to {times[1]}"
    )
    out.print()
    _print_families(out, found)
    _print_topics(out, found)
    if with_queues:
        _print_queues(out, found)
    if found.groups:
        _print_groups(out, found)


def _safe(text: str) -> str:
    """Return a name that is safe to print on a terminal."""
    return escape(screen.printable(text))


def _print_families(out: Console, found: Survey) -> None:
    table = screen.table("Files", "family", "#files", "#size", "from", "to")
    for family in found.families:
        table.add_row(
            family.name,
            str(family.files),
            size_text(family.bytes),
            family.first or "-",
            family.last or "-",
        )
    out.print(table)
    out.print()


def _print_topics(out: Console, found: Survey) -> None:
    table = screen.table("Topics", "topic", "#queues", "#messages", "first stored", "last stored")
    for topic in found.topics:
        if not topic.queues:
            continue
        table.add_row(
            _safe(topic.topic),
            str(topic.queues),
            str(topic.messages),
            time_text(topic.first_store_timestamp),
            time_text(topic.last_store_timestamp),
        )
    out.print(table)
    _print_rest(out, "configured, nothing stored", [t.topic for t in found.topics if not t.queues])
    out.print()


def _print_rest(out: Console, text: str, names: list[str]) -> None:
    """Print the names of items that have no row in the table."""
    if names:
        out.print(f"[dim]{text}: {_safe(', '.join(names))}[/dim]")


def _print_queues(out: Console, found: Survey) -> None:
    table = screen.table(
        "Queues", "topic", "#queue", "#min", "#max", "#messages", "#not dispatched"
    )
    for queue in found.queues:
        table.add_row(
            _safe(queue.topic),
            str(queue.queue_id),
            str(queue.min_offset),
            str(queue.max_offset),
            str(queue.messages),
            str(queue.not_dispatched or "-"),
        )
    out.print(table)
    out.print()


def _print_groups(out: Console, found: Survey) -> None:
    table = screen.table("Consumer groups", "group", "topic", "#queues", "#lag", "#missed")
    for group in found.groups:
        if not group.topic:
            continue
        table.add_row(
            _safe(group.group),
            _safe(group.topic) or "-",
            str(group.queues),
            str(group.lag),
            str(group.missed or "-"),
        )
    out.print(table)
    for group in found.groups:
        for gone in group.missed_in:
            out.print(
                f"{_safe(group.group)} missed {gone.end - gone.first} messages of"
                f" {_safe(group.topic)} queue {gone.queue_id}, deleted before it consumed them:"
                f" {gone.first} to {gone.end - 1}"
            )
    _print_rest(out, "without progress", [g.group for g in found.groups if not g.topic])
