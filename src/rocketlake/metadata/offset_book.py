"""OffsetBook: consumerOffset.json, or lmqConsumerOffset.json, that can be changed."""

from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from msgspec import Struct

from rocketlake.format.java_json import JsonObject, JsonValue
from rocketlake.metadata import offsets, table
from rocketlake.metadata.book import VERSION_NAME, Book, Place
from rocketlake.metadata.offsets import SEPARATOR, OffsetTable, join_key, split_key
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq

_TABLE: Final = "offsetTable"
_LIGHT_TABLE: Final = "lmqOffsetTable"
_GROUP_TOPICS: Final = "groupTopicMap"
_COMMITS_PER_VERSION: Final = 500  # BrokerConfig#consumerOffsetUpdateVersionStep


class Excess(Struct, frozen=True):
    """Progress of a group that was beyond the end of a queue, and was brought back to it."""

    group: str
    key: QueueKey
    offset: int
    end: int

    def __str__(self) -> str:
        return (
            f"group {self.group} was at {self.offset} of {self.key}, which ends at {self.end}:"
            f" it goes on at {self.end}"
        )


class OffsetBook(Book):
    """How far each group has come in each queue: the next queue offset to consume.

    Commits are in memory until `persist`, which the owner calls from time to time.

    Thread-safety: as Book. `get` reads without a lock.
    """

    speaks_of_log: ClassVar[bool] = True

    def __init__(self, place: Place, file_name: str, members: JsonObject) -> None:
        super().__init__(place, file_name, members)
        self._offsets = self._decode(members).offsets
        self._commits = 0

    @classmethod
    def file_name(cls) -> str:
        """Return the name of the file."""
        return offsets.FILE_NAME

    # --- asking ----------------------------------------------------------------------------------

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the next queue offset of a group; None if it never committed one."""
        found = self._offsets.get(join_key(topic, group))
        return None if found is None else found.get(queue_id)

    def offsets(self, topic: str, group: str) -> dict[int, int]:
        """Return the next queue offset of a group for each queue it committed one of."""
        with self._lock:
            return dict(self._offsets.get(join_key(topic, group), {}))

    def snapshot(self) -> OffsetTable:
        """Return all offsets as they are now."""
        with self._lock:
            copy = {key: dict(found) for key, found in self._offsets.items()}
            return OffsetTable(copy, self._version)

    def topics_of(self, group: str) -> list[str]:
        """Return the topics of which a group has committed offsets."""
        return [names[0] for names in self._names() if names[1] == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets of a topic."""
        return [names[1] for names in self._names() if names[0] == topic]

    # --- changing --------------------------------------------------------------------------------

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the next queue offset of a group, forward or backward.

        Raises:
            StoreClosedError: the book was closed; the commit would be lost.
        """
        key = topic + SEPARATOR + group
        # Why: consumers commit message by message; a call less is felt.
        with self._lock:
            if self._is_closed:
                self._require_open()
            found = self._offsets.get(key)
            if found is None:
                found = self._offsets[key] = {}
            if found.get(queue_id) != offset:
                found[queue_id] = offset
                self._changes += 1
            # Compat: so many commits make a version, as in ConsumerOffsetManager#commitOffset.
            self._commits += 1
            if self._commits % _COMMITS_PER_VERSION == 0:
                self._next_version()

    def reset(self, topic: str, group: str, wanted: dict[int, int]) -> None:
        """Let a group go on at these offsets; queues that are not named keep theirs."""
        for queue_id, offset in wanted.items():
            self.commit(topic, group, queue_id, offset)

    def bring_back(self, end_of: Callable[[QueueKey], int]) -> list[Excess]:
        """Set progress that is beyond the end of a queue to that end; return what was changed.

        `end_of` returns the next queue offset of a queue, 0 for one that does not exist.
        """
        with self._lock:
            found = list(self._find_excess(end_of))
            for name, one in found:
                self._offsets[name][one.key.queue_id] = one.end
            if found:
                self._next_version()
            return [one for _, one in found]

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Let a group be where another one is; False if that has no offsets of the topic."""
        with self._lock:
            found = self._offsets.get(join_key(topic, source))
            if found is None:
                return False
            self._offsets[join_key(topic, target)] = dict(found)
            self._changed()
            return True

    def remove(self, topic: str, group: str) -> bool:
        """Forget what a group committed of a topic; False if that is nothing."""
        return self._remove_keys([join_key(topic, group)]) > 0

    def remove_topic(self, topic: str) -> int:
        """Forget what all groups committed of a topic; return how many had."""
        return self._remove_keys([join_key(topic, group) for group in self.groups_of(topic)])

    def remove_group(self, group: str) -> int:
        """Forget all that a group committed; return of how many topics."""
        return self._remove_keys([join_key(topic, group) for topic in self.topics_of(group)])

    # --- private ---------------------------------------------------------------------------------

    def _decode(self, members: JsonObject) -> OffsetTable:
        return offsets.decode(members)

    def _find_excess(self, end_of: Callable[[QueueKey], int]) -> Iterator[tuple[str, Excess]]:
        for name, found in self._offsets.items():
            names = split_key(name)
            if names is None:
                continue
            topic, group = names
            for queue_id, offset in found.items():
                key = QueueKey(topic, queue_id)
                end = end_of(key)
                if is_lmq(group):
                    # Compat: a light queue is named by its group, whatever the topic is.
                    end = max(end, end_of(QueueKey(group, 0)))
                if offset > end:
                    yield name, Excess(group, key, offset, end)

    def _remove_keys(self, keys: list[str]) -> int:
        with self._lock:
            count = sum(self._offsets.pop(key, None) is not None for key in keys)
            if count:
                self._changed()
            return count

    def _names(self) -> list[tuple[str, str]]:
        with self._lock:
            keys = list(self._offsets)
        return [names for key in keys if (names := split_key(key)) is not None]

    def _encode(self) -> JsonObject:
        members: JsonObject = {_TABLE: _encode_offsets(self._offsets)}
        if self._has_version:
            members[VERSION_NAME] = self._encode_version()
        if not self._is_4x or _GROUP_TOPICS in self._members:
            members[_GROUP_TOPICS] = self._encode_group_topics(list(self._offsets))
        return members

    def _encode_group_topics(self, keys: list[str]) -> JsonObject:
        # Compat: as ConsumerOffsetManager#getGroupTopicMap; nobody reads it. Known groups keep
        # their places, since the order is that of a Java hash map.
        found: dict[str, list[JsonValue]] = {
            str(group): [] for group in table.get_object(self._members, _GROUP_TOPICS)
        }
        for key in keys:
            names = split_key(key)
            if names is not None:
                found.setdefault(names[1], []).append(names[0])
        return {group: topics for group, topics in found.items() if topics}


class LightOffsetBook(OffsetBook):
    """The same with light queues, whose groups have one offset for each topic (`enableLmq`).

    A store that had no light queues before starts with what consumerOffset.json has.
    """

    @classmethod
    def file_name(cls) -> str:
        """Return the name of the file."""
        return offsets.LIGHT_FILE_NAME

    def _decode(self, members: JsonObject) -> OffsetTable:
        if members:
            return offsets.decode_light(members)
        usual = self.path.with_name(offsets.FILE_NAME)
        return table.load(usual, offsets.decode, OffsetTable(), ops=self._ops)

    def _encode(self) -> JsonObject:
        members = super()._encode()
        light = {key: found for key, found in self._offsets.items() if _is_light(key)}
        usual = {key: found for key, found in self._offsets.items() if key not in light}
        members[_TABLE] = _encode_offsets(usual)
        # Compat: LmqConsumerOffsetManager keeps one offset, whichever queue is named.
        members[_LIGHT_TABLE] = {key: found.get(0, 0) for key, found in light.items()}
        if _GROUP_TOPICS in members:
            members[_GROUP_TOPICS] = self._encode_group_topics(list(usual))
        return members


def _is_light(key: str) -> bool:
    names = split_key(key)
    return names is not None and is_lmq(names[1])


def _encode_offsets(found: dict[str, dict[int, int]]) -> JsonObject:
    return {key: {**dict(sorted(queues.items()))} for key, queues in found.items()}
