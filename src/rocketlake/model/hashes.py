"""The hashes a store is addressed by: Java's string hash and what is made from it.

1. Every hash is taken over UTF-16 code units: a character outside the basic plane counts twice.
2. Java's `int` wraps at 32 bits; results here are signed, from -2^31 to 2^31 - 1.
"""

import struct
from typing import Final

_INT_SIGN = 1 << 31
_INT_MASK = (1 << 32) - 1


def java_hash(text: str) -> int:
    """The signed 32-bit hash Java gives a string."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & _INT_MASK
    return wrap_int(value)


def wrap_int(value: int) -> int:
    """The low 32 bits of a number, signed: what Java keeps when it is cast to `int`."""
    low = value & _INT_MASK
    return low - ((low & _INT_SIGN) << 1)


TAG_KEY_PREFIX: Final = "T#"
"""Before a tag that is indexed as a key: by RocketMQ from 5.4 on."""


def key_hash(topic: str, key: str) -> int:
    """The hash under which the index files keep a key of a topic; never negative."""
    value = abs(java_hash(f"{topic}#{key}"))
    # Compat: in IndexFile#indexKeyHashMethod Java's abs leaves -2^31 as it is; it becomes 0.
    return 0 if value == _INT_SIGN else value


def tags_code(tag: str | None) -> int:
    """The code of a message's tag in its queue unit; 0 when there is no tag."""
    return 0 if tag is None else java_hash(tag)
