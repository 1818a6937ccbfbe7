"""Numbers of bytes as people type and read them: one parser, one text."""

import re
from typing import Final

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmgt]?)i?b?", re.ASCII | re.IGNORECASE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def parse_size(text: str) -> int:
    """Return the bytes that a text such as 64m, 1 GiB or 67108864 means.

    Raises:
        ValueError: the text is not a size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size; wanted bytes, like 67108864 or 64m")
    return int(found[1]) << _SHIFTS[found[2].lower()]


def size_text(size: float) -> str:
    """Return a number of bytes with three digits: 712 B, 1.5 KiB, 64 MiB."""
    value = float(size)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{three_digits(value)} {unit}"
        value /= 1024
    return f"{three_digits(value)} {_UNITS[-1]}"


def three_digits(value: float) -> str:
    """Return a number with three digits, and more only if it is large."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
