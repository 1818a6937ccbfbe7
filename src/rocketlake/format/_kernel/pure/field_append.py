"""Fields of a send request -> a sealed record, straight into a file's memory.

A server gets the parts of a message as its client encoded them: a body and a property string. They
become a record without a message object in between.

1. What asks for more than to be appended is answered with 0: the caller then decodes it, and puts
   it as any other message.
2. The property string is copied property by property: those that the server sets itself, or drops,
   are left out, and its own follow at the end.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from rocketlake.format import layout
from rocketlake.format._kernel.pure.appending import RecordFrame, is_reserved
from rocketlake.format._kernel.pure.encoding import encode, seal
from rocketlake.format._kernel.pure.numbers import i32, i64
from rocketlake.format._kernel.pure.properties import encode_properties

_WAIT: Final = b"WAIT"
# Compressed, several tags, hosts of IPv6, kind of the compression.
_PLAIN_FLAGS: Final = 0x0733
_BODY_TYPES: Final = (bytes, bytearray, memoryview)


class PropertyEdits:
    """What a server changes in the properties of every message: what it sets, what it drops."""

    __slots__ = ("names", "suffix")

    def __init__(self, added: Mapping[str, str], dropped: Collection[str]) -> None:
        """`added` replaces properties of the same names.

        Raises:
            ValueError: a property cannot be written.
        """
        self.suffix = encode_properties(added, True)
        self.names = frozenset(name.encode() for name in (*added, *dropped))


def append_fields(
    buffer: Any,
    at: int,
    fields: Any,
    frame: RecordFrame,
    edits: PropertyEdits,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> int:
    """Write a sealed record at a position; return its size, negative if it does not fit.

    Of `fields` body, properties (a text, or the bytes of one), born_host, born_timestamp, flag,
    sys_flag and reconsume_times are read; topic, queue, host and limits are those of the frame.
    0: the message asks for more than to be appended, or is too large.

    Raises:
        ValueError: a field does not fit into the format.
    """
    view = memoryview(buffer).cast("B")
    at = i64(at)
    if at < 0 or at > len(view):
        raise ValueError(f"position {at} lies outside the buffer")
    places = (i64(queue_offset), i64(physical_offset), i64(store_timestamp))
    record = _encode(fields, frame, edits)
    if record is None:
        return 0
    if len(record) > len(view) - at - layout.BLANK_HEADER_SIZE:
        return -len(record)
    seal(record, 0, *places, frame.reserve_crc)
    view[at : at + len(record)] = record
    return len(record)


def _encode(fields: Any, frame: RecordFrame, edits: PropertyEdits) -> bytearray | None:
    flag, sys_flag = i32(fields.flag), i32(fields.sys_flag)
    born, reconsume_times = i64(fields.born_timestamp), i32(fields.reconsume_times)
    body, properties = fields.body, fields.properties
    if sys_flag & ~_PLAIN_FLAGS or type(body) not in _BODY_TYPES:
        return None
    if type(properties) not in (str, bytes):
        return None
    plain = bytes(body)
    if len(plain) > frame.body_max:
        return None
    raw = properties.encode() if isinstance(properties, str) else properties
    text = edit(raw, edits, trailing=frame.trailing)
    if text is None:
        return None
    width = len(text)
    if frame.reserve_crc:
        width += layout.RECORD_CRC_SIZE + (not frame.trailing and width > 0)
    if width > layout.MAX_I16:
        return None
    record = encode(
        topic=frame.topic,
        body=plain,
        properties=text,
        queue_id=frame.queue_id,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=fields.born_host,
        store_host=frame.store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=frame.prepared,
        version=frame.version,
        reserve_crc=frame.reserve_crc,
    )
    return None if len(record) > frame.record_max else record


def edit(properties: bytes, edits: PropertyEdits, *, trailing: bool) -> bytes | None:
    """Return a property string with a server's changes; None if the store has to look closer."""
    kept = bytearray()
    items = properties.split(b"\x02")
    if not items[-1]:
        items.pop()  # the last property has its separator
    for item in items:
        name, _, value = item.partition(b"\x01")
        # Why: what is no property, readers pass over in different ways.
        if not name or not value or b"\x01" in value:
            return None
        if name == _WAIT:
            if value != b"true":
                return None
        elif is_reserved(name):
            return None
        if name not in edits.names:
            kept += item + b"\x02"
    kept += edits.suffix
    return bytes(kept if trailing or not kept else kept[:-1])
