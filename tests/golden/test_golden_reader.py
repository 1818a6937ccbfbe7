"""A reader over the files that RocketMQ wrote returns the messages that RocketMQ reads."""

import pytest

from rocketlake.clock import SystemClock
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue, QueuePaths
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import names
from rocketlake.store.api import GetRequest, GetStatus
from rocketlake.store.options import StoreOptions
from rocketlake.store.read.reader import Reader
from rocketlake.store.stats.store_stats import StoreStats


def mapped(*directories, file_size):
    ops, clock = PosixFileOps(), SystemClock()
    files = MappedFileQueue(
        ops, clock, MappedFileMaker(ops, clock), QueuePaths(directories), file_size=file_size
    )
    files.load()
    return files


class Log:
    """The files of a log, and where recovery says that it ends."""

    def __init__(self, view, golden):
        directories = golden.log_dirs or (golden.root / names.COMMIT_LOG,)
        self.files = mapped(*directories, file_size=view.log.file_size)
        self.min_offset, self.max_offset = view.min_offset, view.max_offset


class Queue:
    """The files of a queue, and the bounds that recovery leaves."""

    def __init__(self, queue, root):
        family = names.BATCH_CONSUME_QUEUE if queue.kind.is_batch else names.CONSUME_QUEUE
        place = root / family / queue.key.topic / str(queue.key.queue_id)
        self.files = mapped(place, file_size=queue.file_size)
        self.is_batch = queue.kind.is_batch
        self.min_offset, self.max_offset = queue.min_offset, queue.max_offset
        self._view = queue

    def slice(self, queue_offset):
        position = self._view.index_of(queue_offset) * self._view.kind.unit_size
        file = self.files.find(position)
        return None if file is None else file.slice(position - file.base_offset)

    def roll_next(self, queue_offset):
        return queue_offset + 1


class Queues:
    """Queues by key."""

    def __init__(self, view, root):
        self._queues = {key: Queue(queue, root) for key, queue in view.queues.items()}

    def find(self, key):
        return self._queues.get(key)


@pytest.fixture
def reader(opened):
    view = opened.view
    if not view.traits.is_clean or any(len(queue.owed) for queue in view.queues.values()):
        pytest.skip("a store that would be recovered first")
    options = StoreOptions.complete(StoreOptions.choose(None))
    queues = Queues(view, opened.root)
    return Reader(Log(view, opened.golden), queues, options, StoreStats(0))


def read_all(read, key, view):
    """Read a queue from its begin to its end, in small steps."""
    offset = view.queues[key].min_offset
    while True:
        request = GetRequest(topic=key.topic, queue_id=key.queue_id, offset=offset, max_messages=3)
        result = read(request)
        if result.status is GetStatus.FOUND:
            yield result
        elif result.next_offset == offset:
            return
        offset = result.next_offset


def test_every_message_of_every_queue_is_read(opened, reader):
    assert opened.messages or opened.case.missing, "the case shows no message"
    for key in opened.view.queues:
        wanted = [
            (place["queue_offset"], message.physical_offset, message.stored_body)
            for of, place, message in opened.messages
            if of == key
        ]
        found = [
            (message.queue_offset, message.physical_offset, message.stored_body)
            for result in read_all(reader.get, key, opened.view)
            for message in result.messages
        ]
        assert found == wanted
        columns = [
            number
            for result in read_all(reader.columns, key, opened.view)
            for number in result.columns["queue_offset"].tolist()
        ]
        assert columns == [int(number) for number, _, _ in wanted]


def test_numbers_of_a_light_queue_are_those_rocketmq_shows(open_case):
    opened = open_case("v5-lmq")
    options = StoreOptions.complete(StoreOptions.choose(None))
    log, queues = Log(opened.view, opened.golden), Queues(opened.view, opened.root)
    reader = Reader(log, queues, options, StoreStats(0))
    lines = [line for line in opened.case.messages if "cqOffset" in line]
    assert lines
    shown = {(line["physicalOffset"], line["cqOffset"]) for line in lines}
    found = {
        (message.physical_offset, message.queue_offset)
        for key in opened.view.queues
        for result in read_all(reader.get, key, opened.view)
        for message in result.messages
    }
    assert shown <= found
