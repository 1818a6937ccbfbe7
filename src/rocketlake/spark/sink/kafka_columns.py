"""Columns with the names of Kafka's sink, as columns of a message.

value      body
key        keys, with this one key, and ordering_key: rows of a key go to the same queue in order
headers    properties; of duplicate names the last one counts
partition  queue_id
"""

# ruff: noqa: ANN401 - Arrow ships no types

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KAFKA_NAMES: Final = {
    "value": "body",
    "key": "keys",
    "headers": "properties",
    "partition": "queue_id",
}
"""Kafka's name of a column -> the name here."""


class BadValueError(ValueError):
    """A value cannot be part of a message; `column` and `row` say where it is."""

    def __init__(self, column: str, row: int, words: str) -> None:
        super().__init__(words)
        self.column = column
        self.row = row


def message_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with the names of a message.

    Raises:
        BadValueError: a key or a header is not text.
    """
    found = dict(columns)
    if "value" in found:
        found["body"] = found.pop("value")
    if "partition" in found:
        found["queue_id"] = found.pop("partition")
    if "key" in found:
        texts = _texts(found.pop("key"), "key")
        found["keys"] = _single_keys(texts)
        found.setdefault("ordering_key", texts)
    if "headers" in found:
        found["properties"] = _properties(found.pop("headers"))
    return found


def _texts(column: Any, name: str, row_ends: Any = None) -> Any:
    """Return a column of strings or UTF-8 bytes as strings."""
    column = _decoded(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    try:
        return column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        for index, value in enumerate(column):
            if value.is_valid and not _is_text(value.as_py()):
                row = index if row_ends is None else int(np.searchsorted(row_ends, index, "right"))
                words = (
                    f"{value.as_py()[:60]!r} is not UTF-8 text: encode it, with base64() or hex()"
                )
                raise BadValueError(name, row, words) from None
        raise


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _single_keys(texts: Any) -> Any:
    """Return a list of one key for each row that has one."""
    has = pc.fill_null(pc.greater(pc.binary_length(texts), 0), False)  # noqa: FBT003 - Arrow's
    ends = np.cumsum(has.to_numpy(zero_copy_only=False), dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    return pa.ListArray.from_arrays(pa.array(offsets), texts.filter(has))


def _properties(column: Any) -> Any:
    """Return a list of structs of name and value as a map."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(counts, dtype=np.int32)
    names, values = column.flatten().flatten()
    names = _texts(names, "headers", ends)
    if names.null_count:
        index = int(np.flatnonzero(names.is_null())[0])
        row = int(np.searchsorted(ends, index, "right"))
        raise BadValueError("headers", row, "a header has no key")
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    return pa.MapArray.from_arrays(pa.array(offsets), names, _texts(values, "headers", ends))


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
