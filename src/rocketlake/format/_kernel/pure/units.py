"""Which queue units a tag filter may want."""

import struct
from typing import Any

from rocketlake.format import layout
from rocketlake.format._kernel.pure.numbers import numbers
from rocketlake.model.hashes import wrap_int

Buffer = bytes | bytearray | memoryview

_UNIT = struct.Struct(">qiq")


def filter_units(buffer: Buffer, hashes: Any, keep: Any) -> int:
    """Mark the units whose tags code has one of the hashes (native i32); return how many.

    A unit with an extension address is kept: its code is elsewhere. `keep` has a byte per unit.
    """
    view = memoryview(buffer)
    wanted = set(numbers(hashes, "i", 4))
    out = memoryview(keep).cast("B")
    kept = 0
    for i in range(min(len(view) // layout.UNIT_SIZE, len(out))):
        tags_code = _UNIT.unpack_from(view, i * layout.UNIT_SIZE)[2]
        hit = tags_code <= layout.EXT_ADDRESS_MAX or wrap_int(tags_code) in wanted
        out[i] = hit
        kept += hit
    return kept
