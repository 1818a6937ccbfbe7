"""consumerOffset.json, lmqConsumerOffset.json and delayOffset.json: consumed and delivered offsets.

    consumerOffset.json     {"offsetTable": {"topic@group": {queue id: next queue offset}}}
    lmqConsumerOffset.json  {"lmqOffsetTable": {"topic@group": next queue offset}}
    delayOffset.json        {"offsetTable": {delay level: next queue offset}}

5.x adds `dataVersion` to each, and `groupTopicMap` to the first two, which adds no information.
`OffsetBook`, `LightOffsetBook` and `DelayOffsets` also change and write them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct

from rocketlake.format.java_json import JsonObject, JsonValue
from rocketlake.metadata import table
from rocketlake.metadata.book import VERSION_NAME, Book, TableLocation
from rocketlake.metadata.table import DataVersion
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq

FILE_NAME: Final = "consumerOffset.json"
LIGHT_FILE_NAME: Final = "lmqConsumerOffset.json"
DELAY_FILE_NAME: Final = "delayOffset.json"
_TABLE: Final = "offsetTable"
_LIGHT_TABLE: Final = "lmqOffsetTable"
_GROUP_TOPICS: Final = "groupTopicMap"
_COMMITS_PER_VERSION: Final = 500  # BrokerConfig#consumerOffsetUpdateVersionStep
_UPDATES_PER_VERSION: Final = 200  # BrokerConfig#delayOffsetUpdateVersionStep

SEPARATOR: Final = "@"


class GroupProgress(Struct, frozen=True):
    """The next queue offset of a group, per queue of one topic."""

    topic: str
    group: str
    offsets: dict[int, int]


class OffsetTable(Struct, frozen=True):
    """Queue offsets by key and queue id; a key is `topic@group`, in the order of the file.

    A light queue has queue id 0 only. Keys that are not a topic and a group are kept as they are.
    """

    offsets: dict[str, dict[int, int]] = {}
    version: DataVersion | None = None

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the next queue offset of a group; None if it never committed one."""
        return self.offsets.get(join_key(topic, group), {}).get(queue_id)

    def progress(self) -> Iterator[GroupProgress]:
        """Yield the entries whose key is a topic and a group."""
        for key, offsets in self.offsets.items():
            names = split_key(key)
            if names is not None:
                yield GroupProgress(*names, offsets)


class DelayOffsetTable(Struct, frozen=True):
    """The next queue offset by delay level; level 1 is queue 0 of the schedule topic."""

    offsets: dict[int, int] = {}
    version: DataVersion | None = None


def join_key(topic: str, group: str) -> str:
    """Return the key of a topic and a group."""
    return topic + SEPARATOR + group


def split_key(key: str) -> tuple[str, str] | None:
    """Return topic and group of a key; None if it has not exactly two parts.

    Compat: ConsumerOffsetManager uses String#split, which drops empty parts at the end, so that
    `a@b@` is a topic and a group and `a@` is not.
    """
    parts = key.rstrip(SEPARATOR).split(SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def load(config_dir: Path) -> OffsetTable:
    """Read consumerOffset.json or its backup; an empty table if there is neither.

    Raises:
        StoreError: Neither of the files that are there can be used.
    """
    return table.load(config_dir / FILE_NAME, decode, OffsetTable())


def load_light(config_dir: Path) -> OffsetTable:
    """Read lmqConsumerOffset.json or its backup; an empty table if there is neither.

    Raises:
        StoreError: Neither of the files that are there can be used.
    """
    return table.load(config_dir / LIGHT_FILE_NAME, decode_light, OffsetTable())


def load_delay(config_dir: Path) -> DelayOffsetTable:
    """Read delayOffset.json or its backup; an empty table if there is neither.

    Raises:
        StoreError: Neither of the files that are there can be used.
    """
    return table.load(config_dir / DELAY_FILE_NAME, decode_delay, DelayOffsetTable())


def decode(value: JsonObject) -> OffsetTable:
    """Turn the JSON of consumerOffset.json into a table.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    return OffsetTable(_decode_offsets(value), table.decode_version(value))


def decode_light(value: JsonObject) -> OffsetTable:
    """Turn the JSON of lmqConsumerOffset.json into a table.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    name = "lmqOffsetTable"
    light = table.convert(table.get_object(value, name), dict[str, int], name)
    offsets = _decode_offsets(value) | {key: {0: offset} for key, offset in light.items()}
    return OffsetTable(offsets, table.decode_version(value))


def decode_delay(value: JsonObject) -> DelayOffsetTable:
    """Turn the JSON of delayOffset.json into a table.

    Raises:
        ValueError: A member is of the wrong type; says which one.
    """
    name = "offsetTable"
    offsets = table.convert(table.get_object(value, name), dict[int, int], name)
    return DelayOffsetTable(offsets, table.decode_version(value))


def _decode_offsets(value: JsonObject) -> dict[str, dict[int, int]]:
    return {
        key: table.convert(members, dict[int, int], where)
        for key, where, members in table.get_entries(value, "offsetTable")
    }


class Excess(Struct, frozen=True):
    """Progress of a group beyond the end of a queue, before it was set back to that end."""

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
    """The next queue offset to consume, by topic, group and queue.

    Commits are in memory until `persist`, which the owner calls periodically.

    Thread-safety: as Book. `get` reads without a lock.
    """

    file_name: ClassVar[str] = FILE_NAME
    speaks_of_log: ClassVar[bool] = True

    def __init__(self, location: TableLocation, members: JsonObject) -> None:
        super().__init__(location, members)
        self._offsets = self._decode(members).offsets
        self._commits = 0

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
        """Set the next queue offset of a group, forward or back.

        Raises:
            StoreClosedError: the book was closed; the commit would be lost.
        """
        key = topic + SEPARATOR + group
        # Why: consumers commit message by message; one call less is measurable.
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
        """Set the offsets of a group for these queues; other queues keep theirs."""
        for queue_id, offset in wanted.items():
            self.commit(topic, group, queue_id, offset)

    def cap_progress(self, end_of: Callable[[QueueKey], int]) -> list[Excess]:
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
        """Copy the offsets of a group to another; False without any. For the broker."""
        with self._lock:
            found = self._offsets.get(join_key(topic, source))
            if found is None:
                return False
            self._offsets[join_key(topic, target)] = dict(found)
            self._changed()
            return True

    def remove(self, topic: str, group: str) -> bool:
        """Remove the offsets of a group for a topic; False if there are none."""
        return self._remove_keys([join_key(topic, group)]) > 0

    def remove_topic(self, topic: str) -> int:
        """Remove the offsets of all groups for a topic; return how many groups had some."""
        return self._remove_keys([join_key(topic, group) for group in self.groups_of(topic)])

    def remove_group(self, group: str) -> int:
        """Remove all offsets of a group; return of how many topics. For the broker."""
        return self._remove_keys([join_key(topic, group) for topic in self.topics_of(group)])

    # --- private ---------------------------------------------------------------------------------

    def _decode(self, members: JsonObject) -> OffsetTable:
        return decode(members)

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
        # Compat: as ConsumerOffsetManager#getGroupTopicMap; it is never read. Known groups keep
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

    file_name: ClassVar[str] = LIGHT_FILE_NAME

    def _decode(self, members: JsonObject) -> OffsetTable:
        if members:
            return decode_light(members)
        usual = self.path.with_name(FILE_NAME)
        return table.load(usual, decode, OffsetTable(), ops=self._ops)

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


class DelayOffsets(Book):
    """The next queue offset to deliver, by delay level.

    Thread-safety: as Book.
    """

    file_name: ClassVar[str] = DELAY_FILE_NAME
    speaks_of_log: ClassVar[bool] = True

    def __init__(self, location: TableLocation, members: JsonObject) -> None:
        super().__init__(location, members)
        self._offsets = decode_delay(members).offsets
        self._updates = 0

    def get(self, level: int) -> int:
        """Return the next queue offset of a level; 0 if it has none."""
        return self._offsets.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        """Set the next queue offset of a level."""
        with self._lock:
            if self._offsets.get(level) != offset:
                self._offsets[level] = offset
                self._changed()
            # Compat: as ScheduleMessageService#updateOffset, a version every so many updates.
            self._updates += 1
            if self._updates % _UPDATES_PER_VERSION == 0:
                self._next_version()

    def cap_progress(self, end_of: Callable[[int], int]) -> dict[int, tuple[int, int]]:
        """Set progress that is beyond the end of a level's queue to that end.

        Returns the old and the new offset of each level that was changed.
        """
        with self._lock:
            found = {
                level: (offset, end)
                for level, offset in self._offsets.items()
                if offset > (end := end_of(level))
            }
            for level, (_, end) in found.items():
                self._offsets[level] = end
            if found:
                self._next_version()
            return found

    def snapshot(self) -> dict[int, int]:
        """Return the next queue offset of each level that has one."""
        with self._lock:
            return dict(self._offsets)

    def _encode(self) -> JsonObject:
        members: JsonObject = {_TABLE: {**dict(sorted(self._offsets.items()))}}
        if self._has_version:
            members[VERSION_NAME] = self._encode_version()
        return members
