"""Reads of one queue through Reader, warm: as messages that are looked at, and as columns."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import corpus
from measure import Figure, best_of

from rocketlake.clock import SystemClock
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.slice import Slice
from rocketlake.filters.message_filter import MessageFilter, make_filter
from rocketlake.format import layout, record
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.hashes import tags_code
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest
from rocketlake.store.options import StoreOptions
from rocketlake.store.read.reader import Reader
from rocketlake.store.stats.store_stats import StoreStats

COUNT = 1_000_000


class _Queue:
    """Units in files of the usual size; the bounds are plain attributes, as in a store."""

    is_batch = False
    min_offset = 0

    def __init__(self, files: MappedFileQueue, max_offset: int) -> None:
        self.files = files
        self.max_offset = max_offset

    def slice(self, queue_offset: int) -> Slice | None:
        position = queue_offset * layout.UNIT_SIZE
        file = self.files.find(position)
        return None if file is None else file.slice(position - file.base_offset)

    def roll_next(self, queue_offset: int) -> int:
        return queue_offset + 1


class _Log:
    """Files of a log."""

    def __init__(self, files: MappedFileQueue) -> None:
        self.files = files

    @property
    def max_offset(self) -> int:
        return self.files.max_offset


class _Queues(dict[QueueKey, _Queue]):
    """Queues by key."""

    find = dict.get


def reads() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        reader = _reader(Path(directory))
        runs = {
            "read.get_32": (1.2, lambda: _get(reader, 32)),
            "read.get_32_tagged": (None, lambda: _get(reader, 32, make_filter("TagA"))),
            "read.get_1024": (None, lambda: _get(reader, 1024)),
            "read.columns_32": (None, lambda: _columns(reader, 32)),
            "read.columns_4096": (5.0, lambda: _columns(reader, 4096)),
        }
        for (name, (wanted, _)), seconds in zip(
            runs.items(), best_of(5, *(run for _, run in runs.values())), strict=True
        ):
            yield Figure(name, COUNT / seconds / 1e6, wanted, "M messages/s")


def _get(reader: Reader, batch: int, wanted: MessageFilter | None = None) -> None:
    offset = found = 0
    while offset < COUNT:
        request = GetRequest(topic=corpus.TOPIC, queue_id=0, offset=offset, max_messages=batch)
        result = reader.get(request, wanted)
        for message in result.messages:
            _ = message.topic, message.body, message.keys, message.queue_offset
        found += len(result.messages)
        offset = result.next_offset
    assert found == COUNT, found


def _columns(reader: Reader, batch: int) -> None:
    offset = found = 0
    while offset < COUNT:
        request = GetRequest(topic=corpus.TOPIC, queue_id=0, offset=offset, max_messages=batch)
        result = reader.columns(request)
        _ = result.columns["queue_offset"]
        found += len(result.columns)
        offset = result.next_offset
    assert found == COUNT, found


def _reader(root: Path) -> Reader:
    ops, clock = PosixFileOps(), SystemClock()
    maker = MappedFileMaker(ops, clock)
    log = MappedFileQueue(ops, clock, maker, root / "log", file_size=1 << 30)
    units = MappedFileQueue(ops, clock, maker, root / "queue", file_size=6_000_000)
    data = corpus.log_bytes(COUNT, 100)
    file = log.last_file(create_at=0)
    assert file is not None
    file.append(data)
    file.store_timestamp = corpus.STORED  # this process has just written it
    code, position = tags_code("TagA"), 0
    while position < len(data):
        found = record.scan(data, position, checks=0)
        for at, size in zip(found.columns["position"], found.columns["size"], strict=True):
            part = units.last_file(create_at=0)
            assert part is not None
            part.append(QueueUnit(int(at), int(size), code).encode())
        position = found.position
    queues = _Queues({QueueKey(corpus.TOPIC, 0): _Queue(units, COUNT)})
    options = StoreOptions.complete(StoreOptions.choose(None))
    return Reader(_Log(log), queues, options, StoreStats(0))


WORKLOADS = {"read": reads}
