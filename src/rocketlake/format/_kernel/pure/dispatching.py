"""Rows -> what dispatch needs: tags codes, traits, hashes of keys."""

import struct
from array import array
from typing import Any, Final

from rocketlake.format import layout
from rocketlake.format._kernel.codes import Trait
from rocketlake.format._kernel.pure.numbers import numbers
from rocketlake.format._kernel.pure.properties import decode_properties
from rocketlake.model import flags
from rocketlake.model import properties as names
from rocketlake.model.hashes import TAG_KEY_PREFIX, key_hash, tags_code
from rocketlake.model.message import split_keys

Buffer = bytes | bytearray | memoryview

_ROW = struct.Struct(layout.ROW_FORMAT)
_SPECIAL: Final = frozenset(
    {
        names.DELAY,
        names.INNER_NUM,
        names.INNER_BASE,
        names.MULTI_DISPATCH,
        names.MULTI_QUEUE_OFFSET,
    }
)


def dispatch_columns(buffer: Buffer, rows: Any, tags_codes: Any, traits: Any) -> int:
    """Write the tags code (a native i64) and the traits (a byte) of each row; return how many.

    Of properties that come twice the last counts. A part of a row that lies outside the buffer
    counts as empty.
    """
    view = memoryview(buffer)
    table = memoryview(rows).cast("B")
    codes = numbers(tags_codes, "q", 8)
    bits = memoryview(traits).cast("B")
    count = min(len(table) // layout.ROW_SIZE, len(codes), len(bits))
    for i in range(count):
        row = _ROW.unpack_from(table, i * layout.ROW_SIZE)
        properties = decode_properties(_part(view, row[8], row[17]))
        codes[i] = tags_code(properties.get(names.TAGS))
        bits[i] = _traits(row[13], properties)
    return count


def _traits(sys_flag: int, properties: dict[str, str]) -> Trait:
    found = Trait(0)
    if flags.enters_queue(sys_flag):
        found |= Trait.ENTERS_QUEUE
    if flags.is_indexed(sys_flag):
        found |= Trait.IS_INDEXED
    if sys_flag & flags.INNER_BATCH or not _SPECIAL.isdisjoint(properties):
        found |= Trait.IS_SPECIAL
    return found


def key_entries(
    buffer: Buffer, rows: Any, *, with_tags: bool = False
) -> tuple[bytearray, bytearray]:
    """Return the hash and the row of every key, native i32 each, in the order of the index.

    Of each row that is indexed the unique key comes first, then the keys as they stand, then the
    tag if it is asked for. The row of a tag is inverted: ~0 for the first one.
    """
    view = memoryview(buffer)
    table = memoryview(rows).cast("B")
    hashes, rows_of = array("i"), array("i")
    for i in range(len(table) // layout.ROW_SIZE):
        row = _ROW.unpack_from(table, i * layout.ROW_SIZE)
        if not flags.is_indexed(row[13]):
            continue
        properties = decode_properties(_part(view, row[8], row[17]))
        topic = _part(view, row[7], row[16]).decode("utf-8", "replace")
        unique = properties.get(names.UNIQUE_KEY)
        for key in ([unique] if unique else []) + split_keys(properties.get(names.KEYS)):
            hashes.append(key_hash(topic, key))
            rows_of.append(i)
        tags = properties.get(names.TAGS)
        if with_tags and tags:
            hashes.append(key_hash(topic, TAG_KEY_PREFIX + tags))
            rows_of.append(~i)
    return bytearray(hashes.tobytes()), bytearray(rows_of.tobytes())


def _part(view: memoryview, position: int, size: int) -> bytes:
    if position < 0 or size < 0 or position > len(view) - size:
        return b""
    return bytes(view[position : position + size])
