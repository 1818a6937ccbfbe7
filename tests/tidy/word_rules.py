"""Words that this project does not use, and the form of commit subjects; see CONTRIBUTING.md."""

import re
from collections.abc import Iterator

from tidy_rules import Finding, lines_with

SUBJECT_MAX = 72
SUBJECT = re.compile(r"[a-z][a-z0-9_]*(, [a-z][a-z0-9_]*)*: \S.*[^.]")

WORDS = re.compile(
    # Figures of speech where a noun of storage engineering exists.
    r"\b(?:crew|desk|handshake|intake|rhythm|seats?|sleeper)\b"
    # Turns of phrase that are not English.
    r"|has it done|have it done|lets it not|is none that|as far as that can",
    re.IGNORECASE,
)
PERSONS = re.compile(r"\b(?:somebody|nobody|whoever|the begin)\b", re.IGNORECASE)
PAIRS = re.compile(r"^\|.*\|$", re.MULTILINE)


def unwanted_words(path: str, text: str) -> Iterator[Finding]:
    """No source, page or message uses a word of the list; CONTRIBUTING.md shows them in a table."""
    if path == "CONTRIBUTING.md":
        text = PAIRS.sub("", text)
    yield from lines_with(WORDS, path, text, "unwanted words")
    yield from lines_with(PERSONS, path, text, "a person for code, or 'the begin'")


def bad_subjects(log: str) -> Iterator[Finding]:
    """A commit's subject is `area: what it does now`, short, without a full stop at its end."""
    for line in log.splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > SUBJECT_MAX:
            yield Finding(commit, 1, f"{len(subject)} characters, at most {SUBJECT_MAX}: {subject}")
        elif not SUBJECT.fullmatch(subject):
            yield Finding(commit, 1, f"not of the form `area: what it does now`: {subject}")
