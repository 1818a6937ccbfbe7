"""Messages written to Parquet, JSON lines or CSV.

1. All formats have the columns of `export_rows`. Times are milliseconds since 1970 in UTC: a type
   of its own in Parquet, where a time that no calendar has is null, a number elsewhere. A body
   is bytes in Parquet and base64 elsewhere.
2. Memory is bounded: JSON lines and CSV are streams, Parquet is written in row groups.
3. A file has its name only when it is whole (`NewFile`).
"""

import base64
import csv
import gzip
import io
from collections.abc import Iterable
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

import msgspec
from msgspec import UNSET

from rocketlake.errors import ConfigError
from rocketlake.format.timestamps import is_calendar_time
from rocketlake.model.compression import zstd_stream
from rocketlake.upkeep.export.rows import COLUMNS, BodyColumn, Row

_GROUP_ROWS: Final = 100_000
_GROUP_BYTES: Final = 64 << 20
_BUFFER: Final = 1 << 20
_TIMES: Final = ("store_timestamp", "born_timestamp")

_INSTALL: Final = "pip install 'rocketlake[parquet]'"


class Format(StrEnum):
    """A format of an export."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


class Shape(msgspec.Struct, frozen=True):
    """Format and compression of an export."""

    format: Format
    packing: str = ""
    """`gz`, `zst` or nothing; Parquet has its own."""


class Sink(Protocol):
    """A writer of rows."""

    odd_times: int
    """Rows that were taken with a time that no calendar has and the format cannot hold."""

    def write(self, rows: list[Row]) -> None:
        """Write rows."""
        ...

    def close(self) -> None:
        """Write what is buffered."""
        ...


_SUFFIXES: Final = {
    ".parquet": Format.PARQUET,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
}


def shape_of(path: Path, wanted: Format | None = None) -> Shape:
    """Return format and compression by a file's name.

    Raises:
        ValueError: the name does not tell.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop()[1:] if suffixes and suffixes[-1] in {".gz", ".zst"} else ""
    format_ = wanted or _SUFFIXES.get(suffixes[-1] if suffixes else "")
    if format_ is None:
        raise ValueError(
            f"the name {path.name!r} does not tell the format; wanted .parquet, .jsonl or .csv (the"
            " last two also with .gz or .zst), or --format"
        )
    if packing and format_ is Format.PARQUET:
        raise ValueError(f"{path.name}: Parquet is compressed inside; leave .{packing} away")
    return Shape(format_, packing)


def open_sink(shape: Shape, stream: IO[bytes], body: BodyColumn) -> Sink:
    """Return what writes rows to a stream, which stays open.

    Raises:
        ConfigError: Parquet is wanted, and what it needs is not installed.
    """
    if shape.format is Format.PARQUET:
        return _ParquetSink(stream, body)
    packed = _Packed(stream, shape.packing)
    return _CsvSink(packed, body) if shape.format is Format.CSV else _JsonSink(packed)


class _Packed:
    """A buffered stream, compressed if wanted, into one that stays open."""

    def __init__(self, stream: IO[bytes], packing: str) -> None:
        self._closing: list[Any] = []
        self.stream: IO[bytes] = stream
        if packing == "gz":
            self.stream = cast(IO[bytes], gzip.GzipFile("", "wb", 6, stream, mtime=0))
            self._closing.append(self.stream)
        elif packing == "zst":
            self.stream = zstd_stream(stream)
            self._closing.append(self.stream)

    def close(self) -> None:
        """Finish the compressed stream."""
        for part in self._closing:
            part.close()


class _JsonSink:
    """One JSON object a line."""

    odd_times = 0

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._encoder = msgspec.json.Encoder()

    def write(self, rows: list[Row]) -> None:
        """Write rows."""
        self._packed.stream.write(self._encoder.encode_lines(rows))

    def close(self) -> None:
        """Write what is buffered."""
        self._packed.close()


class _CsvSink:
    """A header and a line for each message; keys are separated by spaces, properties are JSON."""

    odd_times = 0

    def __init__(self, packed: _Packed, body: BodyColumn) -> None:
        self._packed = packed
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._names = _columns(body)
        self._writer.writerow(self._names)

    def write(self, rows: list[Row]) -> None:
        """Write rows."""
        self._writer.writerows([_cell(getattr(row, name)) for name in self._names] for row in rows)
        self._flush()

    def _flush(self) -> None:
        self._packed.stream.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()

    def close(self) -> None:
        """Write what is buffered."""
        self._flush()
        self._packed.close()


def _cell(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return " ".join(value)
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else value


class _ParquetSink:
    """Row groups of bounded size."""

    def __init__(self, stream: IO[bytes], body: BodyColumn) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to import
            from pyarrow import parquet  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                f"Parquet needs pyarrow, which is not installed: {_INSTALL}"
            ) from error
        self._pa = pa
        self._schema = _arrow_schema(pa, body)
        self._writer = parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[Row] = []
        self._size = 0
        self.odd_times = 0

    def write(self, rows: list[Row]) -> None:
        """Buffer rows; write them when there are enough for a group."""
        for row in rows:
            self._rows.append(row)
            is_odd = not all(map(is_calendar_time, (row.store_timestamp, row.born_timestamp)))
            self.odd_times += is_odd
            self._size += row.store_size + (len(row.body) if row.body is not UNSET else 0)
            if self._size >= _GROUP_BYTES or len(self._rows) >= _GROUP_ROWS:
                self._write_group()

    def _write_group(self) -> None:
        arrays = [
            self._pa.array(_values(self._rows, field.name), field.type) for field in self._schema
        ]
        self._writer.write_table(
            self._pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=len(self._rows)
        )
        self._rows, self._size = [], 0

    def close(self) -> None:
        """Write what is buffered, and the end of the file."""
        if self._rows:
            self._write_group()
        self._writer.close()


def _values(rows: Iterable[Row], name: str) -> list[object]:
    if name == "properties":
        return [list(row.properties.items()) for row in rows]
    if name in _TIMES:
        times = map(attrgetter(name), rows)
        return [time if is_calendar_time(time) else None for time in times]
    return list(map(attrgetter(name), rows))


def _columns(body: BodyColumn) -> list[str]:
    return [name for name in COLUMNS if name != "body" or body is not BodyColumn.NONE]


def _arrow_schema(pa: Any, body: BodyColumn) -> Any:  # noqa: ANN401 - pyarrow ships no types
    time = pa.timestamp("ms", tz="UTC")
    kinds = {
        **dict.fromkeys(("queue_id", "flag", "sys_flag", "reconsume_times"), pa.int32()),
        **dict.fromkeys(("queue_offset", "physical_offset"), pa.int64()),
        **dict.fromkeys(_TIMES, time),
        "keys": pa.list_(pa.string()),
        "body": pa.string() if body is BodyColumn.TEXT else pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "prepared_transaction_offset": pa.int64(),
        "store_size": pa.int32(),
    }
    may_be_null = {"unique_key", "tags", *_TIMES}
    return pa.schema(
        [
            pa.field(name, kinds.get(name, pa.string()), nullable=name in may_be_null)
            for name in _columns(body)
        ]
    )
