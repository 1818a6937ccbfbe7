"""Counts and shares as text."""

NONE = "-"
"""What stands for a number that is not there."""


def count_text(count: float) -> str:
    """Spell a count in full."""
    return f"{count:,.0f}"


def short_count(count: float) -> str:
    """Spell a count or a rate with three digits."""
    for limit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= limit:
            divisor = 1e3 if name == "k" else limit
            return f"{count / divisor:.3g} {name}"
    if count >= 100 or count == int(count):
        return f"{count:,.0f}"
    return f"{count:.2g}"


def share_text(part: float, whole: float) -> str:
    """Spell a share in percent."""
    if not whole:
        return NONE
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.1f} %"


def shortened(text: str, length: int = 120) -> str:
    """Cut the middle out of a long text."""
    if len(text) <= length:
        return text
    return f"{text[: length - length // 8 - 1]}…{text[-(length // 8) :]}"


def plural(count: int, word: str) -> str:
    """Spell a count with its word."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
