"""Rows -> the buffers of Arrow columns."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from rocketlake.format import layout
from rocketlake.format._kernel.codes import ArrowColumn
from rocketlake.format._kernel.pure.lines import is_inside
from rocketlake.format._kernel.pure.properties import decode_properties
from rocketlake.model import flags
from rocketlake.model import properties as names
from rocketlake.model.endpoint import host_text
from rocketlake.model.ids import offset_message_id
from rocketlake.model.message import split_keys

Buffer = bytes | bytearray | memoryview

ROWS_MAX: Final = 1 << 24
GROWTH_MAX: Final = 3
"""How many bytes of UTF-8 one byte can become: those of U+FFFD."""

_ROW = struct.Struct(layout.ROW_FORMAT)
_FROM_PROPERTIES: Final = (
    ArrowColumn.UNIQUE_KEY | ArrowColumn.KEYS | ArrowColumn.TAGS | ArrowColumn.PROPERTIES
)
_FROM_HOSTS: Final = ArrowColumn.MSG_ID | ArrowColumn.BORN_HOST | ArrowColumn.STORE_HOST


def arrow_columns(buffer: Buffer, rows: Any, wanted: int) -> list[tuple[bytes, ...]]:
    """Return the buffers of the wanted columns (bits of `ArrowColumn`), lowest bit first.

    1. A text or the body is (validity, offsets, bytes); the keys are (offsets, offsets of the
       texts, bytes); the properties are (offsets, offsets and bytes of the names, offsets and
       bytes of the values).
    2. Offsets are native i32, one more than there are values. Validity has a bit for each row,
       lowest first; it is empty if no value is missing.
    3. Text is UTF-8; bytes that are none become U+FFFD. The body is as stored.

    Raises:
        ValueError: a row lies outside the buffer, or the rows may hold more than a column can.
    """
    view = memoryview(buffer).cast("B")
    table = memoryview(rows).cast("B")
    count = len(table) // layout.ROW_SIZE
    parsed = list(_ROW.iter_unpack(table[: count * layout.ROW_SIZE]))
    for i, row in enumerate(parsed):
        if not is_inside(row, len(view)):
            raise ValueError(f"row {i} lies outside the buffer")
    if not _fits(parsed, wanted):
        raise ValueError("the rows may hold more than a column of 2 GiB can: take fewer")
    records = _Records(view, parsed, wanted)
    return [
        _PACK.get(column, _pack_texts)(_VALUES[column](records))
        for column in ArrowColumn
        if wanted & column
    ]


def _fits(rows: Sequence[tuple[int, ...]], wanted: int) -> bool:
    """Tell whether 32-bit offsets surely do, whatever the bytes are."""
    bodies = sum(row[15] for row in rows) if wanted & ArrowColumn.BODY else 0
    topics = sum(row[16] for row in rows) if wanted & ArrowColumn.TOPIC else 0
    properties = sum(row[17] for row in rows) if wanted & _FROM_PROPERTIES else 0
    most = max(bodies, GROWTH_MAX * topics, GROWTH_MAX * properties)
    return len(rows) <= ROWS_MAX and most <= layout.MAX_I32


class _Records:
    """The values of rows: what several columns are made of is made once, if at all."""

    def __init__(self, view: memoryview, rows: Sequence[tuple[int, ...]], wanted: int) -> None:
        self._view = view
        self._rows = rows
        self.properties: list[dict[str, str]] = []
        self.hosts: list[tuple[bytes, bytes]] = []
        if wanted & _FROM_PROPERTIES:
            self.properties = [decode_properties(each) for each in self._parts(8, 17)]
        if wanted & _FROM_HOSTS:
            self.hosts = [self._hosts(row) for row in rows]

    def _parts(self, at: int, size: int) -> Iterator[bytes]:
        """Yield the bytes that two fields of each row point to."""
        return (bytes(self._view[row[at] : row[at] + row[size]]) for row in self._rows)

    def _hosts(self, row: tuple[int, ...]) -> tuple[bytes, bytes]:
        born_size, store_size = flags.host_sizes(row[13])
        born_at = row[0] + layout.RECORD_BORN_HOST_AT
        store_at = born_at + born_size + 8
        born = bytes(self._view[born_at : born_at + born_size])
        return born, bytes(self._view[store_at : store_at + store_size])

    def topics(self) -> list[bytes]:
        return [topic.decode("utf-8", "replace").encode() for topic in self._parts(7, 16)]

    def bodies(self) -> list[bytes]:
        return list(self._parts(6, 15))

    def ids(self) -> list[bytes]:
        both = zip(self.hosts, self._rows, strict=True)
        return [offset_message_id(hosts[1], row[1]).encode() for hosts, row in both]

    def named(self, name: str) -> list[bytes | None]:
        found = (properties.get(name) for properties in self.properties)
        return [None if value is None else value.encode() for value in found]

    def keys(self) -> list[list[bytes]]:
        found = (properties.get(names.KEYS) for properties in self.properties)
        return [[key.encode() for key in split_keys(value)] for value in found]


_VALUES: Final[Mapping[ArrowColumn, Callable[[_Records], Sequence[Any]]]] = {
    ArrowColumn.TOPIC: lambda records: records.topics(),
    ArrowColumn.MSG_ID: lambda records: records.ids(),
    ArrowColumn.UNIQUE_KEY: lambda records: records.named(names.UNIQUE_KEY),
    ArrowColumn.KEYS: lambda records: records.keys(),
    ArrowColumn.TAGS: lambda records: records.named(names.TAGS),
    ArrowColumn.BODY: lambda records: records.bodies(),
    ArrowColumn.PROPERTIES: lambda records: records.properties,
    ArrowColumn.BORN_HOST: lambda records: [host_text(born).encode() for born, _ in records.hosts],
    ArrowColumn.STORE_HOST: lambda records: [host_text(host).encode() for _, host in records.hosts],
}


def _pack_texts(values: Sequence[bytes | None]) -> tuple[bytes, bytes, bytes]:
    present = [value or b"" for value in values]
    return _validity(values), _offsets(present), b"".join(present)


def _pack_keys(values: Sequence[Sequence[bytes]]) -> tuple[bytes, bytes, bytes]:
    keys = [key for each in values for key in each]
    return _offsets(values), _offsets(keys), b"".join(keys)


def _pack_maps(values: Sequence[Mapping[str, str]]) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    keys = [name.encode() for each in values for name in each]
    texts = [text.encode() for each in values for text in each.values()]
    return (
        _offsets(values),
        _offsets(keys),
        b"".join(keys),
        _offsets(texts),
        b"".join(texts),
    )


_PACK: Final[Mapping[ArrowColumn, Callable[[Sequence[Any]], tuple[bytes, ...]]]] = {
    ArrowColumn.KEYS: _pack_keys,
    ArrowColumn.PROPERTIES: _pack_maps,
}


def _offsets(values: Sequence[Any]) -> bytes:
    """Return where each value begins, and where the last one ends."""
    return struct.pack(f"={len(values) + 1}i", 0, *accumulate(map(len, values)))


def _validity(values: Sequence[bytes | None]) -> bytes:
    """Return a bit for each value, lowest first; nothing if none is missing."""
    if None not in values:
        return b""
    bits = sum(1 << i for i, value in enumerate(values) if value is not None)
    return bits.to_bytes((len(values) + 7) // 8, "little")
