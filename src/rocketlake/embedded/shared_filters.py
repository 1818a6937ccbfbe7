"""SharedFilters: the SQL92 subscriptions of an open store, in one table.

Consumers are registered as they join and unregistered as they leave
[DefaultConsumerIdsChangeListener]; dispatch sets their bits beside the units; consumers rule out
messages by these bits.

Why the bits are safe: a message is ruled out only if it was stored after the subscription in the
book was made, with the expression of this consumer. The creation time of a subscription and its
entry in the book are one step, and dispatch reads the book in each round. So a round without the
subscription has only messages that were stored before it was made.
"""

import threading
from functools import lru_cache
from typing import Final

from rocketlake.embedded.selection import Selection
from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.message_filter import SqlMessageFilter, UnitBits, may_want
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.filters import FilterBook
from rocketlake.store.dispatch.filter_bits import FilterBits, SqlSubscription
from rocketlake.store.options import StoreOptions

_compiled = lru_cache(maxsize=1024)(SqlFilter)


class SharedFilters:
    """The filters of a store. Thread-safety: any thread may call anything."""

    def __init__(
        self, location: TableLocation, options: StoreOptions, *, is_external: bool = False
    ) -> None:
        """With `is_external` a dispatch job sets the bits; the table is not changed here.

        The book is read on first access, which the start of a store makes under its lock.
        """
        self._location = location
        self._is_external = is_external
        self._has_bits: Final = options.enable_calc_filter_bit_map and not is_external
        self._bloom: Final = _bloom_of(options)
        self._guard = threading.Lock()
        self._book: FilterBook | None = None

    @property
    def book(self) -> FilterBook:
        """The table, read on first access.

        Raises:
            StoreError: neither the file nor its copy can be used.
        """
        if self._book is None:
            with self._guard:
                if self._book is None:
                    book = FilterBook.load(self._location)
                    book.fit(self._bloom)
                    self._book = book
        return self._book

    def dispatcher(self) -> FilterBits | None:
        """Make the dispatcher that computes the bits; None where the store keeps none."""
        if not self._has_bits:
            return None
        return FilterBits(self._bloom, lambda topic: _subscriptions(self.book, topic))

    def join(self, group: str, topic: str, selection: Selection) -> Selection:
        """Register what a consumer wants; return it, with a check of the bits where they are kept.

        Raises:
            StoreClosedError: the store is closed.
        """
        wanted = selection.message_filter
        if not isinstance(wanted, SqlMessageFilter):
            self.leave(group, topic)
            return selection
        if self._is_external:
            return selection
        book, sql = self.book, wanted.expression
        known = book.get(topic, group)
        # Compat: a client's version is its time. Two consumers of one millisecond both count.
        version = max(self._location.clock.now_ms(), known.client_version + 1 if known else 0)
        book.register(topic, group, sql.expression, version)
        if not self._has_bits:
            return selection
        bits = _GroupBits(book, group, topic, sql.expression)
        return Selection(selection.tags, SqlMessageFilter(sql, bits.is_hit))

    def leave(self, group: str, topic: str) -> None:
        """Unregister a group whose consumers no longer filter a topic by an expression.

        Raises:
            StoreClosedError: the store is closed.
        """
        book = self.book
        known = book.get(topic, group)
        if known is not None and not known.is_dead and not self._is_external:
            others = [each.topic for each in book.all() if each.topic != topic]
            book.unregister(group, except_topics=others)


class _GroupBits:
    """The bits of one group, valid while the book has it with one expression.

    Thread-safety: immutable; the book is asked without a lock.
    """

    __slots__ = ("_book", "_expression", "_group", "_positions", "_topic")

    def __init__(self, book: FilterBook, group: str, topic: str, expression: str) -> None:
        self._book = book
        self._group = group
        self._topic = topic
        self._expression = expression
        self._positions = book.bloom.bit_positions(group, topic)

    def is_hit(self, bits: UnitBits) -> bool:
        """Tell whether the group may want the message with these bits."""
        known = self._book.get(self._topic, self._group)
        if known is None or known.expression != self._expression:
            return True  # another consumer of the group has changed the meaning of the bits
        return may_want(
            bits,
            bloom=self._book.bloom,
            positions=self._positions,
            born_timestamp=known.born_time,
        )


def _bloom_of(options: StoreOptions) -> BloomFilter:
    """Return the bloom filter that the options of a store ask for."""
    return BloomFilter.sized(
        error_rate_percent=options.max_error_rate_of_bloom_filter,
        expected_count=options.expect_consumer_num_use_filter,
    )


def make_filter_bits(book: FilterBook, options: StoreOptions) -> FilterBits:
    """Make the dispatcher that computes the bits, for the subscriptions of a book."""
    bloom = _bloom_of(options)
    book.fit(bloom)
    return FilterBits(bloom, lambda topic: _subscriptions(book, topic))


def _subscriptions(book: FilterBook, topic: str) -> list[SqlSubscription]:
    """Return the subscriptions of a topic, at this moment, with the bits of each."""
    # Compat: as in CommitLogDispatcherCalcBitMap#dispatch, which asks the dead ones too.
    return [
        SqlSubscription(_compiled(found.expression), found.bloom_filter_data.bit_pos)
        for found in book.of_topic(topic)
        if found.expression and found.bloom_filter_data is not None
    ]
