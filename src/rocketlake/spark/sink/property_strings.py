"""Property strings of a batch of rows, made column by column.

The strings are those that `message_properties` makes of each row: its properties, then KEYS, then
TAGS; a name that the properties already have keeps its value. `unique_key` is one of the
properties, behind the others.
"""

# ruff: noqa: ANN401 - Arrow ships no types

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from rocketlake.model import properties as names

_NAME_END: Final = "\x01"
_END: Final = "\x02"
_RESERVED: Final = (names.DELAY, names.WAIT, names.RECORD_CRC)
_RESERVED_PREFIXES: Final = ("TIMER_", "INNER_")

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class Texts(Struct):
    """The property strings of some rows, each with a separator behind its last property."""

    data: Any
    """A buffer."""
    places: Ints
    """The start of each, and the end of the last one."""
    is_special: Mask | None = None
    """The rows with properties that the store acts on."""
    is_doubtful: bool = False
    """Whether a row may have a name or value that cannot be written."""

    @property
    def sizes(self) -> Ints:
        """The length of each."""
        return np.diff(self.places)


def make_texts(columns: Mapping[str, Any], count: int) -> Texts:
    """Return the property strings of rows."""
    maker = _Maker(count)
    if "properties" in columns:
        maker.add_map(columns["properties"])
    if "unique_key" in columns:
        maker.add_text(names.UNIQUE_KEY, columns["unique_key"])
    if "keys" in columns:
        maker.add_text(names.KEYS, maker.keys_text(columns["keys"]))
    if "tags" in columns:
        maker.add_text(names.TAGS, columns["tags"])
    return maker.finish()


def places_of(array: Any) -> tuple[Any, Ints]:
    """Return the bytes of a string or binary array, and the start of each value."""
    width = np.int64 if _is_large(array.type) else np.int32
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, width, count=array.offset + len(array) + 1)[array.offset :]
    return data if data is not None else b"", places.astype(np.int64)


def narrow(array: Any) -> Any:
    """Return texts with offsets of 32 bits, which are Spark's default."""
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array


def _is_large(kind: Any) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


class _Maker:
    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[Any] = []
        self._expected = 0  # the number of properties
        self._taken: dict[str, Mask] = {}
        self._special: Mask | None = None
        self._is_doubtful = False

    def add_map(self, column: Any) -> None:
        """Add all properties of a map."""
        column = pa.concat_arrays([column])  # so that it begins at its first entry
        starts = np.asarray(column.offsets)
        keys, values = narrow(column.keys), narrow(column.items)
        if len(keys) == 0:
            return
        entries = pc.binary_join_element_wise(keys, values, _NAME_END)
        entries = pc.if_else(values.is_null(), "", pc.binary_join_element_wise(entries, _END, ""))
        self._note_names(keys, starts)
        if column.null_count:
            counts = np.where(np.asarray(column.is_null()), 0, np.diff(starts))
            if int(counts.sum()) != len(keys):  # entries below a row that is null
                self._is_doubtful = True
        self._expected += len(values) - values.null_count
        self._is_doubtful |= bool(pc.any(pc.equal(pc.binary_length(keys), 0)).as_py())
        lists = pa.ListArray.from_arrays(column.offsets, entries)
        self._parts.append(pc.fill_null(pc.binary_join(lists, ""), ""))

    def _note_names(self, keys: Any, starts: Ints) -> None:
        # Why not `is_in`: to make its set of values, Arrow imports pandas.
        tests = [pc.equal(keys, name) for name in _RESERVED]
        tests += [pc.starts_with(keys, prefix) for prefix in _RESERVED_PREFIXES]
        reserved = reduce(pc.or_, tests)
        self._special = self._rows_of(reserved, starts)
        for name in (names.UNIQUE_KEY, names.KEYS, names.TAGS):
            found = self._rows_of(pc.equal(keys, name), starts)
            if found is not None:
                self._taken[name] = found

    def _rows_of(self, entries: Any, starts: Ints) -> Mask | None:
        """Return the rows that have one of these entries; None if there is none."""
        places = np.flatnonzero(entries.to_numpy(zero_copy_only=False))
        if not len(places):
            return None
        mask = np.zeros(self._count, np.bool_)
        mask[np.searchsorted(starts, places, side="right") - 1] = True
        return mask

    def keys_text(self, column: Any) -> Any:
        """Return the keys of each row as one text, separated by blanks."""
        if pa.types.is_list(column.type):
            column = pa.concat_arrays([column])
            flat = column.flatten()
            data, places = places_of(flat)
            self._is_doubtful |= bool(
                flat.null_count
                or (len(flat) and not np.diff(places).all())
                or _count(data, places, 0x20)
            )
            # Why: Arrow does not join lists whose texts are declared as never null.
            lists = pa.ListArray.from_arrays(column.offsets, flat.cast(pa.string()))
            return pc.binary_join(lists, names.KEY_SEPARATOR)
        data, places = places_of(column)
        if _count(data, places, 0x20):
            return pc.replace_substring_regex(pc.utf8_trim(column, " "), " +", " ")
        return column

    def add_text(self, name: str, column: Any) -> None:
        """Add one property to the rows that have a text for it."""
        has = pc.fill_null(pc.greater(pc.binary_length(column), 0), False)  # noqa: FBT003 - Arrow's
        if name in self._taken:
            has = pc.and_(has, pa.array(~self._taken[name]))
        count = int(pc.sum(has).as_py() or 0)
        if not count:
            return
        self._expected += count
        text = pc.binary_join_element_wise(f"{name}{_NAME_END}", column, _END, "")
        self._parts.append(text if count == self._count else pc.if_else(has, text, ""))

    def finish(self) -> Texts:
        """Return the joined strings."""
        if not self._parts:
            return Texts(b"", np.zeros(self._count + 1, np.int64), self._special, self._is_doubtful)
        whole = self._parts[0]
        if len(self._parts) > 1:
            whole = pc.binary_join_element_wise(*self._parts, "")
        data, places = places_of(whole)
        for separator in (_NAME_END, _END):
            found = _count(data, places, ord(separator))
            self._is_doubtful |= found != self._expected
        return Texts(data, places, self._special, self._is_doubtful)


def _count(data: Any, places: Ints, byte: int) -> int:
    """Return how often a byte occurs in the values of an array."""
    if not len(places) or places[0] == places[-1]:
        return 0
    values = np.frombuffer(data, np.uint8)[places[0] : places[-1]]
    return int(np.count_nonzero(values == byte))
