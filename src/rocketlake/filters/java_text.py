"""Text trimmed and read as numbers, and numbers in order, the way Java has them.

1. Text that is no number raises `ValueError`, as Java throws `NumberFormatException`.
2. Whole numbers take no blanks around them; floating-point numbers do.
"""

import math
import re

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_WHOLE = re.compile(r"[+-]?\d+")
_BASIC_PLANE_END = "\uffff"

_BLANKS = "".join(map(chr, range(0x21)))
_FLOATING = re.compile(
    r"""
    (?P<number> [+-]? (?: [0-9]+ (?: \. [0-9]* )? | \. [0-9]+ ) (?: [eE] [+-]? [0-9]+ )? ) [fFdD]?
    | (?P<hex> [+-]? 0[xX] (?: [0-9a-fA-F]+ \.? | [0-9a-fA-F]* \. [0-9a-fA-F]+ )
        [pP] [+-]? [0-9]+ ) [fFdD]?
    | (?P<name> [+-]? (?: NaN | Infinity ) )
    """,
    re.VERBOSE,
)


def trim(text: str) -> str:
    """The text without blanks around it: every character up to the space, and no other."""
    return text.strip(_BLANKS)


def parse_int(text: str) -> int:
    """A signed 32-bit number."""
    return _parse_whole(text, INT_MAX)


def parse_long(text: str) -> int:
    """A signed 64-bit number."""
    return _parse_whole(text, LONG_MAX)


def _parse_whole(text: str, largest: int) -> int:
    """A decimal number, in the digits of any script."""
    # Compat: as Integer#parseInt, which looks at UTF-16 units one by one, so the digits of every
    # script count, but none outside the basic plane.
    if _WHOLE.fullmatch(text) is None or max(text) > _BASIC_PLANE_END:
        raise ValueError(f"{text!r} is no whole number")
    number = int(text)
    if not -largest - 1 <= number <= largest:
        raise ValueError(f"{text!r} is out of range")
    return number


def parse_double(text: str) -> float:
    """A 64-bit floating-point number: decimal, hexadecimal, `NaN` or `Infinity`."""
    match = _FLOATING.fullmatch(trim(text))
    if match is None:
        raise ValueError(f"{text!r} is no number")
    number, hexadecimal, name = match.group("number", "hex", "name")
    if hexadecimal is None:
        return float(number or name)
    try:
        return float.fromhex(hexadecimal)
    except OverflowError:
        return -math.inf if hexadecimal.startswith("-") else math.inf


def compare(left: float, right: float) -> int:
    """-1, 0 or 1, in Java's order: NaN is above everything and equal to itself, -0.0 below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    one, other = _rank(left), _rank(right)
    return (one > other) - (one < other)


def _rank(number: float) -> int:
    """The order of those numbers that `<` and `>` cannot tell apart."""
    if math.isnan(number):
        return 1
    return -1 if number == 0 and math.copysign(1, number) < 0 else 0
