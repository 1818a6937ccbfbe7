"""A small store of every kind of message, and the name of each of its bytes."""

import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

import rocketlake
from rocketlake import Message
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import layout
from rocketlake.format.record import Check, StoredMessage, scan
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.offsets import DelayOffsets
from support.manual_clock import ManualClock

SIZES = {
    "mapped_file_size_commit_log": 640,
    "mapped_file_size_consume_queue": 100,
    "max_hash_slot_num": 5,
    "max_index_num": 12,
    "timer_wheel_enable": False,
}
UNUSED_SHOWN = 8
"""So many bytes of a stretch that nothing uses stand for all of it."""

_FIXED = (
    ("total size", 4),
    ("magic", 4),
    ("body checksum", 4),
    ("queue id", 4),
    ("flag", 4),
    ("queue offset", 8),
    ("physical offset", 8),
    ("sys flag", 4),
    ("born time", 8),
    ("born host", 8),
    ("store time", 8),
    ("store host", 8),
    ("reconsume times", 4),
    ("prepared transaction offset", 8),
    ("body length", 4),
)
_UNIT = (("physical offset", 8), ("size", 4), ("tags code", 8))
_HEADER = (
    ("begin time", 8),
    ("end time", 8),
    ("begin offset", 8),
    ("end offset", 8),
    ("slots used", 4),
    ("entries used", 4),
)
_ENTRY = (("key hash", 4), ("physical offset", 8), ("time", 4), ("entry before", 4))
_CHECKPOINT = (
    ("log time", 8),
    ("queue time", 8),
    ("index time", 8),
    ("primary flushed offset", 8),
    ("confirmed offset", 8),
    ("queue physical offset", 8),
)


class Byte(Struct, frozen=True):
    """One byte of a store: where it is, what it is part of."""

    path: Path
    position: int
    name: str

    @property
    def mask(self) -> int:
        """The bit that is flipped."""
        return 1 << self.position % 8


def write(root: Path, *, with_crc: bool) -> None:
    """Make the store: two files of the log, queues, keys, a batch, a delayed message, progress."""
    clock = ManualClock()
    options = {**SIZES, "enabled_append_prop_crc": with_crc}
    with rocketlake.open_store(root, clock=clock, **options) as store:
        store.create_topic("T", 2)
        for number in range(2):
            tags, keys = ("red", "blue")[number], [f"key-{number}"]
            body = f"message {number}".encode()
            put(store, clock, Message(topic="T", body=body, tags=tags, keys=keys), number)
        batch = [Message(topic="T", body=f"part {n}".encode(), keys=["b"]) for n in range(2)]
        store.put_batch(batch, queue_id=0)
        clock.advance_ms(5)
        put(store, clock, Message(topic="T", body=b"later", delay_level=18, keys=["late"]), 1)
        plain = Message(topic="T", body=b"properties", properties={"colour": "green"})
        put(store, clock, plain, 1)
        put(store, clock, Message(topic="T", body=b"the next file", keys=["key-9"]), 0)
        consumer = store.consumer("g", "T", timeout=0)
        assert len([next(consumer), next(consumer), next(consumer)]) == 3
        consumer.commit()
    write_delay_offsets(root, clock)


def write_delay_offsets(root: Path, clock: ManualClock) -> None:
    """Write the progress of delay levels, which a store of so short a life may have or not."""
    for path in (root / "config").glob("delayOffset.json*"):
        path.unlink()
    book = DelayOffsets.load(TableLocation(PosixFileOps(), clock, root / "config"))
    book.set(18, 0)
    book.persist()


def put(store: rocketlake.Store, clock: ManualClock, message: Message, queue_id: int) -> None:
    assert store.put(message, queue_id).is_ok
    clock.advance_ms(5)


def bytes_of(root: Path) -> list[Byte]:
    """Every byte of the store, but of `lock`, copies of tables, and most of what nothing uses."""
    found: list[Byte] = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        data = path.read_bytes()
        family = path.relative_to(root).parts[0]
        match family:
            case "commitlog":
                names = _log_names(data, int(path.name))
            case "consumequeue":
                names = _in_order("unit", data, layout.UNIT_SIZE, _UNIT)
            case "index":
                names = _index_names(data)
            case "checkpoint":
                names = _named("checkpoint", _CHECKPOINT)
            case "config" if path.suffix == ".json":
                names = iter([(path.name, len(data))])
            case _:
                continue
        found += _spread(path, len(data), names)
    return found


def record_bounds(data: bytes, base_offset: int) -> list[int]:
    """Where records begin and end in a file of the log."""
    columns = scan(data, 0, len(data), base_offset=base_offset, checks=Check.OFFSET).columns
    ends = (columns["position"] + columns["size"]).tolist()
    return [0, *ends]


def _spread(path: Path, size: int, names: Iterator[tuple[str, int]]) -> Iterator[Byte]:
    position = 0
    for name, count in names:
        shown = UNUSED_SHOWN if name.endswith("unused") else count
        for at in range(min(shown, count)):
            yield Byte(path, position + at, name)
        position += count
    rest = f"{path.name}: unused"
    for at in range(position, min(position + UNUSED_SHOWN, size)):
        yield Byte(path, at, rest)


def _named(prefix: str, fields: tuple[tuple[str, int], ...]) -> Iterator[tuple[str, int]]:
    return ((f"{prefix}: {name}", size) for name, size in fields)


def _log_names(data: bytes, base_offset: int) -> Iterator[tuple[str, int]]:
    position = 0
    columns = scan(data, 0, len(data), base_offset=base_offset, checks=Check.OFFSET).columns
    for message in columns.messages():
        yield from _record_names(message, data[position : position + message.store_size])
        position += message.store_size
    (rest,) = struct.unpack(">i", data[position : position + 4])
    if rest:
        yield "blank record: size", 4
        yield "blank record: magic", 4
        position += layout.BLANK_HEADER_SIZE
    if position < len(data):
        yield "log: unused", len(data) - position


def _record_names(message: StoredMessage, data: bytes) -> Iterator[tuple[str, int]]:
    yield from _named("record", _FIXED)
    yield "record: body", len(message.stored_body)
    yield "record: topic length", 1
    yield "record: topic", len(message.topic.encode())
    yield "record: properties length", 2
    start = layout.RECORD_MIN_SIZE + len(message.stored_body) + len(message.topic)
    for part in data[start:].split(bytes([layout.PROPERTY_END])):
        if part:
            name = part.split(bytes([layout.PROPERTY_NAME_END]))[0].decode()
            yield f"record: property {name}", len(part) + 1


def _in_order(
    prefix: str, data: bytes, size: int, fields: tuple[tuple[str, int], ...]
) -> Iterator[tuple[str, int]]:
    for start in range(0, len(data), size):
        if any(data[start : start + size]):
            yield from _named(prefix, fields)
        else:
            yield f"{prefix}: unused", size


def _index_names(data: bytes) -> Iterator[tuple[str, int]]:
    yield from _named("index header", _HEADER)
    slots = int(SIZES["max_hash_slot_num"]) * layout.INDEX_SLOT_SIZE
    yield "index slot", slots
    first = layout.INDEX_HEADER_SIZE + slots
    yield from _in_order("index entry", data[first:], layout.INDEX_ENTRY_SIZE, _ENTRY)
