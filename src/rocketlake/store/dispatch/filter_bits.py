"""FilterBits: which SQL92 subscriptions want a message, as bits beside its queue unit.

A dispatcher that goes before the consume queues [CommitLogDispatcherCalcBitMap].
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.format.record import decode_properties
from rocketlake.store.ports import DispatchSlice


class SqlSubscription(Struct, frozen=True):
    """The SQL92 filter of a group for a topic, and the positions of its bits."""

    wanted: SqlFilter
    positions: Sequence[int]


class FilterBits:
    """Computes the bits. Owned by the dispatch thread."""

    def __init__(
        self, bloom: BloomFilter, subscriptions: Callable[[str], Sequence[SqlSubscription]]
    ) -> None:
        """`subscriptions` gives those of a topic; messages of one that has none get no bits."""
        self._bloom = bloom
        self._subscriptions = subscriptions

    def dispatch(self, records: DispatchSlice) -> None:
        """Fill the bitmaps of records whose topics have subscriptions."""
        columns = records.columns
        codes, topics = columns.topics()
        view = memoryview(columns.buffer)
        for code, topic in enumerate(topics):
            subscriptions = self._subscriptions(topic)
            if not subscriptions:
                continue
            for row in np.flatnonzero(codes == code).tolist():
                start = int(columns["properties_position"][row])
                raw = view[start : start + int(columns["properties_size"][row])]
                properties = decode_properties(raw)
                bitmap = bytearray(self._bloom.byte_count)
                for subscription in subscriptions:
                    if subscription.wanted.matches(properties):
                        self._bloom.set_bits(subscription.positions, bitmap)
                records.bitmaps[row] = bytes(bitmap)
