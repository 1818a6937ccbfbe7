"""consumerFilter.json: the SQL92 subscriptions whose bits stand beside the queue units.

{"filterDataByTopic": {topic: {"topic": topic, "groupFilterData": {group:
    {"expression": ..., "bloomFilterData": {"bitNum": 112, "bitPos": [30, 35, 71]}, ...}}}}}
"""

from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table

FILE_NAME: Final = "consumerFilter.json"


class BloomBits(Struct, frozen=True, rename="camel"):
    """Which bits a group has in a map of how many; equal bits may be named twice."""

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
