"""Selection: the messages that a reader wants, by tags or by an SQL92 expression."""

import logging

from msgspec import Struct

from rocketlake.filters.message_filter import MessageFilter, SqlMessageFilter, make_filter
from rocketlake.filters.tags import TagFilter

log = logging.getLogger(__name__)


class Selection(Struct, frozen=True):
    """What a reader wants; everything if both are empty."""

    tags: TagFilter
    message_filter: MessageFilter | None
    """For the engine; None: every message passes."""


def parse_selection(tags: str | None, sql: str | None) -> Selection:
    """Parse a tag expression such as `paid || refunded`, or an SQL92 expression.

    Raises:
        TypeError, ValueError: both are given, or one cannot be parsed.
    """
    _check_text("tags", tags)
    _check_text("sql", sql)
    if tags is not None and sql is not None:
        raise ValueError(f"tags = {tags!r} and sql = {sql!r}: give one of the two")
    wanted = make_filter(tags, sql)
    if isinstance(wanted, SqlMessageFilter) and wanted.expression.unread:
        log.warning(
            "the end of an SQL92 expression is ignored sql=%r unread=%r",
            sql,
            wanted.expression.unread,
        )
    return Selection(TagFilter.parse(tags), wanted)


def _check_text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(
            f"{name} = {value!r} is {type(value).__name__}; wanted an expression as str"
        )
