"""topics.json: the topics of a broker.

    {"dataVersion": {...}, "topicConfigTable": {name: {"topicName": name, "perm": 6, ...}}}

4.x has no `attributes`.
"""

import logging
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table
from rocketlake.metadata.table import DataVersion
from rocketlake.model.topics import QUEUES_MAX, TopicConfig

log = logging.getLogger(__name__)

FILE_NAME: Final = "topics.json"


class TopicTable(Struct, frozen=True):
    """Topics by name, in the order of the file."""

    topics: dict[str, TopicConfig] = {}
    version: DataVersion | None = None


def load(config_dir: Path) -> TopicTable:
    """Read topics.json or its backup; an empty table if there is neither.

    Raises:
        StoreError: Neither of the files that are there can be used.
    """
    return table.load(config_dir / FILE_NAME, decode, TopicTable())


def decode(value: JsonObject) -> TopicTable:
    """Turn the JSON of topics.json into a table.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    topics = {
        # Compat: the broker looks a topic up by its key, so that is its name.
        name: _bounded(table.convert({**members, "topicName": name}, TopicConfig, where))
        for name, where, members in table.get_entries(value, "topicConfigTable")
    }
    return TopicTable(topics, table.decode_version(value))


def _bounded(config: TopicConfig) -> TopicConfig:
    """Return a topic with no more queues than can be listed.

    Why: callers make a list of all queues. A number of ten digits in the table must not cost all
    memory. The table itself keeps its number.
    """
    counts = (config.read_queue_count, config.write_queue_count)
    if max(counts) <= QUEUES_MAX:
        return config
    log.warning(
        "topic has too many queues, only the first are used topic=%r queues=%d used=%d",
        config.name,
        max(counts),
        QUEUES_MAX,
    )
    read, write = (min(count, QUEUES_MAX) for count in counts)
    return structs.replace(config, read_queue_count=read, write_queue_count=write)
