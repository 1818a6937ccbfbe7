"""The variable-length columns of records as Arrow lays them out; bytes only, Arrow is not needed.

One call of the kernel for many records, without the interpreter lock. Columns that are not asked
for cost nothing: no body is touched for want of it, no property string is read.
"""

from collections.abc import Mapping

import numpy as np

from rocketlake.format._kernel.chooser import KERNEL as _KERNEL
from rocketlake.format._kernel.codes import ArrowColumn
from rocketlake.format.record import RecordColumns

__all__ = ["ArrowColumn", "arrow_columns"]


def arrow_columns(
    columns: RecordColumns, wanted: ArrowColumn
) -> Mapping[ArrowColumn, tuple[bytes, ...]]:
    """Return the buffers of each wanted column.

    1. A text or the body is (validity, offsets, bytes); the keys are (offsets, offsets of the
       texts, bytes); the properties are (offsets, offsets and bytes of the names, offsets and
       bytes of the values).
    2. Offsets are native i32, one more than there are values. Validity has a bit for each row,
       lowest first; it is empty if no value is missing.
    3. Text is UTF-8; bytes that are none become U+FFFD. The body is as stored.

    Raises:
        ValueError: a row lies outside the buffer, or the rows may hold more than a column can:
            2 GiB of bodies, or a third of it of topics or properties.
    """
    if not wanted:
        return {}
    raw = np.ascontiguousarray(columns.rows).view(np.uint8)
    found = _KERNEL.arrow_columns(columns.buffer, raw, int(wanted))
    return dict(zip((each for each in ArrowColumn if wanted & each), found, strict=True))
