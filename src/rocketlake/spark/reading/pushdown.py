"""Filters that Spark pushes into a read.

1. A reader with `pushFilters` makes every read fail in a session that does not allow it, and Spark
   does not say so. But Spark pushes filters in a process of its own: only there such a reader is
   made.
2. Filters on numbers, topic and broker are taken over; all others only narrow what is read, and
   Spark evaluates them again.
"""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rocketlake.spark.reading.options import SourceOptions, Table
from rocketlake.spark.reading.terms import NUMBERS, TIMES, Op, Term

_PLACE: Final = "data_source_pushdown_filters"
_NEVER_NULL: Final = frozenset({"topic", "broker", *NUMBERS, *TIMES})
_OPS: Final = (
    (GreaterThan, Op.ABOVE),
    (GreaterThanOrEqual, Op.AT_LEAST),
    (LessThan, Op.BELOW),
    (LessThanOrEqual, Op.AT_MOST),
)


def is_pushing() -> bool:
    """Tell whether Spark made this call to push filters."""
    frame = sys._getframe()  # noqa: SLF001 - there is no other way to know
    while frame is not None:
        if _PLACE in frame.f_code.co_filename:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def push(options: SourceOptions, filters: Iterable[Filter]) -> tuple[SourceOptions, list[Filter]]:
    """Narrow a read of messages; return its options, and the filters that Spark must evaluate."""
    left: list[Filter] = []
    for item in filters:
        if options.table is not Table.MESSAGES:
            left.append(item)
            continue
        if isinstance(item, IsNotNull) and item.attribute[0] in _NEVER_NULL:
            continue
        term = _term(item)
        if term is None:
            left.append(item)
        elif term.column in NUMBERS or term.column in ("topic", "broker"):
            options = replace(options, terms=(*options.terms, term))
        else:
            left.append(item)
            options = _narrowed(options, term)
    return options, left


def _narrowed(options: SourceOptions, term: Term) -> SourceOptions:
    """Narrow a read by a term that Spark evaluates again."""
    if term.column in TIMES:
        return replace(options, terms=(*options.terms, term))
    texts = tuple(str(value) for value in term.values)
    if term.column == "tags" and options.pushed_tags is None:
        return replace(options, pushed_tags=texts)
    if term.column == "unique_key" and len(texts) == 1:
        return replace(options, unique_key=texts[0])
    return options


def _term(item: Filter) -> Term | None:
    """Return a filter as a term; None if it does not help."""
    if isinstance(item, EqualTo):
        return _make(item.attribute, Op.IN, (item.value,))
    if isinstance(item, In):
        return _make(item.attribute, Op.IN, tuple(item.value))
    for kind, op in _OPS:
        if isinstance(item, kind):
            return _make(item.attribute, op, (item.value,))
    return None


def _make(attribute: tuple[str, ...], op: Op, values: tuple[object, ...]) -> Term | None:
    column = attribute[0] if len(attribute) == 1 else ""
    if column in ("topic", "broker", "tags", "unique_key"):
        texts = tuple(value for value in values if isinstance(value, str))
        return Term(column, op, texts) if op is Op.IN and len(texts) == len(values) else None
    if column in TIMES:
        times = tuple(_micros(value) for value in values if isinstance(value, datetime))
        return Term(column, op, times) if len(times) == len(values) else None
    numbers = tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))
    if column in NUMBERS and numbers and len(numbers) == len(values):
        return Term(column, op, numbers)
    return None


def _micros(moment: datetime) -> int:
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
