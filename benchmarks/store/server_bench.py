"""What a server does with the store: a client's fields into the log, the log's bytes to a client.

Both beside what a program does with objects, in one run on one store each: messages a second of one
core, which is CPU time of the thread that puts or reads.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import Figure, Result, medians, scaled
from store import get_bench, our_store

from rocketlake.model.message import Message
from rocketlake.store.api import GetRequest, SendFields
from rocketlake.store.put.server_put import ServerProperties

ROUNDS = 5
COUNTS = {100: 400_000, 1024: 200_000}
BATCH = 32
HOST = bytes([192, 168, 0, 1, 0, 0, 4, 210])
PROPERTIES = {
    "UNIQ_KEY": "C0A8000100002A9F0000000000000001",
    "KEYS": "order-1001",
    "TAGS": "paid",
    "region": "eu-west-1",
}
TEXT = "".join(f"{name}\x01{value}\x02" for name, value in PROPERTIES.items())
ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}


def put_objects(store: Any, body: bytes, count: int) -> None:
    """Put messages as a program does that decodes them."""
    put, topic = store.put, our_store.TOPIC
    for _ in range(count):
        put(Message(topic=topic, body=body, properties={**PROPERTIES, **ADDED}), 0)


def put_fields(store: Any, body: bytes, count: int) -> None:
    """Put the same messages from their clients' fields, as an event loop does."""
    put, topic = our_store.engine_of(store).non_blocking.put_fields, our_store.TOPIC
    for _ in range(count):
        put(SendFields(topic, 0, body, TEXT, HOST, 1_700_000_000_000))


def _rate(write: Callable[[Any, bytes, int], None], body: bytes, count: int) -> Callable[[], float]:
    def run() -> float:
        with tempfile.TemporaryDirectory() as place, our_store.opened(Path(place)) as store:
            engine = our_store.engine_of(store)
            engine.edit_properties(ServerProperties(added=ADDED))
            put_objects(store, body, min(count, 20_000))  # the queue is there, and warm
            begin = time.thread_time()
            write(store, body, count)
            rate = count / (time.thread_time() - begin)
            if engine.non_blocking.handed_over_count > count // 100:
                raise AssertionError("another thread has put many of the messages")
            return rate

    return run


def _puts(name: str, size: int) -> Callable[[], Iterator[Result]]:
    def run() -> Iterator[Result]:
        count, body = scaled(COUNTS[size], least=1000), our_store.body_of(size)
        sides = {"fields": _rate(put_fields, body, count), "put": _rate(put_objects, body, count)}
        rates = medians(ROUNDS, sides)
        detail = f"{rates['fields']:,.0f}/s of one core, objects {rates['put']:,.0f}/s"
        yield Figure(name, rates["fields"] / rates["put"], 1.5, "x put", detail=detail)

    return run


def read_bytes(store: Any, count: int) -> float:
    """Read the same messages as bytes, as an answer to a client has them."""
    engine, topic = our_store.engine_of(store), our_store.TOPIC
    offset = seen = 0
    begin = time.thread_time()
    while seen < count:
        request = GetRequest(
            topic=topic,
            queue_id=0,
            offset=offset,
            max_messages=BATCH,
            is_limited=True,
            catches_up=False,
        )
        result = engine.get_raw(request)
        seen += result.count
        offset = result.next_offset
        result.close()
    return seen / (time.thread_time() - begin)


def _reads(name: str, size: int) -> Callable[[], Iterator[Result]]:
    def run() -> Iterator[Result]:
        count = scaled(COUNTS[size], least=1000) // 100 * 100
        with tempfile.TemporaryDirectory() as place, our_store.opened(Path(place)) as store:
            our_store.put_batches(store, our_store.Load(our_store.body_of(size), count))
            our_store.engine_of(store).catch_up()
            sides = {
                "bytes": lambda: read_bytes(store, count),
                "objects": lambda: get_bench.objects_per_second(store, count, time.thread_time),
            }
            rates = medians(ROUNDS, sides)
        detail = f"{rates['bytes']:,.0f}/s of one core, objects {rates['objects']:,.0f}/s"
        yield Figure(name, rates["bytes"] / rates["objects"], 3.0, "x objects", detail=detail)

    return run


WORKLOADS = {
    "server.fields_100b": _puts("server.fields_100b", 100),
    "server.fields_1k": _puts("server.fields_1k", 1024),
    "server.raw_32_100b": _reads("server.raw_32_100b", 100),
    "server.raw_32_1k": _reads("server.raw_32_1k", 1024),
}
