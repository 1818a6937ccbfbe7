"""The counts of a compaction, found in this process instead of by Spark.

The same as `keyed_rows`, `newest` and `kept_places` of `plan`, over Arrow.
"""

# ruff: noqa: ANN401 - Arrow ships no types

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rocketlake.spark.jobs.compact.settings import PROPERTY, CompactSettings

_TIES: Final = ("store_timestamp", "physical_offset", "broker", "queue_id")
_LEAST: Final = -(1 << 63)


class KeyCounts(Struct, frozen=True):
    """What a compaction finds."""

    messages: int
    keys: int
    keyless: int
    tombstones: int
    kept: int


def is_countable_here(settings: CompactSettings) -> bool:
    """Tell whether the order is one of columns: numbers of texts are Spark's own reading."""
    return not settings.order.startswith(PROPERTY)


def count_keys(table: pa.Table, settings: CompactSettings) -> KeyCounts:
    """Count messages, keys, and what is the newest of a key."""
    table = table.combine_chunks()
    keys, rows = _keys(table, settings)
    has_key = np.zeros(len(table), np.bool_)
    has_key[rows] = True
    keyless = len(table) - int(has_key.sum())
    last = _newest(table, keys, rows, settings)
    if settings.drops_tombstones:
        is_empty = pc.equal(pc.binary_length(table["body"]), 0).to_numpy()[last]
        tombstones, last = int(is_empty.sum()), last[~is_empty]
        keys_count = tombstones + len(last)
    else:
        tombstones, keys_count = 0, len(last)
    kept = len(np.unique(last)) + (keyless if settings.keeps_keyless else 0)
    return KeyCounts(len(table), keys_count, keyless, tombstones, kept)


def _keys(table: pa.Table, settings: CompactSettings) -> tuple[Any, Any]:
    """Return every key, and the row that it is of."""
    if settings.by == "keys":
        column = _whole(table["keys"])
        return column.flatten(), pc.list_parent_indices(column).to_numpy()
    if settings.by.startswith(PROPERTY):
        name = settings.by.removeprefix(PROPERTY)
        column = pc.map_lookup(_whole(table["properties"]), pa.scalar(name), "last")
    else:
        column = _whole(table[settings.by])
    return column.drop_null(), np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))


def _newest(table: pa.Table, keys: Any, rows: Any, settings: CompactSettings) -> Any:
    """Return the row of the newest message of each key."""
    if not len(rows):
        return rows
    ranks = dict.fromkeys((settings.order, *_TIES))
    columns = {name: _comparable(table[name]).take(pa.array(rows)) for name in ranks}
    by = [("key", "ascending"), *((name, "ascending") for name in ranks)]
    ranked = pa.table({"key": keys, **columns})
    order = pc.sort_indices(ranked, sort_keys=by).to_numpy()
    codes = keys.dictionary_encode().indices.to_numpy()[order]
    return rows[order[np.flatnonzero(np.append(codes[1:] != codes[:-1], True))]]


def _comparable(column: Any) -> Any:
    """Return a column that sorts as Spark compares it: a time that is null is before all others."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.int64()).fill_null(_LEAST)


def _whole(column: Any) -> Any:
    """Return a column of a table as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
