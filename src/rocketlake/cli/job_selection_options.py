"""What replay and compact share: which messages, from where; and values of options."""

import functools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocketlake.cli.message_search import parse_time
from rocketlake.cli.spark_options import needs_spark

if TYPE_CHECKING:  # importing it takes long
    from rocketlake.spark.jobs import Selection

F = TypeVar("F", bound=Callable[..., Any])

_SIZE = re.compile(r"([0-9]{1,15})\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def sized(_: click.Context, parameter: click.Parameter, text: str) -> int:
    """Read a number of bytes such as 64m."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r}: wanted bytes, like 67108864 or 64m", param=parameter)
    return int(found[1]) * _UNITS[found[2].lower()]


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Read KEY=VALUE."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{option} {text!r}: wanted KEY=VALUE")
        found[key] = value
    return found


def takes_job_selection(command: F) -> F:
    """Give a command SOURCE and the options of a selection, as a function that makes one."""

    @click.argument("source", metavar="SOURCE")
    @click.option("--archive", metavar="DIR", help="The archive of SOURCE: its history, too.")
    @click.option("--topic", "topics", multiple=True, help="This topic; may be given again.")
    @click.option("--topic-pattern", metavar="REGEX", help="Topics by a regular expression.")
    @click.option("--dead-letters", metavar="GROUP", help="What this group has given up.")
    @click.option("--queue", "numbers", type=int, multiple=True, help="Only this queue.")
    @click.option("--from-time", metavar="TIME", help="Stored at this time or later.")
    @click.option("--to-time", metavar="TIME", help="Stored before this time.")
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
        from_time: str | None,
        to_time: str | None,
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
                starting_timestamp=str(parse_time(from_time)) if from_time else None,
                ending_timestamp=str(parse_time(to_time)) if to_time else None,
                key=key,
                tags=tag,
                sql=sql,
                source_options=pairs("--source-option", source_options),
            )

        return command(select=select, **rest)

    return wrapped  # type: ignore[return-value]  # click's decorators keep the call's shape
