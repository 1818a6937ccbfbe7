"""FilterBook: consumerFilter.json that can be changed."""

import logging
from collections.abc import Collection
from typing import Final

from msgspec import structs

from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.sql92 import SqlFilter
from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import filters, table
from rocketlake.metadata.book import Book, Place, encode_entry, merge
from rocketlake.metadata.filters import BloomBits, ConsumerFilter

log = logging.getLogger(__name__)

_TABLE: Final = "filterDataByTopic"
_GROUPS: Final = "groupFilterData"
_DEAD_BEFORE_LOAD_MS: Final = 30_000
_KEPT_AFTER_DEATH_MS: Final = 24 * 3_600_000  # BrokerConfig#filterDataCleanTimeSpan


class FilterBook(Book):
    """The SQL92 subscriptions whose bits are kept beside queue units.

    Nobody is subscribed after loading: a subscription lives again when it is registered. One that
    is dead for a day is left out of the file.

    Thread-safety: as Book. Questions read one dictionary and take no lock.
    """

    def __init__(self, place: Place, file_name: str, members: JsonObject) -> None:
        super().__init__(place, file_name, members)
        self.bloom = BloomFilter.sized()
        self._filters = {
            topic: {group: self._bury(found) for group, found in groups.items()}
            for topic, groups in filters.decode(members).topics.items()
        }

    @classmethod
    def file_name(cls) -> str:
        """Return the name of the file."""
        return filters.FILE_NAME

    def fit(self, bloom: BloomFilter) -> bool:
        """Have bits of this filter; False, and nothing is left, if there are those of another."""
        with self._lock:
            self.bloom = bloom
            # Compat: as ConsumerFilterManager#decode, one is enough to lose all.
            found = [value for groups in self._filters.values() for value in groups.values()]
            is_fitting = all(_fits(value, bloom) for value in found)
            if not is_fitting:
                log.warning("filters of other sizes discarded path=%s", self.path)
                self._filters = {}
                self._changed()
            return is_fitting

    # --- asking ----------------------------------------------------------------------------------

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return the filter of a group; None if it has none."""
        return self._filters.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> list[ConsumerFilter]:
        """Return the filters of all groups of a topic."""
        with self._lock:
            return list(self._filters.get(topic, {}).values())

    def all(self) -> list[ConsumerFilter]:
        """Return all filters, in the order of the file."""
        with self._lock:
            return [found for groups in self._filters.values() for found in groups.values()]

    # --- changing --------------------------------------------------------------------------------

    def register(self, topic: str, group: str, expression: str, client_version: int) -> bool:
        """Subscribe a group by an SQL92 expression; False if that changes nothing.

        What has an older version than the subscription that is there is passed over.

        Raises:
            ValueError: the expression is wrong; an older subscription is gone then.
        """
        bits = BloomBits(self.bloom.bit_count, list(self.bloom.bit_positions(group, topic)))
        with self._lock:
            groups = self._filters.setdefault(topic, {})
            old = groups.get(group)
            if old is not None and client_version <= old.client_version:
                if client_version < old.client_version or not old.is_dead:
                    return False
                groups[group] = structs.replace(old, dead_time=0)
            elif old is not None and (old.expression, old.bloom_filter_data) == (expression, bits):
                groups[group] = structs.replace(
                    old,
                    client_version=client_version,
                    dead_time=0 if old.is_dead else old.dead_time,
                )
            else:
                # Order: an expression that is wrong ends the subscription there was.
                groups.pop(group, None)
                self._changed()
                SqlFilter(expression)
                groups[group] = ConsumerFilter(
                    topic=topic,
                    consumer_group=group,
                    expression=expression,
                    expression_type="SQL92",
                    born_time=self._clock.now_ms(),
                    client_version=client_version,
                    bloom_filter_data=bits,
                )
            self._changed()
            return True

    def unregister(self, group: str, *, except_topics: Collection[str] = ()) -> int:
        """End what a group is subscribed to, but for these topics; return how much that was."""
        count = 0
        with self._lock:
            for topic, groups in self._filters.items():
                found = groups.get(group)
                if found is not None and not found.is_dead and topic not in except_topics:
                    groups[group] = structs.replace(found, dead_time=self._clock.now_ms())
                    count += 1
            if count:
                self._changed()
        return count

    # --- private ---------------------------------------------------------------------------------

    def _bury(self, found: ConsumerFilter) -> ConsumerFilter:
        if found.dead_time:
            return found
        dead_time = max(found.born_time, self._clock.now_ms() - _DEAD_BEFORE_LOAD_MS)
        return structs.replace(found, dead_time=dead_time)

    def _encode(self) -> JsonObject:
        self._drop_long_dead()
        old_topics = table.get_object(self._members, _TABLE)
        found: JsonObject = {}
        for topic, groups in self._filters.items():
            old = table.get_object(old_topics, topic)
            old_groups = table.get_object(old, _GROUPS)
            entries: JsonObject = {
                group: _encode_filter(value, table.get_object(old_groups, group))
                for group, value in groups.items()
            }
            found[topic] = merge(old, {"topic": topic, _GROUPS: entries})
        return {_TABLE: found}

    def _drop_long_dead(self) -> None:
        latest = self._clock.now_ms() - _KEPT_AFTER_DEATH_MS
        kept = {
            topic: {
                group: found
                for group, found in groups.items()
                if not (found.is_dead and found.dead_time <= latest)
            }
            for topic, groups in self._filters.items()
        }
        self._filters = {topic: groups for topic, groups in kept.items() if groups}


def _encode_filter(value: ConsumerFilter, old: JsonObject) -> JsonObject:
    return merge(encode_entry(value, old, frozenset()), {"dead": value.is_dead})


def _fits(found: ConsumerFilter, bloom: BloomFilter) -> bool:
    bits = found.bloom_filter_data
    return (
        bits is not None
        and bits.bit_num == bloom.bit_count
        and len(bits.bit_pos) == bloom.hash_count
    )
