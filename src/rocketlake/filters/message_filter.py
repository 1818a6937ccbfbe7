"""Message filters: which messages of a queue a reader wants, by queue unit and by message.

1. A unit can rule a message out without reading its record: by the hash of its tag, or by the
   bits that a store keeps for SQL92 subscriptions. Other messages may still be unwanted.
2. The message decides: by the exact text of its tag, or by its properties.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.filters.tags import TagFilter
from rocketlake.model import properties as names


class FilteredMessage(Protocol):
    """The parts of a message that a filter reads."""

    @property
    def tags(self) -> str | None:
        """The tag; None without one."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""
        ...


class UnitBits(Protocol):
    """The parts of an extension unit that a filter reads."""

    @property
    def store_timestamp(self) -> int:
        """When the message was stored."""
        ...

    @property
    def bitmap(self) -> bytes:
        """The bits of the subscriptions that want the message; empty if not computed."""
        ...


class MessageFilter(Protocol):
    """Decides on messages. Called by any thread that reads."""

    @property
    def hashes(self) -> bytes | None:
        """Tag hashes (native 32-bit integers), one of which a unit must have; None: any hash."""
        ...

    @property
    def is_told_by_hash(self) -> bool:
        """Whether a broker checks only `hashes`, and its client compares the text."""
        ...

    @property
    def reads_bits(self) -> bool:
        """Whether `may_match` reads extension units."""
        ...

    def may_match(self, tags_code: int | None, bits: UnitBits | None) -> bool:
        """Tell whether the message of a unit may be wanted; None: its tag is unknown."""
        ...

    def matches(self, message: FilteredMessage) -> bool:
        """Tell whether a message is wanted."""
        ...


def make_filter(tags: str | None = None, sql: str | None = None) -> MessageFilter | None:
    """Make a filter from a tag expression (`a || b`) or an SQL92 one; None if all are wanted.

    Raises:
        ValueError: an expression is refused, or there are two.
    """
    if sql is not None:
        if tags is not None:
            raise ValueError("a reader filters by tags or by an SQL92 expression, not by both")
        return SqlMessageFilter(SqlFilter(sql))
    wanted = TagFilter.parse(tags)
    return None if wanted.is_everything else TagMessageFilter(wanted)


class TagMessageFilter:
    """Wants messages with one of some tags.

    Thread-safety: immutable.
    """

    __slots__ = ("_tags", "hashes", "wanted")
    is_told_by_hash: Final = True
    reads_bits: Final = False

    def __init__(self, wanted: TagFilter) -> None:
        self.wanted = wanted
        self.hashes = None if wanted.is_everything else array("i", wanted.hashes).tobytes()
        self._tags = wanted.tags

    def may_match(self, tags_code: int | None, bits: UnitBits | None) -> bool:
        """Compare the hash."""
        _ = bits
        return tags_code is None or self.wanted.matches_code(tags_code)

    def matches(self, message: FilteredMessage) -> bool:
        """Compare the text: other tags may have the same hash."""
        # Why: the reference leaves this to its client; there is none here.
        return self.hashes is None or message.tags in self._tags

    def __repr__(self) -> str:
        return f"TagMessageFilter({sorted(self._tags)})"


def may_want(
    bits: UnitBits, *, bloom: BloomFilter, positions: Sequence[int], born_timestamp: int
) -> bool:
    """Tell from the bits beside a unit whether a subscription may want the message."""
    # Compat: as ExpressionMessageFilter#isMatchedByConsumeQueue: bits of a message from before the
    # subscription say nothing about it.
    return bits.store_timestamp <= born_timestamp or bloom.is_hit(positions, bits.bitmap)


class SqlMessageFilter:
    """Wants messages whose properties fulfil an SQL92 expression.

    `bits_test` tells from the bits beside a unit whether the message may be wanted; None: always.

    Thread-safety: immutable.
    """

    __slots__ = ("_bits_test", "expression")
    hashes: Final = None
    is_told_by_hash: Final = False

    def __init__(
        self, expression: SqlFilter, bits_test: Callable[[UnitBits], bool] | None = None
    ) -> None:
        self.expression = expression
        self._bits_test = bits_test

    @property
    def reads_bits(self) -> bool:
        """Whether extension units can rule messages out."""
        return self._bits_test is not None

    def may_match(self, tags_code: int | None, bits: UnitBits | None) -> bool:
        """Check the bits, where there are some."""
        _ = tags_code
        return self._bits_test is None or bits is None or self._bits_test(bits)

    def matches(self, message: FilteredMessage) -> bool:
        """Evaluate the expression."""
        return self.expression.matches(message.properties)

    def __repr__(self) -> str:
        return f"SqlMessageFilter({self.expression.expression!r})"


class RetryMessageFilter:
    """Filters a retry topic: each message by the subscription to its original topic.

    `expression_of` gives the SQL92 expression of a topic, None if the group filters it otherwise.

    Only the broker will use it. Compat: ExpressionForRetryMessageFilter, for `filterSupportRetry`.

    Thread-safety: that of `expression_of`.
    """

    __slots__ = ("_expression_of",)
    hashes: Final = None
    is_told_by_hash: Final = False
    reads_bits: Final = False

    def __init__(self, expression_of: Callable[[str], SqlFilter | None]) -> None:
        self._expression_of = expression_of

    def may_match(self, tags_code: int | None, bits: UnitBits | None) -> bool:
        """Let all pass: units do not hold the original topic."""
        _ = tags_code, bits
        return True

    def matches(self, message: FilteredMessage) -> bool:
        """Evaluate the expression of the original topic of the message."""
        topic = message.properties.get(names.RETRY_TOPIC)
        expression = self._expression_of(topic) if topic is not None else None
        return expression is None or expression.matches(message.properties)
