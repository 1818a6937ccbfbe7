"""A store on a directory of its own, for tests of its parts."""

from rocketlake.clock import SystemClock
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store.api import AppendRequest, BatchRequest, GetRequest
from support import engine

SMALL = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 400,
    "mapper_file_size_batch_consume_queue": 460,
    "mapped_file_size_consume_queue_ext": 2048,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
    "max_message_size": 8 << 10,
}
BORN = Endpoint.parse("192.168.0.1:1234")


def open_engine(path, *, clock=None, **rest):
    """Return a started store of small files, whose time is the machine's."""
    return engine.open_engine(path, clock or SystemClock(), **{**SMALL, **rest})


def request(topic="T", body=b"body", queue_id=0, *, fields=None, **message):
    """Return a request to append a message; `fields` are those beside it."""
    return AppendRequest(
        **{
            "message": Message(topic=topic, body=body, **message),
            "queue_id": queue_id,
            "born_timestamp": 1_600_000_000_000,
            "born_host": BORN,
            **(fields or {}),
        }
    )


def batch(bodies, topic="T", queue_id=0, *, fields=None, **message):
    """Return a request to append messages together."""
    return BatchRequest(
        **{
            "messages": [Message(topic=topic, body=body, **message) for body in bodies],
            "topic": topic,
            "queue_id": queue_id,
            "born_timestamp": 1_600_000_000_000,
            "born_host": BORN,
            **(fields or {}),
        }
    )


def read(store, topic="T", queue_id=0, offset=0):
    """Return the messages of a queue from an offset on."""
    found = []
    while True:
        result = store.get(
            GetRequest(topic=topic, queue_id=queue_id, offset=offset, max_messages=10_000)
        )
        if not result.is_found:
            return found
        found += result.messages
        offset = result.next_offset
