"""Which messages match a pattern: in body, keys, tags, properties or topic.

1. A record that cannot match is left out by its bytes alone: the text that every match must hold
   is looked for in the whole window at once.
2. Compressed bodies, and encodings other than UTF-8, show their text only when they are decoded.
3. What is left is decoded and matched as text.
"""

import codecs
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.format.record import RecordColumns, StoredMessage
from rocketlake.model import properties as names
from rocketlake.model.compression import inflate
from rocketlake.model.flags import COMPRESSED
from rocketlake.upkeep.search.literals import required_text, sieve


class Field(StrEnum):
    """A part of a message that can match."""

    BODY = "body"
    KEYS = "keys"
    TAGS = "tags"
    PROPERTIES = "properties"
    TOPIC = "topic"


class Wish(Struct, frozen=True, kw_only=True):
    """The pattern, and where to search for it."""

    pattern: str
    fields: frozenset[Field] = frozenset(Field)
    is_fixed: bool = False
    ignore_case: bool = False
    encoding: str = "utf-8"


class Hit(Struct, frozen=True):
    """Where a message matched: which part, its text, and the place in it."""

    where: str
    text: str
    begin: int
    end: int


class Matcher:
    """Finds the messages that match."""

    def __init__(self, wish: Wish) -> None:
        """Prepare the pattern.

        Raises:
            ValueError: it is no regular expression, or the encoding is unknown.
        """
        self._fields = wish.fields
        self._encoding = _codec(wish.encoding)
        text = re.escape(wish.pattern) if wish.is_fixed else wish.pattern
        try:
            self._regex = re.compile(text, re.IGNORECASE if wish.ignore_case else 0)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{wish.pattern!r} is no regular expression: {error}") from error
        literal = wish.pattern if wish.is_fixed else required_text(wish.pattern)
        self._sieve = sieve(literal, ignore_case=wish.ignore_case)
        if self._encoding != "utf-8" and Field.BODY in wish.fields:
            self._sieve = None

    def may_match(self, columns: RecordColumns) -> npt.NDArray[np.bool_]:
        """Mark the records whose bytes do not show that they cannot match."""
        if self._sieve is None or not len(columns):
            return np.ones(len(columns), np.bool_)
        keep = np.zeros(len(columns), np.bool_)
        if Field.BODY in self._fields:
            keep |= (columns["sys_flag"] & COMPRESSED) != 0
        for row in self._rows_holding(columns, self._sieve):
            keep[row] = True
        return keep

    def _rows_holding(self, columns: RecordColumns, wanted: re.Pattern[bytes]) -> Iterator[int]:
        """Yield each row whose bytes hold the text, in the order of the buffer."""
        order = np.argsort(columns["position"], kind="stable")
        begins = columns["position"][order].tolist()
        ends = (columns["position"] + columns["size"])[order].tolist()
        rows = order.tolist()
        found = wanted.search(columns.buffer, begins[0])
        while found is not None:
            index = bisect_right(begins, found.start()) - 1
            if found.end() <= ends[index]:
                yield rows[index]
                behind = ends[index]
            else:
                behind = found.start() + 1  # between two records
            found = wanted.search(columns.buffer, behind)

    def match(self, message: StoredMessage) -> Hit | None:
        """Return the first match in a message, or None."""
        search = self._regex.search
        for where, text in self._texts(message):
            found = search(text)
            if found is not None:
                return Hit(where, text, found.start(), found.end())
        return None

    def _texts(self, message: StoredMessage) -> Iterator[tuple[str, str]]:
        fields = self._fields
        if Field.BODY in fields:
            yield "body", self.body_text(message)
        if Field.TOPIC in fields:
            yield "topic", message.topic
        if fields.isdisjoint((Field.KEYS, Field.TAGS, Field.PROPERTIES)):
            return
        properties = message.properties
        if Field.KEYS in fields:
            for name in (names.KEYS, names.UNIQUE_KEY):
                if name in properties:
                    yield name, properties[name]
        if Field.TAGS in fields and names.TAGS in properties:
            yield names.TAGS, properties[names.TAGS]
        if Field.PROPERTIES in fields:
            for name, value in properties.items():
                yield name, value
                yield "property", f"{name}={value}"

    def body_text(self, message: StoredMessage) -> str:
        """Return the plain body as text; one that cannot be inflated as it is stored."""
        body = message.stored_body
        if message.sys_flag & COMPRESSED:
            with suppress(ValueError):
                body = inflate(body, message.sys_flag)
        return body.decode(self._encoding, "replace")


def _codec(name: str) -> str:
    """Return the usual name of a text encoding."""
    try:
        b"a".decode(name, "replace")
        return codecs.lookup(name).name
    except LookupError as error:
        raise ValueError(f"there is no text encoding {name!r}; known are utf-8, gbk, …") from error
