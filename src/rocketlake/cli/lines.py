"""Messages as lines for programs: one JSON object each, with the reference's field names."""

from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rocketlake.format.hosts import HostTexts
from rocketlake.format.record import RecordColumns, decode_properties
from rocketlake.model import compression, flags


class BodyForm(StrEnum):
    """How a body is printed."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    NONE = "none"


class ExtLine(Struct, rename="camel"):
    """The extension unit behind a queue unit."""

    size: int
    tags_code: int
    msg_store_time: int
    filter_bit_map: str | None


class Line(Struct, rename="camel", gc=False):
    """One message; the order of the fields is the order of the output."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    store_timestamp: int
    born_timestamp: int
    born_host: str
    store_host: str
    msg_id: str
    flag: int
    sys_flag: int
    body_crc: int = msgspec.field(name="bodyCRC")
    reconsume_times: int
    prepared_transaction_offset: int
    tags_code: int
    properties: dict[str, str]
    cq_offset: int | UnsetType = UNSET
    batch_num: int | UnsetType = UNSET
    queued: bool | UnsetType = UNSET
    ext: ExtLine | UnsetType = UNSET
    body: bytes | str | UnsetType = UNSET
    inflated: bytes | UnsetType = UNSET


_ENCODER = msgspec.json.Encoder()


def encode(lines: list[Line]) -> bytes:
    """Return JSON lines, the last one ended too."""
    return _ENCODER.encode_lines(lines)


def lines_of(columns: RecordColumns, tags_codes: list[int], form: BodyForm) -> list[Line]:
    """Return a line for each record."""
    codes, topics = columns.topics()
    buffer = bytes(columns.buffer)
    add_body = _BODIES[form]
    hosts = HostTexts()
    lines = []
    for row, code, tags_code in zip(columns.tuples(), codes.tolist(), tags_codes, strict=True):
        # fmt: off
        (
            position, physical_offset, queue_offset, born, stored, prepared, body, _, properties,
            size, body_crc, queue_id, flag, sys_flag, reconsume_times, body_size,
            _, properties_size,
        ) = row
        # fmt: on
        born_host, store_host, id_begin = hosts.at(buffer, position, sys_flag)
        line = Line(
            topics[code],
            queue_id,
            queue_offset,
            physical_offset,
            size,
            stored,
            born,
            born_host,
            store_host,
            f"{id_begin}{physical_offset:016X}",
            flag,
            sys_flag,
            body_crc,
            reconsume_times,
            prepared,
            tags_code,
            decode_properties(buffer[properties : properties + properties_size]),
        )
        add_body(line, buffer[body : body + body_size], sys_flag)
        lines.append(line)
    return lines


def _body_base64(line: Line, body: bytes, sys_flag: int) -> None:
    line.body = body
    if sys_flag & flags.COMPRESSED:
        plain = inflated(body, sys_flag)
        if plain is not None:
            line.inflated = plain


def _body_hex(line: Line, body: bytes, sys_flag: int) -> None:
    del sys_flag
    line.body = body.hex()


def _body_text(line: Line, body: bytes, sys_flag: int) -> None:
    line.body = body_text(body, sys_flag)


def _body_none(line: Line, body: bytes, sys_flag: int) -> None:
    del line, body, sys_flag


_BODIES: dict[BodyForm, Callable[[Line, bytes, int], None]] = {
    BodyForm.BASE64: _body_base64,
    BodyForm.HEX: _body_hex,
    BodyForm.TEXT: _body_text,
    BodyForm.NONE: _body_none,
}


def inflated(body: bytes, sys_flag: int) -> bytes | None:
    """Return the plain body, or None if it is not what its flags say."""
    try:
        return compression.inflate(body, sys_flag)
    except ValueError:
        return None


def body_text(body: bytes, sys_flag: int) -> str:
    """Return the plain body as text; bytes that are none become replacement characters."""
    plain = inflated(body, sys_flag)
    return (body if plain is None else plain).decode("utf-8", "replace")
