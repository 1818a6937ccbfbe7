"""What the filters of a query allow a read to leave out.

1. Spark keeps the plan of a reader for all queries of a DataFrame, a view or a table, with the
   filters of the first one in it (PySpark 4.2 and 4.3). So only the optimizer's rule pushes
   filters: it makes a scan of its own for each query, and Spark evaluates all of them again.
2. Readers that take filters have `pushFilters`. Spark refuses them in a session that does not allow
   it, except where it pushes filters, which is where the rule makes them.
"""

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

# Times that no calendar has are null, so Spark looks at IS NOT NULL of times itself.
_NEVER_NULL: Final = frozenset({"topic", "broker", *NUMBERS})
_OPS: Final = (
    (GreaterThan, Op.ABOVE),
    (GreaterThanOrEqual, Op.AT_LEAST),
    (LessThan, Op.BELOW),
    (LessThanOrEqual, Op.AT_MOST),
)


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
