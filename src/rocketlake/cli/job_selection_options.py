"""What replay and compact share: which messages, from where; and values of options."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocketlake.cli.parameters import from_time_option, pairs, to_time_option
from rocketlake.cli.spark_options import needs_spark

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.jobs import Selection

F = TypeVar("F", bound=Callable[..., Any])


def takes_job_selection(command: F) -> F:
    """Give a command SOURCE and the options of a selection, as a function that makes one."""

    @click.argument("source", metavar="SOURCE")
    @click.option("--archive", metavar="DIR", help="The archive of SOURCE: its history, too.")
    @click.option("--topic", "topics", multiple=True, help="This topic; may be given again.")
    @click.option("--topic-pattern", metavar="REGEX", help="Topics by a regular expression.")
    @click.option("--dead-letters", metavar="GROUP", help="What this group has given up.")
    @click.option("--queue", "numbers", type=int, multiple=True, help="Only this queue.")
    @from_time_option
    @to_time_option
    @click.option("--key", help="With this key or unique key.")
    @click.option("--tag", help="With this tag; several as 'A || B'.")
    @click.option("--sql", help="Whose properties fulfil this SQL92 expression.")
    @click.option(
        *("--source-option", "source_options"),
        multiple=True,
        metavar="KEY=VALUE",
        help="Another option of the source, such as startingOffsets or onDamage.",
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
            with needs_spark():
                from rocketlake.spark.jobs.selection import (  # noqa: PLC0415 - an extra
                    Selection,
                    places_of,
                )
            return Selection(
                **places_of(source, archive),
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
