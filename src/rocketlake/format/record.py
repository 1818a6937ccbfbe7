"""Commit-log record: encode, seal, decode, scan.

The layout is in docs/formats/commitlog.md. `scan` is the one way from log bytes to records: it
serves dispatch, recovery, verification, consumers and Spark.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.format import layout
from rocketlake.format._kernel.chooser import KERNEL as _KERNEL
from rocketlake.format._kernel.codes import Check, ReadStop, StopReason
from rocketlake.model import properties as names
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message

if TYPE_CHECKING:
    from rocketlake.format._kernel.pure import StoredMessage
else:
    StoredMessage = _KERNEL.StoredMessage

__all__ = [
    "ROW_DTYPE",
    "Check",
    "Envelope",
    "ReadStop",
    "RecordColumns",
    "Scan",
    "StopReason",
    "StoredMessage",
    "crc31",
    "decode_properties",
    "encode",
    "encode_batch",
    "encode_properties",
    "message_properties",
    "read_columns",
    "read_ranges",
    "read_units",
    "reason_text",
    "reencode",
    "scan",
    "scan_at",
    "seal",
    "version_for",
]

Buffer = bytes | bytearray | memoryview
Bytes = npt.NDArray[np.uint8]

ROW_DTYPE = np.dtype(
    [
        ("position", np.int64),
        ("physical_offset", np.int64),
        ("queue_offset", np.int64),
        ("born_timestamp", np.int64),
        ("store_timestamp", np.int64),
        ("prepared_transaction_offset", np.int64),
        ("body_position", np.int64),
        ("topic_position", np.int64),
        ("properties_position", np.int64),
        ("size", np.int32),
        ("body_crc", np.int32),
        ("queue_id", np.int32),
        ("flag", np.int32),
        ("sys_flag", np.int32),
        ("reconsume_times", np.int32),
        ("body_size", np.int32),
        ("topic_size", np.int16),
        ("properties_size", np.int16),
    ]
)
"""One parsed record; the same fields in the same order as `layout.ROW_FORMAT`."""

assert ROW_DTYPE.itemsize == layout.ROW_SIZE

_ROW = struct.Struct(layout.ROW_FORMAT)
_CRC_BEGIN = layout.RECORD_CRC_NAME + b"\x01"

crc31 = _KERNEL.crc31
seal = _KERNEL.seal
encode_properties = _KERNEL.encode_properties
decode_properties = _KERNEL.decode_properties
message_properties = _KERNEL.message_properties
read_ranges = _KERNEL.read_ranges
read_units = _KERNEL.read_units
read_columns = _KERNEL.read_columns

_REASONS: Mapping[int, str] = {
    StopReason.END_OF_DATA: "bytes that were never written",
    StopReason.END_OF_FILE: "the end of a file",
    StopReason.TORN: "a record reaches beyond the end",
    StopReason.BAD_MAGIC: "no record begins here",
    StopReason.BAD_SIZE: "the lengths of a record do not add up",
    StopReason.BAD_CRC: "a record does not have its checksum",
    StopReason.BAD_OFFSET: "a record of another place of the log",
    StopReason.LOST_PAGE: "the properties of the last record end with zeros: a power cut took them",
}


class RecordColumns:
    """Records of one buffer as columns: `columns["queue_offset"]` is an array.

    Positions count from the buffer's first byte. The columns are views of `rows`; the buffer
    must live as long as they are used.
    """

    __slots__ = ("buffer", "rows")

    def __init__(self, buffer: Buffer, rows: npt.NDArray[np.void]) -> None:
        self.buffer = buffer
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.rows[name]

    def tuples(self) -> Iterator[tuple[int, ...]]:
        """Yield each row as plain integers, in the order of `ROW_DTYPE`."""
        return _ROW.iter_unpack(np.ascontiguousarray(self.rows).tobytes())

    def topics(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return each record's topic as a number, and the topics so numbered."""
        codes = np.empty(len(self.rows), np.int32)
        names_ = _KERNEL.intern_topics(self.buffer, _raw(self.rows), len(self.rows), codes)
        return codes, [name.decode("utf-8", "replace") for name in names_]

    def messages(self) -> list[StoredMessage]:
        """Return each record as a message.

        Raises:
            ValueError: a row lies outside the buffer.
        """
        return _KERNEL.make_messages(self.buffer, _raw(np.ascontiguousarray(self.rows)))

    def message(self, index: int) -> StoredMessage:
        """Return one record as a message."""
        return _KERNEL.make_messages(self.buffer, _raw(self.rows[[index]]))[0]

    def json_lines(self, tags_codes: npt.NDArray[np.int64], *, with_body: bool) -> bytes:
        """Return a JSON object and a line feed for each record, the body in base64 as stored."""
        raw = _raw(np.ascontiguousarray(self.rows))
        codes = np.ascontiguousarray(tags_codes, np.int64)
        return _KERNEL.json_lines(self.buffer, raw, codes, with_body)


class Scan(Struct, frozen=True):
    """What a scan found: the records, why it ended, and the first byte it did not parse."""

    columns: RecordColumns
    reason: StopReason
    position: int


def scan(
    buffer: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    base_offset: int = 0,
    checks: int = Check.BODY_CRC,
    rows_max: int = 16_384,
) -> Scan:
    """Parse records one behind the other until something ends it; bad bytes never raise.

    `base_offset` is the physical offset of the buffer's first byte. The reason is OK when
    `rows_max` ended it: go on at the position.
    """
    end = len(buffer) if end is None else min(end, len(buffer))
    room = min(rows_max, max(end - start, 0) // layout.RECORD_MIN_SIZE + 1)
    rows = np.empty(room, ROW_DTYPE)
    count, reason, position = _KERNEL.scan(buffer, start, end, base_offset, checks, _raw(rows))
    return Scan(RecordColumns(buffer, rows[:count]), StopReason(reason), position)


def scan_at(
    buffer: Buffer, places: npt.NDArray[np.int64], *, checks: int = Check.BODY_CRC
) -> tuple[RecordColumns, npt.NDArray[np.uint8]]:
    """Parse the records at given places; return a row and a stop reason (0: good) for each.

    A place is position in the buffer, size, physical offset; as rows of a (n, 3) array.
    """
    rows = np.empty(len(places), ROW_DTYPE)
    reasons = np.empty(len(places), np.uint8)
    flat = np.ascontiguousarray(places, np.int64).reshape(-1)
    _KERNEL.scan_at(buffer, flat, checks, _raw(rows), reasons)
    return RecordColumns(buffer, rows), reasons


def reason_text(reason: int) -> str:
    """Return the text for a reason why a scan stopped or a record is bad."""
    return _REASONS.get(reason, "unreadable")


def _raw(rows: npt.NDArray[np.void]) -> Bytes:
    return rows.view(np.uint8)


class Envelope(Struct, frozen=True, kw_only=True):
    """What a record holds beside the message: everything known before the append lock.

    For records made outside a log, as by tests and benchmarks; a store appends from frames
    (`format.appending`), which `store.log.record_shape` makes.
    """

    queue_id: int
    born_timestamp: int
    born_host: Endpoint
    store_host: Endpoint
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int = 1
    trailing_separator: bool = True
    """End the last property too: releases up to 4.9.0 and from 5.2.0 on do."""
    reserve_crc: bool = False


def version_for(topic: str) -> int:
    """Return the record version a topic needs: 2 beyond 127 characters, counted as Java does."""
    units = len(topic.encode("utf-16-le", "surrogatepass")) // 2
    return 1 if units <= layout.MAX_I8 else 2


def encode(message: Message, envelope: Envelope) -> bytearray:
    """Return a record whose queue offset, physical offset and store time are still zero.

    Raises:
        ValueError: a field does not fit into the format.
    """
    encoded: bytearray = _KERNEL.encode(
        message.topic.encode(),
        message.body,
        _KERNEL.message_properties(message, envelope.trailing_separator),
        envelope.queue_id,
        message.flag,
        envelope.sys_flag,
        envelope.born_timestamp,
        envelope.born_host.encode(),
        envelope.store_host.encode(),
        envelope.reconsume_times,
        envelope.prepared_transaction_offset,
        envelope.version,
        envelope.reserve_crc,
    )
    return encoded


def encode_batch(
    messages: Sequence[Message], topic: str, envelope: Envelope
) -> tuple[bytearray, list[int]]:
    """Encode messages of one topic behind each other; return the bytes and each record's size.

    Raises:
        ValueError: a field does not fit into the format.
    """
    encoded: tuple[bytearray, list[int]] = _KERNEL.encode_batch(
        messages,
        topic.encode(),
        envelope.queue_id,
        envelope.sys_flag,
        envelope.born_timestamp,
        envelope.born_host.encode(),
        envelope.store_host.encode(),
        envelope.version,
        envelope.trailing_separator,
        envelope.reserve_crc,
    )
    return encoded


def reencode(message: StoredMessage) -> bytes:
    """Write a decoded record anew, from its values alone.

    Equal bytes prove that every byte was understood; a whole-record checksum is computed, not
    copied. Values that make no record, such as a topic that is no text, give no bytes.
    """
    raw = message.raw_properties
    trailing = raw.endswith(b"\x02")
    with_crc = trailing and raw[-layout.RECORD_CRC_SIZE :].startswith(_CRC_BEGIN)
    with_crc = with_crc and len(raw) >= layout.RECORD_CRC_SIZE
    properties = b"\x02".join(
        f"{name}\x01{value}".encode()
        for name, value in message.properties.items()
        if not (with_crc and name == names.RECORD_CRC)
    )
    if properties and trailing:
        properties += b"\x02"
    try:
        record = _KERNEL.encode(
            message.topic.encode(),
            message.stored_body,
            properties,
            message.queue_id,
            message.flag,
            message.sys_flag,
            message.born_timestamp,
            message.born_host.encode(),
            message.store_host.encode(),
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.version,
            with_crc,
        )
    except ValueError:
        return b""
    seal(
        record, 0, message.queue_offset, message.physical_offset, message.store_timestamp, with_crc
    )
    return bytes(record)
