"""Rows -> JSON lines, with the field names RocketMQ's tools use."""

import base64
import json
import struct
from typing import Any

from rocketlake.format import layout
from rocketlake.format._kernel.pure.numbers import numbers
from rocketlake.format._kernel.pure.properties import decode_properties
from rocketlake.model.endpoint import host_text

Buffer = bytes | bytearray | memoryview

_ROW = struct.Struct(layout.ROW_FORMAT)


def json_lines(buffer: Buffer, rows: Any, tags_codes: Any, with_body: bool) -> bytes:
    """Return a JSON object and a line feed for each row; `tags_codes` holds a native i64 each.

    The body is base64, as stored. Text is UTF-8; bytes that are none become U+FFFD.

    Raises:
        ValueError: a row lies outside the buffer.
    """
    data = bytes(buffer)
    table = memoryview(rows).cast("B")
    codes = numbers(tags_codes, "q", 8)
    out = []
    for i in range(min(len(table) // layout.ROW_SIZE, len(codes))):
        row = _ROW.unpack_from(table, i * layout.ROW_SIZE)
        if not is_inside(row, len(data)):
            raise ValueError(f"row {i} lies outside the buffer")
        out.append(_line(data, row, codes[i], with_body=with_body))
    return "".join(out).encode()


def is_inside(row: tuple[int, ...], length: int) -> bool:
    """Tell whether every part of a record that a line shows lies in the buffer."""
    born_size, store_size = _host_sizes(row[13])
    head = layout.RECORD_BORN_HOST_AT + born_size + 8 + store_size
    parts = ((row[0], head), (row[6], row[15]), (row[7], row[16]), (row[8], row[17]))
    return all(0 <= at <= length - size and size >= 0 for at, size in parts)


def _host_sizes(sys_flag: int) -> tuple[int, int]:
    return (20 if sys_flag & 0x10 else 8), (20 if sys_flag & 0x20 else 8)


def _line(data: bytes, row: tuple[int, ...], tags_code: int, *, with_body: bool) -> str:
    # fmt: off
    (
        position, physical_offset, queue_offset, born, stored, prepared, body, topic, properties,
        size, body_crc, queue_id, flag, sys_flag, reconsume_times, body_size,
        topic_size, properties_size,
    ) = row
    # fmt: on
    born_size, store_size = _host_sizes(sys_flag)
    born_at = position + layout.RECORD_BORN_HOST_AT
    store_at = born_at + born_size + 8
    store_host = data[store_at : store_at + store_size]
    fields: dict[str, object] = {
        "topic": data[topic : topic + topic_size].decode("utf-8", "replace"),
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "physicalOffset": physical_offset,
        "storeSize": size,
        "storeTimestamp": stored,
        "bornTimestamp": born,
        "bornHost": host_text(data[born_at : born_at + born_size]),
        "storeHost": host_text(store_host),
        "msgId": f"{store_host.hex().upper()}{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}",
        "flag": flag,
        "sysFlag": sys_flag,
        "bodyCRC": body_crc,
        "reconsumeTimes": reconsume_times,
        "preparedTransactionOffset": prepared,
        "tagsCode": tags_code,
        "properties": decode_properties(data[properties : properties + properties_size]),
    }
    if with_body:
        fields["body"] = base64.b64encode(data[body : body + body_size]).decode()
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"
