"""The parts a reader stands on, small and real: a log and queues on mapped files.

parts = ReadParts(tmp_path, log_file_size=1000)
parts.put("T", 0, b"one", tags="a")
parts.reader().get(GetRequest(topic="T", queue_id=0, offset=0))
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from rocketlake.files.file_traits import QUEUE_FILES
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.slice import Slice
from rocketlake.format import layout, record
from rocketlake.format.queue_unit import (
    BatchUnit,
    ExtUnit,
    QueueUnit,
    decode_batch_units,
    decode_units,
)
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.hashes import tags_code
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import PULL_SIZE_MAX, ColumnsResult, GetRequest, GetResult
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.queue_set import ConsumeQueueSet
from rocketlake.store.read.raw_reader import RawReader
from rocketlake.store.read.reader import Reader
from rocketlake.store.stats.store_stats import StoreStats
from support.manual_clock import ManualClock

BEGIN_MS = 1_700_000_000_000
HOST = Endpoint.parse("10.0.0.2:10911")


class SimpleLog:
    """A commit log that only grows."""

    def __init__(self, files: MappedFileQueue) -> None:
        self.files = files

    @property
    def min_offset(self) -> int:
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        return self.files.max_offset

    def append(self, message: Message, queue_id: int, queue_offset: int, **more: int) -> QueueUnit:
        envelope = record.Envelope(
            queue_id=queue_id,
            born_timestamp=BEGIN_MS,
            born_host=HOST,
            store_host=HOST,
            sys_flag=more.get("sys_flag", 0),
        )
        data = record.encode(message, envelope)
        file = self.last()
        if len(data) + layout.BLANK_HEADER_SIZE > file.append_room:
            self.roll()
            file = self.last()
        offset = file.base_offset + file.wrote
        record.seal(data, 0, queue_offset, offset, more["stored"], with_crc=False)
        assert file.append(data)
        file.store_timestamp = more["stored"]
        return QueueUnit(offset, len(data), tags_code(message.tags))

    def last(self) -> MappedFile:
        file = self.files.last_file(create_at=0)
        assert file is not None
        return file

    def roll(self) -> None:
        """End the last file."""
        room = self.last().append_room
        magic = layout.MAGIC_BLANK.to_bytes(4, "big", signed=True)
        self.last().fill_to_end(room.to_bytes(4, "big") + magic)

    def flip(self, physical_offset: int) -> None:
        """Change one byte."""
        file = self.files.find(physical_offset)
        assert file is not None
        file.buffer[physical_offset - file.base_offset] ^= 0xFF

    def expire(self, count: int = 1) -> None:
        """Delete the oldest files."""
        for file in self.files.files[:count]:
            file.destroy(0)
        self.files.files = self.files.files[count:]

    def message_at(self, offset: int, size: int | None = None) -> record.StoredMessage | None:
        file = self.files.find(offset)
        held = None if file is None else file.slice(offset - file.base_offset, size)
        if held is None:
            return None
        with held:
            found = record.scan(
                held.view, base_offset=offset, checks=record.Check(9), rows_max=1
            ).columns
            return found.message(0) if len(found) else None

    def store_timestamp_at(self, offset: int) -> int:
        found = self.message_at(offset)
        return -1 if found is None else found.store_timestamp


class SimpleQueue:
    """A queue whose offsets begin with 0; `min_offset` is what the test says."""

    def __init__(self, key: QueueKey, files: MappedFileQueue, *, is_batch: bool = False) -> None:
        self.key = key
        self.files = files
        self.is_batch = is_batch
        self.unit_size = layout.BATCH_UNIT_SIZE if is_batch else layout.UNIT_SIZE
        self.min_offset = 0
        self.next_offset = 0
        self.bases: list[int] = []
        self.ext: dict[int, ExtUnit] = {}

    @property
    def max_offset(self) -> int:
        return self.next_offset

    def append(self, unit: bytes, count: int = 1) -> None:
        file = self.files.last_file(create_at=0)
        assert file is not None
        assert file.append(unit)
        self.bases.append(self.next_offset)
        self.next_offset += count

    def slice(self, queue_offset: int) -> Slice | None:
        index = queue_offset
        if self.is_batch:
            index = max(i for i, base in enumerate(self.bases) if base <= queue_offset)
        file = self.files.find(index * self.unit_size)
        return None if file is None else file.slice(index * self.unit_size - file.base_offset)

    def units(self, queue_offset: int, count: int) -> npt.NDArray[np.void]:
        held = self.slice(queue_offset)
        data = b""
        if held is not None:
            with held:
                data = bytes(held.view[: count * self.unit_size])
        return decode_batch_units(data) if self.is_batch else decode_units(data)

    def roll_next(self, queue_offset: int) -> int:
        per_file = self.files.file_size // self.unit_size
        return queue_offset + per_file - queue_offset % per_file

    def ext_unit(self, address: int) -> ExtUnit | None:
        return self.ext.get(address)


class SimpleQueues(dict[QueueKey, SimpleQueue]):
    """Queues by key."""

    def find(self, key: QueueKey) -> SimpleQueue | None:
        return self.get(key)


class ReadParts:
    """A log and queues, and readers of them."""

    def __init__(
        self, root: Path, *, log_file_size: int = 4096, queue_file_units: int = 20
    ) -> None:
        self.clock = ManualClock()
        self.stats = StoreStats(0)
        self.queues = SimpleQueues()
        self.units: list[QueueUnit] = []
        self._root = root
        self._ops = PosixFileOps()
        self._queue_file_units = queue_file_units
        self._stored = BEGIN_MS
        maker = MappedFileMaker(self._ops, self.clock)
        self.log = SimpleLog(
            MappedFileQueue(
                self._ops, self.clock, maker, root / "commitlog", file_size=log_file_size
            )
        )

    def queue(self, topic: str, queue_id: int = 0, *, is_batch: bool = False) -> SimpleQueue:
        """Return a queue, made if there is none."""
        key = QueueKey(topic, queue_id)
        if key not in self.queues:
            unit_size = layout.BATCH_UNIT_SIZE if is_batch else layout.UNIT_SIZE
            files = MappedFileQueue(
                *(self._ops, self.clock, MappedFileMaker(self._ops, self.clock, QUEUE_FILES)),
                self._root / "queues" / topic / str(queue_id),
                file_size=self._queue_file_units * unit_size,
            )
            self.queues[key] = SimpleQueue(key, files, is_batch=is_batch)
        return self.queues[key]

    def put(
        self,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"body",
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        code: int | None = None,
        light: Sequence[str] = (),
    ) -> QueueUnit:
        """Append a message, and its unit to its queue and to light queues."""
        self._stored += 1000
        message = Message(topic=topic, body=body, tags=tags, keys=keys, properties=properties or {})
        queue = self.queue(topic, queue_id)
        unit = self.log.append(message, queue_id, queue.max_offset, stored=self._stored)
        if code is not None:
            unit = QueueUnit(unit.physical_offset, unit.size, code)
        for each in (queue, *(self.queue(name) for name in light)):
            each.append(unit.encode())
        self.units.append(unit)
        return unit

    def put_inner_batch(self, count: int, topic: str = "B", tags: str | None = None) -> BatchUnit:
        """Append one record that stands for so many messages of a batch queue."""
        self._stored += 1000
        queue = self.queue(topic, is_batch=True)
        base = queue.max_offset
        properties = {"INNER_NUM": str(count), "INNER_BASE": str(base)}
        message = Message(topic=topic, body=b"batch", tags=tags, properties=properties)
        plain = self.log.append(message, 0, base, stored=self._stored, sys_flag=0xC0)
        unit = BatchUnit(
            physical_offset=plain.physical_offset,
            size=plain.size,
            tags_code=plain.tags_code,
            store_timestamp=self._stored,
            base_queue_offset=base,
            batch_size=count,
        )
        queue.append(unit.encode(), count)
        return unit

    def advance(self, ms: int) -> None:
        """Let time pass; each message takes another second."""
        self._stored += ms

    @property
    def _faces(self) -> tuple[CommitLog, ConsumeQueueSet]:
        """Log and queues as what they stand for: they have the members that readers use."""
        return cast(CommitLog, self.log), cast(ConsumeQueueSet, self.queues)

    def reader(self, *, memory_size: int | None = None, **options: object) -> Reader:
        """Return a reader of it all."""
        chosen = StoreOptions.complete(StoreOptions.choose(None, **options))
        return Reader(*self._faces, chosen, self.stats, memory_size=memory_size)

    def raw_reader(self, *, memory_size: int | None = None, **options: object) -> RawReader:
        """Return a reader that returns bytes."""
        chosen = StoreOptions.complete(StoreOptions.choose(None, **options))
        return RawReader(*self._faces, chosen, self.stats, memory_size=memory_size)


def ten_messages(root: Path) -> ReadParts:
    """Return ten messages of one size, in two files of the log and one of the queue."""
    parts = ReadParts(root)
    for number in range(10):
        parts.put(body=b"%04d" % number * 90)
    assert len(parts.log.files.files) == 2
    return parts


def ask(
    offset: int,
    max_messages: int = 32,
    *,
    topic: str = "T",
    max_bytes: int = PULL_SIZE_MAX,
    is_limited: bool = False,
) -> GetRequest:
    """Ask for messages of queue 0."""
    return GetRequest(
        topic=topic,
        queue_id=0,
        offset=offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        is_limited=is_limited,
    )


def numbers(result: GetResult | ColumnsResult) -> list[int]:
    """Return the queue offsets of what was found, objects or columns."""
    if isinstance(result, ColumnsResult):
        found: list[int] = result.columns["queue_offset"].tolist()
        return found
    return [message.queue_offset for message in result.messages]
