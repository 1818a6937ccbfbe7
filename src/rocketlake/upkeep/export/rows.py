"""The columns of an export, and messages as rows of them."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from rocketlake.format.hosts import HostTexts
from rocketlake.format.record import RecordColumns, decode_properties
from rocketlake.model import properties as names
from rocketlake.model.compression import inflate
from rocketlake.model.flags import COMPRESSED
from rocketlake.model.message import split_keys


class BodyColumn(StrEnum):
    """What the column `body` holds."""

    BYTES = "bytes"
    TEXT = "text"
    NONE = "none"


class Row(Struct, gc=False):
    """One message; the order of the fields is that of the columns."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    born_timestamp: int
    msg_id: str
    unique_key: str | None
    keys: list[str]
    tags: str | None
    body: bytes | str | UnsetType
    properties: dict[str, str]
    flag: int
    sys_flag: int
    reconsume_times: int
    born_host: str
    store_host: str
    prepared_transaction_offset: int
    store_size: int


COLUMNS: Final = Row.__struct_fields__


class RowMaker:
    """Makes rows of records.

    `on_bad_body` gets the physical offset of a record whose compressed body cannot be inflated, and
    the reason: the body is exported as stored.
    """

    def __init__(
        self,
        body: BodyColumn = BodyColumn.BYTES,
        *,
        is_raw: bool = False,
        on_bad_body: Callable[[int, str], None] | None = None,
    ) -> None:
        self.body = body
        self._is_raw = is_raw
        self._on_bad_body = on_bad_body
        self._hosts = HostTexts()

    def rows(self, columns: RecordColumns, queue_offsets: list[int]) -> list[Row]:
        """Return a row for each record; `queue_offsets` are the places in their queues."""
        codes, topics = columns.topics()
        buffer = bytes(columns.buffer)
        hosts = self._hosts
        rows = []
        for row, code, queue_offset in zip(
            columns.tuples(), codes.tolist(), queue_offsets, strict=True
        ):
            # fmt: off
            (
                position, physical_offset, _, born, stored, prepared, body, _, properties_at,
                size, _, queue_id, flag, sys_flag, reconsume_times, body_size, _, properties_size,
            ) = row
            # fmt: on
            born_host, store_host, id_begin = hosts.at(buffer, position, sys_flag)
            properties = decode_properties(buffer[properties_at : properties_at + properties_size])
            rows.append(
                Row(
                    topics[code],
                    queue_id,
                    queue_offset,
                    physical_offset,
                    stored,
                    born,
                    f"{id_begin}{physical_offset:016X}",
                    properties.get(names.UNIQUE_KEY),
                    split_keys(properties.get(names.KEYS)),
                    properties.get(names.TAGS),
                    self._body(buffer[body : body + body_size], sys_flag, physical_offset),
                    properties,
                    flag,
                    sys_flag,
                    reconsume_times,
                    born_host,
                    store_host,
                    prepared,
                    size,
                )
            )
        return rows

    def _body(self, body: bytes, sys_flag: int, physical_offset: int) -> bytes | str | UnsetType:
        if self.body is BodyColumn.NONE:
            return UNSET
        if sys_flag & COMPRESSED and not self._is_raw:
            try:
                body = inflate(body, sys_flag)
            except ValueError as error:
                if self._on_bad_body is not None:
                    self._on_bad_body(physical_offset, str(error))
        return body.decode("utf-8", "replace") if self.body is BodyColumn.TEXT else body
