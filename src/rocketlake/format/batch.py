"""A client's batch: messages encoded behind each other, as a request body or an inner batch.

| offset | width | field                       |
| ------ | ----- | --------------------------- |
| 0      | 4     | size, this field included   |
| 4      | 4     | magic, 0                    |
| 8      | 4     | crc, 0                      |
| 12     | 4     | flag                        |
| 16     | 4 + n | body_size, body             |
|        | 2 + n | properties_size, properties |

A classic batch is taken apart and every message becomes a record; an inner batch stays as it is,
the body of one record (docs/formats/commitlog.md).
"""

import struct
from collections.abc import Iterable

from msgspec import Struct

from rocketlake.format import layout
from rocketlake.format.record import decode_properties

_HEAD = struct.Struct(
    ">"
    "i"  # size
    "i"  # magic
    "i"  # crc
    "i"  # flag
    "i"  # body_size
)
_PROPERTIES_SIZE = struct.Struct(">h")


class BatchEntry(Struct, frozen=True):
    """One message of a client's batch."""

    body: bytes
    raw_properties: bytes = b""
    flag: int = 0

    @property
    def properties(self) -> dict[str, str]:
        """The map of the property string."""
        return decode_properties(self.raw_properties)


def encode_entries(entries: Iterable[BatchEntry]) -> bytes:
    """Encode messages as a client sends them.

    Raises:
        ValueError: properties longer than 32767 bytes.
    """
    out = bytearray()
    for entry in entries:
        size = layout.BATCH_ENTRY_FIXED_SIZE + len(entry.body) + len(entry.raw_properties)
        if len(entry.raw_properties) > layout.MAX_I16:
            raise ValueError(f"properties of {len(entry.raw_properties)} bytes; 32767 fit")
        if not -0x80000000 <= entry.flag <= layout.MAX_I32 or size > layout.MAX_I32:
            raise ValueError(f"flag {entry.flag} or size {size} is a number beyond 32 bits")
        out += _HEAD.pack(size, 0, 0, entry.flag, len(entry.body))
        out += entry.body
        out += _PROPERTIES_SIZE.pack(len(entry.raw_properties))
        out += entry.raw_properties
    return bytes(out)


def decode_entries(data: bytes) -> list[BatchEntry]:
    """Take a client's batch apart.

    Raises:
        ValueError: lengths that do not add up, with the position.
    """
    entries = []
    position = 0
    while position < len(data):
        entry, position = _decode_entry(data, position)
        entries.append(entry)
    return entries


def _decode_entry(data: bytes, position: int) -> tuple[BatchEntry, int]:
    if len(data) - position < layout.BATCH_ENTRY_FIXED_SIZE:
        raise ValueError(f"batch is cut off at {position}")
    size, _, _, flag, body_size = _HEAD.unpack_from(data, position)
    end = position + size
    body = position + _HEAD.size
    if size < layout.BATCH_ENTRY_FIXED_SIZE or end > len(data):
        raise ValueError(f"batch entry at {position} claims {size} bytes")
    if body_size < 0 or body + body_size + 2 > end:
        raise ValueError(f"batch entry at {position} claims a body of {body_size} bytes")
    properties = body + body_size + 2
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, properties - 2)
    if properties_size < 0 or properties + properties_size != end:
        raise ValueError(f"batch entry at {position} claims {properties_size} property bytes")
    return BatchEntry(data[body : properties - 2], data[properties:end], flag), end
