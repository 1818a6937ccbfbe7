"""What a page shows as output against what was printed.

Runs of white space are equal, line ends too: a page may wrap a line, and tables may be narrower.
Wildcards: `…` stands for any text; a date, a time and a duration (`1.2 s`) stand for any other.
"""

import re
from typing import Final

_TIME: Final = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?",
    r"\d{8}T\d{9}",
    r"\d{4}-\d\d-\d\d",
)
_DURATION: Final = r"\d+\.\d+ m?s\b"
_WILD: Final = re.compile("|".join(("…", *_TIME, _DURATION)))


def is_shown(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed."""
    return pattern_of(shown).fullmatch(" ".join(printed.split())) is not None


def pattern_of(shown: str) -> re.Pattern[str]:
    """The expression that output has to match as a whole."""
    text = " ".join(shown.split())
    parts = []
    end = 0
    for found in _WILD.finditer(text):
        parts += [re.escape(text[end : found.start()]), _wild(found[0])]
        end = found.end()
    return re.compile("".join((*parts, re.escape(text[end:]))), re.DOTALL)


def _wild(text: str) -> str:
    if text == "…":
        return ".*?"
    return next(kind for kind in (*_TIME, _DURATION) if re.fullmatch(kind, text))
