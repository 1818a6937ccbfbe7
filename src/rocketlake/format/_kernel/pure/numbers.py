"""Numbers of the format's widths: what fits, and how Java's wrap around."""

from typing import Any, Literal

_TEXT = "a number does not fit into its field of the record"


def i32(value: int) -> int:
    """Return a number that fits into 32 bits.

    Raises:
        ValueError: it does not.
    """
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError(_TEXT)
    return value


def i64(value: int) -> int:
    """Return a number that fits into 64 bits.

    Raises:
        ValueError: it does not.
    """
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise ValueError(_TEXT)
    return value


def wrap_i64(value: int) -> int:
    """Wrap as Java's long does."""
    low = value & 0xFFFFFFFFFFFFFFFF
    return low - 0x10000000000000000 if low > 0x7FFFFFFFFFFFFFFF else low


def numbers(buffer: Any, code: Literal["i", "q"], size: int) -> memoryview:
    """See a buffer as native integers; a cut-off last one is left out."""
    view = memoryview(buffer).cast("B")
    return view[: len(view) // size * size].cast(code)
