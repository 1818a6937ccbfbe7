"""Bulk records: rows -> staged records -> sealed records in a file's memory.

`_kernel/pure/bulk.py` defines a staged record. Rows that need more than the append are staged
among them as messages:

| At | Width | Field |
| --- | --- | --- |
| 0 | i32 | size of all of it |
| 4 | i32 | MAGIC_ROW |
| 8 | i64 | born timestamp |
| 16 | i32 | route |
| 20 | i32 | queue id, -1 or -2 |
| 24 | | the message, as MessagePack |
"""

from struct import Struct as Layout
from typing import Final

import msgspec
from msgspec import Struct

from rocketlake.format import layout
from rocketlake.format._kernel.chooser import KERNEL as _KERNEL
from rocketlake.format._kernel.codes import BulkStop
from rocketlake.format.record import scan
from rocketlake.model import properties as names
from rocketlake.model.message import Message

__all__ = [
    "BY_KEY",
    "TURN",
    "BulkStop",
    "StagedRow",
    "append_rows",
    "encode_rows",
    "pack_row",
    "read_row",
    "row_size",
]

TURN: Final = -1
"""In place of a queue: the queues of the topic take turns."""
BY_KEY: Final = -2
"""In place of a queue: the one of the row's ordering key."""
MAGIC_ROW: Final = 0x524C524F  # "RLRO"

append_rows = _KERNEL.append_rows
encode_rows = _KERNEL.encode_rows

_HEAD: Final = Layout(">ii")
_ROW: Final = Layout(">iiqii")
_PLACES: Final = Layout(">qq")
_decoder: Final = msgspec.msgpack.Decoder(Message)

Buffer = bytes | bytearray | memoryview


class StagedRow(Struct, frozen=True):
    """A row that is put by hand."""

    message: Message
    born_timestamp: int
    route: int
    queue_id: int
    """A queue, `TURN` or `BY_KEY`."""
    key_hash: int | None = None
    """Of the ordering key, where the message does not have it."""


def row_size(records: Buffer, position: int) -> int:
    """Return the size of what is staged at a position.

    Raises:
        ValueError: nothing whole is there.
    """
    left = len(records) - position
    size: int = _HEAD.unpack_from(records, position)[0] if left >= _HEAD.size else 0
    if not _HEAD.size <= size <= left:
        raise ValueError(f"nothing whole is staged at {position}")
    return size


def pack_row(row: StagedRow) -> bytes:
    """Return a row that is put by hand, as it travels."""
    data = msgspec.msgpack.encode(row.message)
    head = _ROW.pack(_ROW.size + len(data), MAGIC_ROW, row.born_timestamp, row.route, row.queue_id)
    return head + data


def read_row(records: Buffer, position: int) -> StagedRow:
    """Return what is staged at a position, a record or a message.

    Raises:
        ValueError: nothing of that kind is there.
    """
    size = row_size(records, position)
    data = bytes(memoryview(records)[position : position + size])
    if _HEAD.unpack_from(data)[1] in (layout.MAGIC_V1, layout.MAGIC_V2):
        return _read_record(data)
    if size < _ROW.size or _HEAD.unpack_from(data)[1] != MAGIC_ROW:
        raise ValueError(f"nothing known is staged at {position}")
    _, _, born, route, queue_id = _ROW.unpack_from(data)
    return StagedRow(_decoder.decode(data[_ROW.size :]), born, route, queue_id)


def _read_record(data: bytes) -> StagedRow:
    found = scan(data, rows_max=1).columns
    if not len(found):
        raise ValueError("a staged record is not whole")
    stored = found.message(0)
    properties = {k: v for k, v in stored.properties.items() if k != names.RECORD_CRC}
    # Why: a hook may add a property, and KEYS and TAGS are written after all others.
    tags = _take_last(properties, names.TAGS)
    keys = _take_last(properties, names.KEYS)
    message = Message(
        topic=stored.topic,
        body=stored.stored_body,
        tags=tags,
        keys=keys.split(names.KEY_SEPARATOR) if keys else (),
        properties=properties,
        flag=stored.flag,
    )
    route, key_hash = _PLACES.unpack_from(data, layout.RECORD_QUEUE_OFFSET_AT)
    return StagedRow(message, stored.born_timestamp, route, stored.queue_id, key_hash)


def _take_last(properties: dict[str, str], name: str) -> str | None:
    """Take a property away if it is the last one."""
    is_last = next(reversed(properties), None) == name
    return properties.pop(name) if is_last else None
