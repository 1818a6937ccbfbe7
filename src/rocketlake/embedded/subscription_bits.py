"""Filter bits for the SQL92 subscriptions that a store keeps in consumerFilter.json."""

from functools import lru_cache

from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.metadata.filters import FilterBook
from rocketlake.store.dispatch.filter_bits import FilterBits, SqlSubscription
from rocketlake.store.options import StoreOptions

_compiled = lru_cache(maxsize=1024)(SqlFilter)


def bloom_of(options: StoreOptions) -> BloomFilter:
    """Return the bloom filter that the options of a store ask for."""
    return BloomFilter.sized(
        error_rate_percent=options.max_error_rate_of_bloom_filter,
        expected_count=options.expect_consumer_num_use_filter,
    )


def make_filter_bits(book: FilterBook, options: StoreOptions) -> FilterBits:
    """Make the dispatcher that computes the bits, for the subscriptions of a book."""
    bloom = bloom_of(options)
    book.fit(bloom)
    return FilterBits(bloom, lambda topic: subscriptions(book, topic))


def subscriptions(book: FilterBook, topic: str) -> list[SqlSubscription]:
    """Return the subscriptions of a topic, at this moment, with the bits of each."""
    # Compat: as in CommitLogDispatcherCalcBitMap#dispatch, which asks the dead ones too.
    return [
        SqlSubscription(_compiled(found.expression), found.bloom_filter_data.bit_pos)
        for found in book.of_topic(topic)
        if found.expression and found.bloom_filter_data is not None
    ]
