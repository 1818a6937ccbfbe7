"""The options that select messages, shared by dump, grep and export."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rocketlake.cli.message_search import Selection
from rocketlake.cli.parameters import (
    from_time_option,
    key_option,
    sql_option,
    tag_option,
    to_time_option,
)

F = TypeVar("F", bound=Callable[..., Any])


def takes_selection(command: F) -> F:
    """Add the selection options to a command, and pass the selection as `wanted`."""

    @click.option("--topic", "topics", multiple=True, help="Only this topic, or a pattern (T*).")
    @click.option("--queue", type=int, help="Only this queue.")
    @click.option("--from-offset", type=int, default=0, help="First queue offset.")
    @click.option("--to-offset", type=int, default=1 << 62, help="Queue offset to stop before.")
    @from_time_option
    @to_time_option
    @key_option
    @tag_option
    @sql_option
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
