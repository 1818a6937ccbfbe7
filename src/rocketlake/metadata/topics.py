"""topics.json: the topics of a broker; `TopicBook` also changes and writes them.

    {"dataVersion": {...}, "topicConfigTable": {name: {"topicName": name, "perm": 6, ...}}}

4.x has no `attributes`.
"""

import logging
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct, structs

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table
from rocketlake.metadata.book import VERSION_NAME, Book, TableLocation, encode_entry
from rocketlake.metadata.table import DataVersion
from rocketlake.model.topics import QUEUES_MAX, TopicConfig

log = logging.getLogger(__name__)

FILE_NAME: Final = "topics.json"
_TABLE: Final = "topicConfigTable"
_LATER: Final = frozenset({"attributes"})


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

    Why: callers make a list of all queues. A count of ten digits in the table must not exhaust
    memory. The table itself keeps its count.
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


class TopicBook(Book):
    """The topics of a store, and the `TopicCatalog` of its engine.

    Changes are in memory until `persist`. (The reference writes the file at each change.)

    Thread-safety: as Book. Questions read one dictionary and take no lock.
    """

    file_name: ClassVar[str] = FILE_NAME

    def __init__(self, location: TableLocation, members: JsonObject) -> None:
        super().__init__(location, members)
        self._topics = decode(members).topics
        self._entries: JsonObject = {
            name: entry for name, _, entry in table.get_entries(members, _TABLE)
        }

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic; None if it does not exist."""
        return self._topics.get(name)

    def topics(self) -> list[TopicConfig]:
        """Return all topics, in the order of the file."""
        with self._lock:
            return list(self._topics.values())

    def create(self, config: TopicConfig) -> TopicConfig:
        """Add a topic unless the name exists; return the topic of that name."""
        with self._lock:
            found = self._topics.get(config.name)
            if found is None:
                self._put(config)
            return found or config

    def update(self, config: TopicConfig) -> None:
        """Add or replace a topic."""
        with self._lock:
            self._put(config)

    def delete(self, name: str) -> bool:
        """Remove a topic; False if it does not exist."""
        with self._lock:
            if self._topics.pop(name, None) is None:
                return False
            self._entries.pop(name, None)
            self._next_version()
            return True

    # --- store.ports.TopicCatalog ----------------------------------------------------------------

    def is_batch_queue(self, topic: str) -> bool:
        """Tell whether the queues of a topic are batch consume queues."""
        config = self._topics.get(topic)
        return config is not None and config.is_batch

    def read_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be read; 0 if the topic does not exist."""
        config = self._topics.get(topic)
        return 0 if config is None else config.read_queue_count

    def write_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be written; 0 if the topic does not exist."""
        config = self._topics.get(topic)
        return 0 if config is None else config.write_queue_count

    # --- private ---------------------------------------------------------------------------------

    def _put(self, config: TopicConfig) -> None:
        old = table.get_object(self._entries, config.name)
        later = _LATER if self._is_4x else frozenset[str]()
        self._entries[config.name] = encode_entry(config, old, later)
        self._topics[config.name] = config
        self._next_version()

    def _encode(self) -> JsonObject:
        return {VERSION_NAME: self._encode_version(), _TABLE: {**self._entries}}
