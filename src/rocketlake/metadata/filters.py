"""consumerFilter.json: the SQL92 subscriptions whose bits are kept beside the queue units.

    {"filterDataByTopic": {topic: {"topic": topic, "groupFilterData": {group:
        {"expression": ..., "bloomFilterData": {"bitNum": 112, "bitPos": [30, 35, 71]}, ...}}}}}

`FilterBook` also changes and writes them.
"""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct, structs

from rocketlake.filters.bloom import BloomFilter
from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table
from rocketlake.metadata.book import Book, TableLocation, encode_entry, merge

log = logging.getLogger(__name__)

FILE_NAME: Final = "consumerFilter.json"
_TABLE: Final = "filterDataByTopic"
_GROUPS: Final = "groupFilterData"
_DEAD_BEFORE_LOAD_MS: Final = 30_000
_KEPT_AFTER_DEATH_MS: Final = 24 * 3_600_000  # BrokerConfig#filterDataCleanTimeSpan


class BloomBits(Struct, frozen=True, rename="camel"):
    """The bits of a group in a bitmap of `bit_num` bits; a position may occur twice."""

    bit_num: int
    bit_pos: list[int]


class ConsumerFilter(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a group wants of a topic. Times are in milliseconds."""

    topic: str
    consumer_group: str
    expression: str | None = None
    expression_type: str | None = None
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    bloom_filter_data: BloomBits | None = None

    @property
    def is_dead(self) -> bool:
        """Tell whether the group has unsubscribed since.

        Compat: the file has a member `dead`, which ConsumerFilterData#isDead derives so too.
        """
        return self.dead_time >= self.born_time


class FilterTable(Struct, frozen=True):
    """Filters by topic and group, in the order of the file."""

    topics: dict[str, dict[str, ConsumerFilter]] = {}

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return the filter of a group; None if it has none."""
        return self.topics.get(topic, {}).get(group)


def load(config_dir: Path) -> FilterTable:
    """Read consumerFilter.json or its backup; an empty table if there is neither.

    Raises:
        StoreError: Neither of the files that are there can be used.
    """
    return table.load(config_dir / FILE_NAME, decode, FilterTable())


def decode(value: JsonObject) -> FilterTable:
    """Turn the JSON of consumerFilter.json into a table.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    topics = {
        topic: _decode_groups(topic, where, members)
        for topic, where, members in table.get_entries(value, "filterDataByTopic")
    }
    return FilterTable(topics)


def _decode_groups(topic: str, place: str, members: JsonObject) -> dict[str, ConsumerFilter]:
    return {
        group: table.convert(
            {"topic": topic, "consumerGroup": group, **entry}, ConsumerFilter, f"{place}.{where}"
        )
        for group, where, entry in table.get_entries(members, "groupFilterData")
    }


class FilterBook(Book):
    """The SQL92 subscriptions whose bits are kept beside queue units.

    After loading, every subscription is dead until it is registered again. One that has been dead
    for a day is left out of the file.

    Thread-safety: as Book. Questions read one dictionary and take no lock.
    """

    file_name: ClassVar[str] = FILE_NAME

    def __init__(self, location: TableLocation, members: JsonObject) -> None:
        super().__init__(location, members)
        self.bloom = BloomFilter.sized()
        self._filters = {
            topic: {group: self._mark_dead(found) for group, found in groups.items()}
            for topic, groups in decode(members).topics.items()
        }

    def fit(self, bloom: BloomFilter) -> bool:
        """Use this filter; if an entry has bits of another, drop all entries and return False."""
        with self._lock:
            self.bloom = bloom
            # Compat: as ConsumerFilterManager#decode, one entry that does not fit drops all.
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

        A version older than that of the present subscription is ignored.

        Raises:
            ValueError: the expression is wrong; the group is no longer subscribed then.
        """
        from rocketlake.filters.sql92 import SqlFilter  # noqa: PLC0415 - its parser is slow to load

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
                # Order: a wrong expression ends the old subscription.
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
        """End the subscriptions of a group, except of these topics; return how many ended."""
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

    def _mark_dead(self, found: ConsumerFilter) -> ConsumerFilter:
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
