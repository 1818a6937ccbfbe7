"""consumerOffset.json, lmqConsumerOffset.json and delayOffset.json: how far somebody has come.

    consumerOffset.json     {"offsetTable": {"topic@group": {queue id: next queue offset}}}
    lmqConsumerOffset.json  {"lmqOffsetTable": {"topic@group": next queue offset}}
    delayOffset.json        {"offsetTable": {delay level: next queue offset}}

5.x adds `dataVersion` to each, and `groupTopicMap` to the first two, which says nothing new.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from rocketlake.format.java_json import JsonObject
from rocketlake.metadata import table
from rocketlake.metadata.table import DataVersion

FILE_NAME: Final = "consumerOffset.json"
LIGHT_FILE_NAME: Final = "lmqConsumerOffset.json"
DELAY_FILE_NAME: Final = "delayOffset.json"

SEPARATOR: Final = "@"


class GroupProgress(Struct, frozen=True):
    """The next queue offset of a group, per queue of one topic."""

    topic: str
    group: str
    offsets: dict[int, int]


class OffsetTable(Struct, frozen=True):
    """Queue offsets by key and queue id; a key is `topic@group`, in the order of the file.

    A light queue has the queue id 0 only. Keys that are no topic and group are kept as they are.
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
