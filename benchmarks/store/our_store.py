"""Our store, driven as the driver drives RocketMQ's: same sizes, counts, files and warm-up."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import rocketlake
from rocketlake.format import layout, record
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message

TOPIC = "BenchTopic"
FILE_SIZE = 1 << 30
QUEUES = 64
WARM_UP = 100_000
WARM_UP_SYNC = 2_000

# The reference's sizes: an embedded store has smaller files unless it is told otherwise.
REFERENCE_SIZES = {
    "mapped_file_size_consume_queue": layout.DEFAULT_QUEUE_FILE_SIZE,
    "max_hash_slot_num": layout.DEFAULT_INDEX_SLOTS,
    "max_index_num": layout.DEFAULT_INDEX_ENTRIES,
}

Store = Any


class Load(NamedTuple):
    """So many messages of a body for a queue of a topic."""

    body: bytes
    count: int
    topic: str = TOPIC
    queue_id: int = 0


Writer = Callable[[Store, Load], None]


def engine_of(store: Store) -> Any:
    """Return what a server works with."""
    return store._parts.core  # noqa: SLF001 - programs have no use for it


@contextmanager
def opened(folder: Path, *, file_size: int = FILE_SIZE, **options: object) -> Iterator[Store]:
    """A new store, or one that is there, with the reference's file sizes."""
    sizes = {**REFERENCE_SIZES, "mapped_file_size_commit_log": file_size}
    with rocketlake.open_store(folder, **sizes, **options) as store:
        for topic in (TOPIC, "WarmUp"):
            if store.topic(topic) is None:
                store.create_topic(topic, queues=QUEUES)
        yield store


def body_of(size: int) -> bytes:
    return random.Random(42).randbytes(size)


def record_of(body: bytes) -> bytes:
    """The bytes that one of the messages is in the log."""
    envelope = record.Envelope(
        queue_id=0,
        born_timestamp=1,
        born_host=Endpoint.parse("192.168.0.1:1234"),
        store_host=Endpoint.parse("10.0.0.2:10911"),
    )
    return bytes(record.encode(Message(topic=TOPIC, body=body, tags="TagA"), envelope))


# --- writers: the message is built in the loop, as RocketMQ's driver builds it ------------------


def put(store: Store, load: Load) -> None:
    body, count, topic, queue_id = load
    for _ in range(count):
        store.put(Message(topic=topic, body=body, tags="TagA"), queue_id=queue_id)


def put_batches(store: Store, load: Load) -> None:
    body, count, topic, queue_id = load
    for _ in range(count // 100):
        batch = [Message(topic=topic, body=body, tags="TagA") for _ in range(100)]
        store.put_batch(batch, queue_id=queue_id)


def put_async_64(store: Store, load: Load) -> None:
    """Put from one thread with at most 64 answers outstanding."""
    body, count, topic, queue_id = load
    waiting: deque[Any] = deque()
    for _ in range(count):
        message = Message(topic=topic, body=body, tags="TagA")
        waiting.append(store.put_async(message, queue_id=queue_id))
        if len(waiting) >= 64:
            waiting.popleft().result()
    for answer in waiting:
        answer.result()


# --- runs ---------------------------------------------------------------------------------------


def per_second(store: Store, writer: Writer, *, body: bytes, count: int, threads: int = 1) -> float:
    """Write with each thread to a queue of its own, after a warm-up to another topic."""
    is_sync = store.options.flush_disk_type == "SYNC_FLUSH"
    warm_up = min(count, WARM_UP_SYNC if is_sync else WARM_UP)
    _seconds(store, writer, Load(body, warm_up, "WarmUp"), threads)
    return count / _seconds(store, writer, Load(body, count), threads)


def _seconds(store: Store, writer: Writer, load: Load, threads: int) -> float:
    if threads == 1:
        begin = time.perf_counter()
        writer(store, load)
        return time.perf_counter() - begin
    gate = threading.Barrier(threads + 1)

    def run(queue_id: int) -> None:
        gate.wait()
        writer(store, load._replace(count=load.count // threads, queue_id=queue_id))

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begin
