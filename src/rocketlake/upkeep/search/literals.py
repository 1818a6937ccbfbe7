"""The text that every match of a regular expression must hold, to search raw bytes for first.

Only what is certain is taken: a run of plain characters outside of groups, classes and
alternatives. A pattern with none, like `[0-9]+`, has no such text, and every message is looked at.
"""

import re
from typing import Final

_SPECIAL: Final = frozenset(".^$*+?{}[]|()\\")
_OPTIONAL: Final = frozenset("*?{")  # they may make the character before them vanish
_ESCAPED_PLAIN: Final = frozenset(".^$*+?{}[]|()\\/-:,;=@#%&!~<>\"' ")

# What re.IGNORECASE takes for these letters beside their other case.
_ALSO: Final = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}


def required_text(pattern: str) -> str:
    """Return the longest text that is surely part of every match; "" if none is sure."""
    if "|" in pattern or "(?" in pattern:
        return ""  # alternatives, or flags and looks that change what characters mean
    runs: list[str] = [""]
    depth = at = 0
    while at < len(pattern):
        char, width = pattern[at], 1
        if char == "\\":
            width = 2
            char = pattern[at + 1 : at + 2]
            char = char if char in _ESCAPED_PLAIN else ""
        elif char == "[":
            width, char = _class_width(pattern, at), ""
        elif char in _SPECIAL:
            depth += {"(": 1, ")": -1}.get(char, 0)
            if char == "{":
                width = max(pattern.find("}", at) - at + 1, 1)
            char = ""
        follower = pattern[at + width : at + width + 1]
        if not char or depth or follower in _OPTIONAL:
            runs.append("")
        elif follower == "+":
            runs[-1] += char
            runs.append("")
        else:
            runs[-1] += char
        at += width
    return max(runs, key=len)


def _class_width(pattern: str, at: int) -> int:
    """Return how many characters a class like `[^]a-z]` has."""
    end = at + 1
    if pattern[end : end + 1] == "^":
        end += 1
    if pattern[end : end + 1] == "]":
        end += 1
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1 - at


def sieve(text: str, *, ignore_case: bool) -> re.Pattern[bytes] | None:
    """Return a search for a text in the bytes of a record; None if it could not exclude any.

    `name=value` of a property is stored with another byte in the place of `=`.
    """
    if ignore_case:
        # Other letters may have cases of other lengths: only what is ASCII is looked for.
        text = max(re.split(r"[^\x00-\x7f]+", text), key=len)
    if not text or "\ufffd" in text:
        return None
    return re.compile(b"".join(_byte_pattern(char, ignore_case=ignore_case) for char in text))


def _byte_pattern(char: str, *, ignore_case: bool) -> bytes:
    if char == "=":
        return b"[=\x01]"
    if not ignore_case or not char.isalpha():
        return re.escape(char.encode("utf-8", "surrogatepass"))
    forms = {char.lower(), char.upper(), *_ALSO.get(char.lower(), "")}
    return b"(?:" + b"|".join(re.escape(form.encode()) for form in sorted(forms)) + b")"
