"""RecordColumns -> pa.RecordBatch, with exactly the Arrow schema that Spark wants.

1. The kernel lays out columns of variable length, numpy copies those of fixed length; no object is
   made for a row. Only compressed bodies are inflated one by one.
2. A batch is bounded by rows and by bytes, so a reader's memory does not depend on the messages. A
   larger record is a batch of its own.
3. A time outside of the calendar is null (`format.timestamps`); its number is a separate column.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketlake.format.arrow_columns import ArrowColumn, arrow_columns
from rocketlake.format.record import RecordColumns
from rocketlake.format.timestamps import to_microseconds
from rocketlake.model.compression import inflate
from rocketlake.model.flags import COMPRESSED

Int64s = npt.NDArray[np.int64]

_Offsets = bytes | npt.NDArray[np.int32]
_Texts = tuple[bytes, _Offsets, bytes]
"""Validity, offsets and bytes."""

ROWS_MAX: Final = 8192
BYTES_MAX: Final = 8 << 20

_BYTES_LIMIT: Final = 256 << 20
"""Stored bodies, grown ones and the last that grew (up to 1 GiB) have to stay under 2 GiB."""

_LAID_OUT: Final[Mapping[str, ArrowColumn]] = {
    column.name.lower(): column for column in ArrowColumn if column.name
}
_NUMBERS: Final[Mapping[str, str]] = {
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "physical_offset": "physical_offset",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "reconsume_times": "reconsume_times",
    "prepared_transaction_offset": "prepared_transaction_offset",
    "store_size": "size",
    "store_timestamp_ms": "store_timestamp",
    "born_timestamp_ms": "born_timestamp",
}
_TIMES: Final = ("store_timestamp", "born_timestamp")
_BROKER: Final = "broker"

COLUMNS: Final = frozenset({*_LAID_OUT, *_NUMBERS, *_TIMES, _BROKER})
"""Every column a batch can have."""


class BatchMaker:
    """Makes batches of a schema: any of the columns of a message, in any order.

    `on_bad_body` gets the physical offset of a record whose compressed body cannot be inflated, and
    the reason: the body is given as stored, unless the callback raises.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        is_raw_body: bool = False,
        broker: str = "",
        rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
        on_bad_body: Callable[[int, str], None] | None = None,
    ) -> None:
        unknown = [name for name in schema.names if name not in COLUMNS]
        assert not unknown, f"no columns of a message: {unknown}"
        self._schema = schema
        self._rows_max = max(rows_max, 1)
        self._bytes_max = min(bytes_max, _BYTES_LIMIT)
        self._on_bad_body = on_bad_body
        self._wanted = ArrowColumn(0)
        for name in schema.names:
            self._wanted |= _LAID_OUT.get(name, ArrowColumn(0))
        self._inflates = not is_raw_body and bool(self._wanted & ArrowColumn.BODY)
        self._broker = broker.encode()
        self._brokers: pa.Array | None = None

    def batches(
        self, columns: RecordColumns, queue_offsets: Int64s | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records as batches, in their order; a record's buffer is not kept.

        `queue_offsets` are the numbers in the queue where they may differ from what records say.

        Raises:
            ValueError: a row lies outside the buffer.
        """
        offsets = columns["queue_offset"] if queue_offsets is None else queue_offsets
        assert len(offsets) == len(columns), "a queue offset for each record"
        start = 0
        for stop in self._stops(columns):
            while start < stop:
                plain, end = self._inflate(columns, start, stop)
                part = RecordColumns(columns.buffer, columns.rows[start:end])
                yield self._batch(part, offsets[start:end], plain)
                start = end

    # --- cutting -------------------------------------------------------------------------------

    def _stops(self, columns: RecordColumns) -> Iterator[int]:
        """Yield the ends of batches by the sizes that records state."""
        total = len(columns)
        if not total:
            return
        pieces = -(-total // self._rows_max)
        step = -(-total // pieces)  # as even as possible: a batch of few rows is expensive
        reach = self._reach(columns)
        start = 0
        while start < total:
            before = int(reach[start - 1]) if start else 0
            stop = int(np.searchsorted(reach, before + self._bytes_max, side="right"))
            start = min(max(stop, start + 1), start + step, total)
            yield start

    def _reach(self, columns: RecordColumns) -> Int64s:
        """Return about how many bytes the rows up to each one have."""
        if not self._wanted:
            return np.zeros(len(columns), np.int64)
        sizes = columns["size"].astype(np.int64)
        if not self._wanted & ArrowColumn.BODY:
            sizes -= columns["body_size"]
        return np.cumsum(sizes)

    # --- bodies --------------------------------------------------------------------------------

    def _inflate(
        self, columns: RecordColumns, start: int, stop: int
    ) -> tuple[Mapping[int, bytes], int]:
        """Return plain bodies, by row from the start, and where the batch ends because of them."""
        if not self._inflates:
            return {}, stop
        packed = np.flatnonzero(columns["sys_flag"][start:stop] & COMPRESSED).tolist()
        plain: dict[int, bytes] = {}
        grown = 0
        for index in packed:
            row = columns.rows[start + index]
            at, size = int(row["body_position"]), int(row["body_size"])
            try:
                body = inflate(bytes(columns.buffer[at : at + size]), int(row["sys_flag"]))
            except ValueError as error:
                if self._on_bad_body is not None:
                    self._on_bad_body(int(row["physical_offset"]), str(error))
                continue
            plain[index] = body
            grown += len(body)
            if grown >= self._bytes_max:
                return plain, start + index + 1
        return plain, stop

    # --- columns -------------------------------------------------------------------------------

    def _batch(
        self, part: RecordColumns, queue_offsets: Int64s, plain: Mapping[int, bytes]
    ) -> pa.RecordBatch:
        buffers: dict[ArrowColumn, tuple[Any, ...]] = dict(arrow_columns(part, self._wanted))
        if plain:
            buffers[ArrowColumn.BODY] = _replaced(buffers[ArrowColumn.BODY], plain)
        arrays = []
        for name, kind in zip(self._schema.names, self._schema.types, strict=True):
            if name in _LAID_OUT:
                arrays.append(_laid_out(kind, len(part), buffers[_LAID_OUT[name]]))
            elif name in _TIMES:
                arrays.append(_times(kind, part[name]))
            elif name == _BROKER:
                arrays.append(self._same_broker(kind, len(part)))
            else:
                values = queue_offsets if name == "queue_offset" else part[_NUMBERS[name]]
                arrays.append(_fixed(kind, np.ascontiguousarray(values)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _same_broker(self, kind: pa.DataType, count: int) -> pa.Array:
        made = self._brokers
        if made is None or len(made) < count:
            ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(self._broker))
            made = self._brokers = _text(kind, count, (b"", ends, self._broker * count))
        return made.slice(0, count)


def _laid_out(kind: pa.DataType, count: int, buffers: tuple[Any, ...]) -> pa.Array:
    if pa.types.is_map(kind):
        offsets, name_ends, names, value_ends, values = buffers
        size = len(name_ends) // 4 - 1
        children = [
            _text(kind.key_type, size, (b"", name_ends, names)),
            _text(kind.item_type, size, (b"", value_ends, values)),
        ]
        pairs = pa.Array.from_buffers(
            pa.struct([kind.key_field, kind.item_field]), size, [None], 0, children=children
        )
        return pa.Array.from_buffers(
            kind, count, [None, pa.py_buffer(offsets)], 0, children=[pairs]
        )
    if pa.types.is_list(kind):
        offsets, ends, texts = buffers
        words = _text(kind.value_type, len(ends) // 4 - 1, (b"", ends, texts))
        return pa.Array.from_buffers(
            kind, count, [None, pa.py_buffer(offsets)], 0, children=[words]
        )
    validity, ends, texts = buffers
    return _text(kind, count, (validity, ends, texts))


def _text(kind: pa.DataType, count: int, texts: _Texts) -> pa.Array:
    validity, ends, data = texts
    bits = pa.py_buffer(validity) if validity else None
    buffers = [bits, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, count, buffers, -1 if validity else 0)


def _fixed(kind: pa.DataType, values: npt.NDArray[Any], valid: bytes = b"") -> pa.Array:
    bits = pa.py_buffer(valid) if valid else None
    return pa.Array.from_buffers(
        kind, len(values), [bits, pa.py_buffer(values)], -1 if valid else 0
    )


def _times(kind: pa.DataType, values: Int64s) -> pa.Array:
    """Return milliseconds as microseconds; null for numbers outside of the calendar."""
    found, valid = to_microseconds(values)
    if valid is None:
        return _fixed(kind, found)
    return _fixed(kind, found, np.packbits(valid, bitorder="little").tobytes())


def _replaced(buffers: tuple[Any, ...], plain: Mapping[int, bytes]) -> _Texts:
    """Return the buffers of bodies with some of them replaced."""
    _, raw_ends, data = buffers
    ends = np.frombuffer(raw_ends, np.int32)
    sizes = np.diff(ends).astype(np.int64)
    stored = memoryview(data)
    pieces: list[bytes | memoryview] = []
    done = 0
    for index, body in plain.items():
        pieces += (stored[done : ends[index]], body)
        done = ends[index + 1]
        sizes[index] = len(body)
    pieces.append(stored[done:])
    new_ends = np.zeros(len(ends), np.int32)
    np.cumsum(sizes, out=new_ends[1:])
    return b"", new_ends, b"".join(pieces)
