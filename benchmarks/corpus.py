"""Logs and stores to measure on, made with the format's own functions."""

import random
from pathlib import Path

from rocketlake.format import names, queue_unit, record
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.hashes import tags_code
from rocketlake.model.message import Message

TOPIC = "BenchTopic"
STORED = 1_700_000_000_000
HOST = Endpoint.parse("10.0.0.2:10911")


def envelope(queue_id: int = 0) -> record.Envelope:
    return record.Envelope(
        queue_id=queue_id,
        born_timestamp=STORED,
        born_host=Endpoint.parse("192.168.0.1:1234"),
        store_host=HOST,
    )


def messages(count: int, body_size: int, *, with_client_properties: bool = False) -> list[Message]:
    rng = random.Random(7)
    return [
        Message(
            topic=TOPIC,
            body=rng.randbytes(body_size),
            tags="TagA",
            keys=[f"key-{i}"],
            properties=client_properties(i) if with_client_properties else {},
        )
        for i in range(count)
    ]


def client_properties(number: int) -> dict[str, str]:
    """Return what a client and a broker of RocketMQ write beside tag and keys."""
    return {
        "MSG_REGION": "DefaultRegion",
        "UNIQ_KEY": f"7F00000100002A9F{number:016X}",
        "CLUSTER": "DefaultCluster",
        "WAIT": "true",
        "TRACE_ON": "true",
    }


def log_bytes(count: int, body_size: int, *, with_client_properties: bool = False) -> bytes:
    """Return `count` records behind each other, each sealed for its own place."""
    some = messages(1000, body_size, with_client_properties=with_client_properties)
    encoded, sizes = record.encode_batch(some, TOPIC, envelope())
    out = bytearray(bytes(encoded) * (count // 1000))
    position = 0
    for i in range(count):
        record.seal(out, position, i, position, STORED + i // 100, False)
        position += sizes[i % 1000]
    return bytes(out)


def store(root: Path, count: int, body_size: int, queues: int = 8) -> None:
    """Write a store of one topic whose messages go round the queues; one log file, no index."""
    units: list[bytearray] = [bytearray() for _ in range(queues)]
    batch = messages(1000, body_size)
    encoded = [record.encode_batch(batch, TOPIC, envelope(queue)) for queue in range(queues)]
    log = bytearray()
    code = tags_code("TagA")
    position = 0
    for i in range(count):
        queue, row = i % queues, i % 1000
        data, sizes = encoded[queue]
        start = sum(sizes[:row]) if row == 0 else start + sizes[row - 1]  # noqa: F821 - row 0 sets it
        log += data[start : start + sizes[row]]
        units[queue] += queue_unit.QueueUnit(position, sizes[row], code).encode()
        position += sizes[row]
    position = 0
    for i in range(count):
        position += record.seal(log, position, i // queues, position, STORED + i // 100, False)
    _write(root / names.COMMIT_LOG / names.offset_name(0), bytes(log) + bytes(4096))
    file_size = 300_000 * 20
    for queue, data in enumerate(units):
        place = root / names.CONSUME_QUEUE / TOPIC / str(queue)
        for base in range(0, len(data), file_size):
            part = bytes(data[base : base + file_size]).ljust(file_size, b"\0")
            _write(place / names.offset_name(base), part)
    page = Checkpoint(STORED, STORED, STORED)
    _write(root / names.CHECKPOINT, page.encode())


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
