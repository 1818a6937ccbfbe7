"""Numbers sorted into bins: counts per bin add up over tasks, and percentiles come out of them.

Below 32 every number has a bin of its own; above, each doubling has 32. So a percentile read from
bins is off by at most `RELATIVE_ERROR`, whatever the range, and a thousand bins hold any latency.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documents do

_BITS: Final = 5
_PER_DOUBLING: Final = 1 << _BITS
_VALUE_MAX: Final = 1 << 42  # 139 years in milliseconds; a double tells its logarithm exactly

RELATIVE_ERROR: Final = 1 / (2 * _PER_DOUBLING)
NEGATIVE: Final = -1
"""The bin of every number below zero."""


def bin_column(value: Column) -> Column:
    """Return the bin of an integer column; null stays null."""
    capped = F.least(value.cast("bigint"), F.lit(_VALUE_MAX))
    shift = F.floor(F.log2(capped)).cast("int") - _BITS
    wide = shift * _PER_DOUBLING + F.call_function("shiftright", capped, shift)
    narrow = F.when(capped < 0, F.lit(NEGATIVE)).when(capped < _PER_DOUBLING, capped)
    return F.when(value.isNull(), None).otherwise(
        F.coalesce(narrow, wide.cast("bigint")).cast("int")
    )


def bin_of(value: int) -> int:
    """Return the bin of a number."""
    if value < 0:
        return NEGATIVE
    value = min(value, _VALUE_MAX)
    shift = max(value.bit_length() - 1 - _BITS, 0)
    return shift * _PER_DOUBLING + (value >> shift)


def bounds(number: int) -> tuple[int, int]:
    """Return the first number of a bin, and the first behind it."""
    if number < 0:
        return NEGATIVE, 0
    shift = max(number // _PER_DOUBLING - 1, 0)
    first = (number - shift * _PER_DOUBLING) << shift
    return first, first + (1 << shift)


def middle(number: int) -> float:
    """Return what stands for the numbers of a bin."""
    first, end = bounds(number)
    return max((first + end - 1) / 2, 0.0)


def percentiles(
    counts: Mapping[int, int], shares: Sequence[float], highest: float | None = None
) -> list[float | None]:
    """Return the value below which each share of the numbers lies; None where there are none.

    None of them is above `highest`, which is known exactly.
    """
    total = sum(counts.values())
    if not total:
        return [None] * len(shares)
    ordered = sorted(counts.items())
    found: list[float | None] = []
    for share in shares:
        wanted, seen = share * total, 0
        for number, count in ordered:
            seen += count
            if seen >= wanted:
                value = middle(number)
                found.append(value if highest is None else min(value, max(highest, 0.0)))
                break
    return found


def doublings(counts: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Join bins for a plot: (first, end, count), one for zero and then one for each doubling.

    Numbers below zero come as (-1, 0, count). Empty ones between the first and the last are there.
    """
    joined: dict[int, int] = {}
    for number, count in counts:
        first, _ = bounds(number)
        level = -1 if first < 0 else first.bit_length()
        joined[level] = joined.get(level, 0) + count
    if not joined:
        return []
    return [
        (*_level_bounds(level), joined.get(level, 0))
        for level in range(min(joined), max(joined) + 1)
    ]


def _level_bounds(level: int) -> tuple[int, int]:
    if level < 0:
        return NEGATIVE, 0
    return (1 << level) >> 1, 1 << level
