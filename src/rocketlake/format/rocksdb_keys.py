"""Keys and values of RocketMQ's RocksDB queues.

Column family `default`, one entry per unit (RocksDBConsumeQueueTable):

    key     i32 topic length, 1, topic, 1, i32 queue id, 1, i64 queue offset
    value   i64 physical offset, i32 size, i64 tags code, i64 store time

Column family `offset`, two entries per queue (RocksDBConsumeQueueOffsetTable):

    key     i32 topic length, 1, topic, 1, `max` or `min`, 1, i32 queue id
    value   i64 physical offset, i64 queue offset of that unit

The topic CHECKPOINT_TOPIC in `offset` is no queue: its value is how far dispatch has come. All
numbers are big-endian, and the topic's bytes are UTF-8.
"""

import struct
from typing import Final

from rocketlake.format import layout
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import ROCKSDB_OFFSET_TOPIC

UNITS: Final = "default"
BOUNDS: Final = "offset"

_MARK: Final = b"\1"
_MAX: Final = b"max"
_UNIT_VALUE_SIZE: Final = 28
_BOUND: Final = struct.Struct(">qq")


def unit_key(key: QueueKey, queue_offset: int) -> bytes:
    """Return the key of a unit."""
    return queue_prefix(key) + struct.pack(">q", queue_offset)


def queue_prefix(key: QueueKey) -> bytes:
    """Return what the keys of all units of a queue begin with."""
    return _topic_prefix(key.topic) + struct.pack(">i", key.queue_id) + _MARK


def parse_unit_key(data: bytes) -> tuple[QueueKey, int] | None:
    """Return the queue and the queue offset of a unit's key; None if it is no such key."""
    parsed = _parse_topic(data)
    if parsed is None:
        return None
    topic, rest = parsed
    if len(rest) != 13 or rest[4:5] != _MARK:
        return None
    queue_id, queue_offset = struct.unpack(">ixq", rest)
    return _queue(topic, queue_id, queue_offset)


def parse_end(key: bytes, value: bytes) -> tuple[QueueKey, int] | None:
    """Return a queue and the queue offset behind its last unit; None for any other entry."""
    parsed = _parse_topic(key)
    if parsed is None or parsed[0] == ROCKSDB_OFFSET_TOPIC or len(value) != _BOUND.size:
        return None
    topic, rest = parsed
    if len(rest) != 8 or rest[:4] != _MAX + _MARK:
        return None
    _, queue_offset = _BOUND.unpack(value)
    return _queue(topic, int.from_bytes(rest[4:], "big", signed=True), queue_offset + 1)


def unit_of(value: bytes) -> bytes | None:
    """Return the 20 bytes that a queue file has for a unit; None if the value is no unit."""
    if len(value) != _UNIT_VALUE_SIZE:
        return None
    return value[: layout.UNIT_SIZE]


def _topic_prefix(topic: str) -> bytes:
    name = topic.encode()
    return struct.pack(">i", len(name)) + _MARK + name + _MARK


def _parse_topic(data: bytes) -> tuple[str, bytes] | None:
    """Return the topic that a key begins with, and the rest of the key."""
    if len(data) < 6 or data[4:5] != _MARK:
        return None
    end = 5 + int.from_bytes(data[:4], "big", signed=True)
    if end < 5 or data[end : end + 1] != _MARK:
        return None
    try:
        return data[5:end].decode(), data[end + 1 :]
    except UnicodeDecodeError:
        return None


def _queue(topic: str, queue_id: int, queue_offset: int) -> tuple[QueueKey, int] | None:
    if queue_id < 0 or not 0 <= queue_offset <= layout.MAX_I64:
        return None
    return QueueKey(topic, queue_id), queue_offset
