"""Comparisons of a column with values, on many records at once."""

from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.format.record import RecordColumns
from rocketlake.format.timestamps import to_microseconds

Mask = npt.NDArray[np.bool_]


class Op(StrEnum):
    """How a column is compared."""

    IN = "in"
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


NUMBERS: Final = {
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "physical_offset": "physical_offset",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "reconsume_times": "reconsume_times",
    "prepared_transaction_offset": "prepared_transaction_offset",
    "store_size": "size",
}
"""Columns that are plain numbers, and what a record's row calls them."""

TIMES: Final = frozenset({"store_timestamp", "born_timestamp"})
"""Columns that are times; their values are microseconds, as Spark's are."""


class Term(Struct, frozen=True):
    """One comparison; all of a read's must hold. The values of `in` are several, else one."""

    column: str
    op: Op
    values: tuple[int | str, ...]

    def holds(self, columns: RecordColumns, queue_offsets: npt.NDArray[np.int64] | None) -> Mask:
        """Mark the records for which it holds."""
        if self.column == "topic":
            codes, topics = columns.topics()
            return np.array([topic in self.values for topic in topics], np.bool_)[codes]
        if self.column == "queue_offset" and queue_offsets is not None:
            found = queue_offsets
        elif self.column in TIMES:
            found, valid = to_microseconds(columns[self.column])
            if valid is not None:  # null fulfils no comparison
                return self.compare(found) & valid
        else:
            found = columns[NUMBERS[self.column]]
        return self.compare(found.astype(np.int64))

    def compare(self, found: npt.NDArray[np.int64]) -> Mask:
        """Mark the numbers for which it holds."""
        values = [int(value) for value in self.values]
        mask: Mask
        match self.op:
            case Op.IN:
                mask = np.isin(found, values)
            case Op.BELOW:
                mask = found < values[0]
            case Op.AT_MOST:
                mask = found <= values[0]
            case Op.ABOVE:
                mask = found > values[0]
            case Op.AT_LEAST:
                mask = found >= values[0]
        return mask


def bounds(terms: tuple[Term, ...], column: str) -> tuple[int, int]:
    """Return the lowest and the highest number that the terms leave of a column."""
    low, high = -(1 << 62), 1 << 62
    for term in terms:
        if term.column != column:
            continue
        values = [int(value) for value in term.values] or [0]
        if term.op is Op.IN:
            low, high = max(low, min(values)), min(high, max(values))
        elif term.op in (Op.ABOVE, Op.AT_LEAST):
            low = max(low, values[0] + (term.op is Op.ABOVE))
        else:
            high = min(high, values[0] - (term.op is Op.BELOW))
    return low, high


def allows(terms: tuple[Term, ...], column: str, value: str | int) -> bool:
    """Tell whether the terms on a column hold for a value."""
    for term in terms:
        if term.column != column:
            continue
        if isinstance(value, str) or term.op is Op.IN:
            if value not in term.values:
                return False
        elif not term.compare(np.array([value], np.int64))[0]:
            return False
    return True
