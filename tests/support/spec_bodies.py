"""Bodies as a spec writes them -> bytes; the forms are those of the driver's StoreWriter."""

from base64 import b64decode
from typing import Any

_COMPRESSED = ("zlib", "lz4", "zstd")
_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407
_MASK = (1 << 64) - 1


def is_compressed(form: Any) -> bool:
    """Tell whether a body is compressed before it is put."""
    return isinstance(form, dict) and any(kind in form for kind in _COMPRESSED)


def body_bytes(form: Any) -> bytes:
    """Return the plain bytes of a body."""
    if isinstance(form, str):
        return form.encode()
    match form:
        case {"base64": str(text)}:
            return b64decode(text)
        case {"hex": str(text)}:
            return bytes.fromhex(text)
        case {"repeat": str(text), "size": int(size)}:
            unit = text.encode()
            return (unit * (size // len(unit) + 1))[:size]
        case {"seed": int(seed), "size": int(size)}:
            return _random_bytes(seed, size)
        case {"zlib": inner} | {"lz4": inner} | {"zstd": inner}:
            return body_bytes(inner)
        case _:
            raise ValueError(f"no body: {form!r}")


def _random_bytes(seed: int, size: int) -> bytes:
    """Make the bytes of a linear congruential generator: the highest byte of each state."""
    found = bytearray(size)
    state = seed
    for number in range(size):
        state = (state * _MULTIPLIER + _INCREMENT) & _MASK
        found[number] = state >> 56
    return bytes(found)
