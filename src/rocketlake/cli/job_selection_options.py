"""The source arguments and selection options of replay and compact."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocketlake.cli.parameters import (
    from_time_option,
    key_option,
    pairs,
    sql_option,
    tag_option,
    to_time_option,
)
from rocketlake.cli.spark_options import load

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.jobs import Selection

F = TypeVar("F", bound=Callable[..., Any])


def takes_job_selection(command: F) -> F:
    """Add SOURCE and the selection options to a command, as a function that makes the selection."""

    @click.argument("source", metavar="SOURCE")
    @click.option("--archive", metavar="DIR", help="Archive of SOURCE, to include its history.")
    @click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
    @click.option(
        "--topic-pattern", metavar="REGEX", help="Topics that match this regular expression."
    )
    @click.option("--dead-letters", metavar="GROUP", help="Dead letters of this consumer group.")
    @click.option("--queue", "numbers", type=int, multiple=True, help="Only this queue.")
    @from_time_option
    @to_time_option
    @key_option
    @tag_option
    @sql_option
    @click.option(
        *("--source-option", "source_options"),
        multiple=True,
        metavar="KEY=VALUE",
        help="Option of the source, such as startingOffsets or onDamage.",
    )
    @functools.wraps(command)
    def wrapped(
        *,
        source: str,
        archive: str | None,
        topics: tuple[str, ...],
        topic_pattern: str | None,
        dead_letters: str | None,
        numbers: tuple[int, ...],
        from_time: int | None,
        to_time: int | None,
        key: str | None,
        tag: str | None,
        sql: str | None,
        source_options: tuple[str, ...],
        **rest: object,
    ) -> object:
        def select() -> "Selection":
            jobs = load("rocketlake.spark.jobs.selection")
            return jobs.Selection(  # type: ignore[no-any-return]  # a module of an extra
                **jobs.places_of(source, archive),
                topic=",".join(topics) or None,
                topic_pattern=topic_pattern,
                dead_letters=dead_letters,
                queue_ids=",".join(map(str, numbers)) or None,
                starting_timestamp=str(from_time) if from_time is not None else None,
                ending_timestamp=str(to_time) if to_time is not None else None,
                key=key,
                tags=tag,
                sql=sql,
                source_options=pairs("--source-option", source_options),
            )

        return command(select=select, **rest)

    return wrapped  # type: ignore[return-value]  # click's decorators keep the call's shape
