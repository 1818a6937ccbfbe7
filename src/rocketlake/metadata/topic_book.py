"""TopicBook: topics.json that can be changed."""

from typing import Final

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table, topics
from rocketlake.metadata.book import VERSION_NAME, Book, Place, encode_entry
from rocketlake.model.topics import TopicConfig

_TABLE: Final = "topicConfigTable"
_LATER: Final = frozenset({"attributes"})


class TopicBook(Book):
    """The topics of a store; knows for the store how many queues each has and of which kind.

    Changes are in memory until `persist`. (The reference writes the file at each change.)

    Thread-safety: as Book. Questions read one dictionary and take no lock.
    """

    def __init__(self, place: Place, file_name: str, members: JsonObject) -> None:
        super().__init__(place, file_name, members)
        self._topics = topics.decode(members).topics
        self._entries: JsonObject = {
            name: entry for name, _, entry in table.get_entries(members, _TABLE)
        }

    @classmethod
    def file_name(cls) -> str:
        """Return the name of the file."""
        return topics.FILE_NAME

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic; None if there is no such one."""
        return self._topics.get(name)

    def topics(self) -> list[TopicConfig]:
        """Return all topics, in the order of the file."""
        with self._lock:
            return list(self._topics.values())

    def create(self, config: TopicConfig) -> TopicConfig:
        """Add a topic, unless one of this name is there already; return the one that is."""
        with self._lock:
            found = self._topics.get(config.name)
            if found is None:
                self._put(config)
            return found or config

    def update(self, config: TopicConfig) -> None:
        """Add a topic, or put it in the place of the one of this name."""
        with self._lock:
            self._put(config)

    def delete(self, name: str) -> bool:
        """Remove a topic; False if there is no such one."""
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
        """Return how many queues of a topic may be read; 0 if there is no such topic."""
        config = self._topics.get(topic)
        return 0 if config is None else config.read_queue_count

    def write_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be written; 0 if there is no such topic."""
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
