"""The options that say which messages a command wants; those that select share them."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rocketlake.cli.message_search import Selection
from rocketlake.cli.parameters import from_time_option, to_time_option

F = TypeVar("F", bound=Callable[..., Any])


def takes_selection(command: F) -> F:
    """Give a command the options of a selection, and the selection as `wanted`."""

    @click.option("--topic", "topics", multiple=True, help="Only this topic, or this pattern (T*).")
    @click.option("--queue", type=int, help="Only this queue.")
    @click.option("--from-offset", type=int, default=0, help="From this queue offset on.")
    @click.option("--to-offset", type=int, default=1 << 62, help="Up to, without, this one.")
    @from_time_option
    @to_time_option
    @click.option("--key", help="With this key or unique key.")
    @click.option("--tag", help="With this tag; several as 'A || B'.")
    @click.option("--sql", help="Whose properties fulfil this SQL92 expression.")
    @functools.wraps(command)
    def wrapped(
        *,
        topics: tuple[str, ...],
        queue: int | None,
        from_offset: int,
        to_offset: int,
        from_time: int | None,
        to_time: int | None,
        key: str | None,
        tag: str | None,
        sql: str | None,
        **rest: object,
    ) -> object:
        wanted = Selection(
            topics=topics,
            queue=queue,
            from_offset=from_offset,
            to_offset=to_offset,
            from_time=from_time,
            to_time=to_time,
            key=key,
            tag=tag,
            sql=sql,
        )
        return command(wanted=wanted, **rest)

    return wrapped  # type: ignore[return-value]  # click's decorators keep the call's shape
