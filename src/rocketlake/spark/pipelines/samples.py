"""Samples the bodies of a topic: whether they are JSON objects, and their schema."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from rocketlake.format.record import StoredMessage
from rocketlake.spark.pipelines.json_schema import Fields, join, shape_of
from rocketlake.store.offline import OfflineStore

_PER_QUEUE: Final = 200
_QUEUES_MAX: Final = 16
_JSON_SHARE: Final = 0.5


class TopicSample(Struct, frozen=True):
    """A sample of a topic; without `schema`, its bodies are not JSON."""

    topic: str
    looked_at: int
    objects: int
    schema: Fields | None


def sample_topic(store: OfflineStore, topic: str) -> TopicSample:
    """Sample the oldest and the newest messages of each queue of a topic."""
    looked, objects = 0, 0
    schema = Fields({})
    for message in _messages(store, topic):
        looked += 1
        value = _object(message)
        if value is not None:
            objects += 1
            joined = join(schema, shape_of(value))
            assert isinstance(joined, Fields)
            schema = joined
    is_json = objects > _JSON_SHARE * looked and bool(schema.fields)
    return TopicSample(topic, looked, objects, schema if is_json else None)


def _messages(store: OfflineStore, topic: str) -> Iterator[StoredMessage]:
    keys = [key for key in store.queues if key.topic == topic][:_QUEUES_MAX]
    for key in keys:
        queue = store.queues[key]
        first, end = queue.min_offset, queue.max_offset
        middle = max(first + _PER_QUEUE // 2, end - _PER_QUEUE // 2)
        for begin, stop in ((first, min(first + _PER_QUEUE // 2, end)), (middle, end)):
            for batch in store.messages(key, begin, stop):
                yield from batch.columns.messages()


def _object(message: StoredMessage) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(message.body)
    except (ValueError, RecursionError):  # also what msgspec and bad compression raise
        return None
    return value if isinstance(value, dict) else None
