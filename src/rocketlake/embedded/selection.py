"""Selection: which messages a reader wants, by tags or by an SQL92 expression."""

import logging

from msgspec import Struct

from rocketlake.filters.message_filter import MessageFilter, SqlMessageFilter, make_filter
from rocketlake.filters.tags import TagFilter

log = logging.getLogger(__name__)


class Selection(Struct, frozen=True):
    """What a reader wants; both empty: everything."""

    tags: TagFilter
    message_filter: MessageFilter | None
    """For the engine; None: everything passes."""


def parse_selection(tags: str | None, sql: str | None) -> Selection:
    """Return what a tag expression such as `paid || refunded`, or an SQL92 expression, wants.

    Raises:
        TypeError, ValueError: both are given, or one cannot be understood.
    """
    _check_text("tags", tags)
    _check_text("sql", sql)
    if tags is not None and sql is not None:
        raise ValueError(f"tags = {tags!r} and sql = {sql!r}: give one of the two")
    wanted = make_filter(tags, sql)
    if isinstance(wanted, SqlMessageFilter) and wanted.expression.unread:
        log.warning(
            "the end of an SQL92 expression counts for nothing sql=%r unread=%r",
            *(sql, wanted.expression.unread),
        )
    return Selection(TagFilter.parse(tags), wanted)


def _check_text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(
            f"{name} = {value!r} is {type(value).__name__}; wanted an expression as str"
        )
