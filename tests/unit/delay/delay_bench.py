"""A real store on a directory of its own, with delayed delivery that a test runs by hand."""

from rocketlake.delay.services import DelayServices
from rocketlake.delay.store_access import DelayStore
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import AppendRequest
from rocketlake.store.assembly import Base
from rocketlake.store.disk.log_dirs import named_paths, open_dirs
from rocketlake.store.message_store import MessageStore
from rocketlake.store.options import StoreOptions

SMALL = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "mapped_file_size_timer_log": 5200,
}
BORN = Endpoint.parse("192.168.0.1:1234")


class Catalog:
    """Every topic has four plain queues."""

    def is_batch_queue(self, topic):
        return False

    def read_queue_count(self, topic):
        return 4

    def write_queue_count(self, topic):
        return 4


class RealBench:
    """Opens, kills and closes a store; `pass_ms` lets time pass and delivers what is due."""

    def __init__(self, path, clock, **options):
        self.path = path
        self.clock = clock
        self.options = StoreOptions.from_source(None, preset=SMALL, **options)
        self.open()

    def open(self):
        chosen = self.options
        paths = named_paths(chosen.store_path_commit_log, None, self.path)
        ops = PosixFileOps()
        directory, paths = open_dirs(ops, self.path, paths)
        self.store = MessageStore(Base(directory, paths, chosen, self.clock, Catalog())).start()
        door = DelayStore(
            self.store.put, self.store.sync, queues=self.store.queues, log=self.store.log
        )
        self.delay = DelayServices(door, self.path, chosen, ops=ops, clock=self.clock)
        self.store.add_hook(self.delay.hook)
        self.store.add_listener(self.delay)
        if self.delay.timer is not None:
            self.delay.timer.load()

    def close(self):
        self.delay.close()
        self.store.close()

    def reopen(self):
        self.close()
        self.open()

    def put(self, body=b"x", topic="T", queue_id=0, **fields):
        self.store.catch_up()
        return self.store.put(
            AppendRequest(
                message=Message(topic=topic, body=body, **fields),
                queue_id=queue_id,
                born_timestamp=self.clock.now_ms(),
                born_host=BORN,
            )
        )

    def pass_ms(self, count):
        self.store.catch_up()
        self.clock.advance_ms(count)
        self.delay.run_once()
        self.store.catch_up()
        self.delay.run_once()

    def messages(self, topic="T", queue_id=0):
        self.store.catch_up()
        key = QueueKey(topic, queue_id)
        start, end = self.store.queue_bounds(key)
        found = []
        while start < end:
            for offset, size, _ in self.store.queue_units(key, start, end - start).tolist():
                found.append(self.store.message_at(offset, size))
                start += 1
        return found

    def bodies(self, topic="T", queue_id=0):
        return [message.body for message in self.messages(topic, queue_id)]
