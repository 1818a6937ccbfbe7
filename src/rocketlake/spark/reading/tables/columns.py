"""Columns of any kind to an Arrow batch."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from rocketlake.format.timestamps import is_calendar_time, to_microseconds


def to_batch(schema: pa.Schema, rows: int, columns: Mapping[str, object]) -> pa.RecordBatch:
    """Make a batch: of arrays, lists, or one value for all rows; what is not given is null.

    Numbers for a column of times are milliseconds; null is what no calendar has.
    """
    arrays = [_array(columns.get(field.name), rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: object, rows: int, kind: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, np.ndarray):
        if pa.types.is_timestamp(kind):
            found, valid = to_microseconds(values)
            return pa.array(found, mask=None if valid is None else ~valid).cast(kind)
        return pa.array(np.ascontiguousarray(values), safe=True).cast(kind)
    if isinstance(values, Sequence) and not isinstance(values, str):
        listed = list(values)
        if pa.types.is_timestamp(kind):
            listed = [_microseconds(value) for value in listed]
        return pa.array(listed, kind)
    return pa.repeat(pa.scalar(values, kind), rows)


def _microseconds(time_ms: int | None) -> int | None:
    return time_ms * 1000 if time_ms is not None and is_calendar_time(time_ms) else None
