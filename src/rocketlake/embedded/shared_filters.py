"""SharedFilters: the one book of SQL92 subscriptions of an open store.

Consumers are entered as they come, and end as they go [DefaultConsumerIdsChangeListener]; dispatch
sets their bits beside the units; consumers rule messages out by these bits.

Why a consumer may trust them: a message is ruled out only if it was stored after the subscription
that is in the book, with the expression of this consumer. The birth of a subscription and its entry
in the book are one step, and dispatch asks the book for each round. So a round that did not see
the subscription has messages only that were stored before its birth.
"""

import threading
from typing import Final

from rocketlake.embedded.selection import Selection
from rocketlake.embedded.subscription_bits import bloom_of, subscriptions
from rocketlake.filters.message_filter import SqlMessageFilter, UnitBits
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.filters import FilterBook
from rocketlake.store.dispatch.filter_bits import FilterBits
from rocketlake.store.options import StoreOptions


class SharedFilters:
    """The filters of a store. Thread-safety: any thread may call anything."""

    def __init__(
        self, location: TableLocation, options: StoreOptions, *, is_external: bool = False
    ) -> None:
        """With `is_external` a job sets the bits, by the table that it finds; it is left as it is.

        Nothing is read before the book is asked for, which the start of a store does under its
        lock.
        """
        self._location = location
        self._is_external = is_external
        self._has_bits: Final = options.enable_calc_filter_bit_map and not is_external
        self._bloom: Final = bloom_of(options)
        self._guard = threading.Lock()
        self._book: FilterBook | None = None

    @property
    def book(self) -> FilterBook:
        """The table, read when it is asked for the first time.

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
        return FilterBits(self._bloom, lambda topic: subscriptions(self.book, topic))

    def join(self, group: str, topic: str, selection: Selection) -> Selection:
        """Note what a consumer wants; return the same, with a look at the bits where it helps.

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
        return Selection(selection.tags, SqlMessageFilter(sql, bits))

    def leave(self, group: str, topic: str) -> None:
        """Note that no consumer of a group filters a topic by an expression any more.

        Raises:
            StoreClosedError: the store is closed.
        """
        book = self.book
        known = book.get(topic, group)
        if known is not None and not known.is_dead and not self._is_external:
            others = [each.topic for each in book.all() if each.topic != topic]
            book.unregister(group, except_topics=others)


class _GroupBits:
    """The bits of one group, as long as the book has it with one expression.

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
            return True  # another consumer of the group has changed what the bits mean
        if bits.store_timestamp <= known.born_time:
            return True
        return self._book.bloom.is_hit(self._positions, bits.bitmap)
