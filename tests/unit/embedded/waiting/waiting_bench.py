"""A store, one reader that waits, and one message at a time: the bench of `test_waiting`."""

import asyncio
import itertools
import threading
from queue import Empty, SimpleQueue
from time import monotonic

from rocketlake import Message
from rocketlake.clock import SystemClock
from rocketlake.embedded.aio import AsyncStore
from rocketlake.embedded.open_store import OpenSettings, open_with_parts
from rocketlake.files.ops import PosixFileOps
from rocketlake.store.offline import OfflineStore
from rocketlake.store.offline.follow import Follower
from rocketlake.store.options import StoreOptions

WAIT_S = 5.0
"""A message that has not come by then waits for the next one."""
BOUND_S = 0.2
"""How long after it may be seen a message comes, on a machine that is not busy."""
LEVEL_MS = 30
PRECISION_MS = 100
SYNC_S = 0.02
NUMBER = "n"

SMALL = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 6000,
    "max_hash_slot_num": 100,
    "max_index_num": 2000,
    "default_topic_queue_nums": 1,
    "timer_precision_ms": PRECISION_MS,
    "commit_interval_commit_log": 20,
    "commit_commit_log_thorough_interval": 20,
}
MODES = {
    "async": {},
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "write buffers": {"transient_store_pool_enable": True, "transient_store_pool_size": 2},
    "sync 4.9": {"flush_disk_type": "SYNC_FLUSH", "compat_version": "4.9"},
    "sync read uncommitted": {"flush_disk_type": "SYNC_FLUSH", "read_un_committed": True},
}


class _SlowWriter:
    """A file whose `sync` takes its time."""

    def __init__(self, writer):
        self._writer = writer

    def __getattr__(self, name):
        return getattr(self._writer, name)

    def sync(self):
        threading.Event().wait(SYNC_S)
        self._writer.sync()


class SlowOps(PosixFileOps):
    """A disk that needs 20 ms for every sync."""

    def open_writer(self, path):
        return _SlowWriter(super().open_writer(path))

    def create(self, path, size, *, is_sparse=False):
        return _SlowWriter(super().create(path, size, is_sparse=is_sparse))


DISKS = {"disk": PosixFileOps, "slow disk": SlowOps}


def until(is_true):
    """Return when a condition holds that no event tells of."""
    deadline = monotonic() + WAIT_S
    while not is_true():
        assert monotonic() < deadline, "the store does not come to rest"
        threading.Event().wait(0.001)


class Bench:
    """An open store and its topics; messages are known by a property with their number."""

    def __init__(self, path, mode, disk):
        self.path = path
        choice = StoreOptions.choose(None, **{**SMALL, **MODES[mode]})
        opening = OpenSettings(ops=DISKS[disk](), clock=SystemClock())
        self.store, self.engine, parts = open_with_parts(path, choice, opening)
        self.groups = parts.groups
        self.dispatcher = parts.core.dispatcher
        self._numbers = itertools.count(1)

    def new_topic(self):
        name = f"T{next(self._numbers)}"
        self.store.create_topic(name, 1)
        return name

    def put(self, way, topic, **fields):
        """Put a message; return its number and the answer."""
        number = str(next(self._numbers))

        def make(**more):
            return Message(topic=topic, body=b"body", properties={NUMBER: number}, **fields, **more)

        return number, WAYS[way](self.store, make)

    def rest(self):
        """Wait until dispatch has nothing to do, and sleeps."""
        until(lambda: self.dispatcher.is_idle and not self.dispatcher.behind_bytes)


WAYS = {
    "put": lambda store, make: store.put(make()),
    "put without waiting": lambda store, make: store.put(make(wait=False)),
    "put_batch": lambda store, make: store.put_batch([make()]),
    "put_async": lambda store, make: store.put_async(make()),
    "asyncio put": lambda store, make: asyncio.run(AsyncStore(store).put(make())),
}


# --- readers ------------------------------------------------------------------------------------


class _Reader:
    """Waits for messages of a topic, in a thread of its own."""

    def __init__(self, bench, topic):
        self.bench, self.topic = bench, topic
        self.seen = SimpleQueue()

    def __enter__(self):
        self._consumer = self.bench.store.consumer(f"g-{self.topic}", self.topic)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._consumer.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the reader was not woken by its end"

    def rest(self):
        """Wait until the reader waits."""
        assignment = self.bench.groups.find(f"g-{self.topic}", self.topic)
        until(lambda: assignment.is_awaited)

    def get(self, number):
        try:
            found = self.seen.get(timeout=WAIT_S)
        except Empty:
            raise AssertionError(f"nothing came within {WAIT_S} s") from None
        assert found == number


class ConsumerReader(_Reader):
    def _run(self):
        for message in self._consumer:
            self.seen.put(message.properties[NUMBER])


class AsyncioReader(_Reader):
    def __enter__(self):
        store = AsyncStore(self.bench.store)
        self._async_consumer = store.consumer(f"g-{self.topic}", self.topic)
        self._consumer = self._async_consumer.consumer
        self._thread = threading.Thread(target=lambda: asyncio.run(self._iterate()))
        self._thread.start()
        return self

    async def _iterate(self):
        async for message in self._async_consumer:
            self.seen.put(message.properties[NUMBER])


class ListenerReader(_Reader):
    def __enter__(self):
        self.bench.dispatcher.listeners.append(self)
        return self

    def __exit__(self, *_):
        self.bench.dispatcher.listeners.remove(self)

    def rest(self):
        pass

    def arrived(self, arrivals):
        for arrival in arrivals:
            if arrival.topic == self.topic:
                self.seen.put(arrival.properties[NUMBER])


class TailReader(_Reader):
    """What `rocketlake tail` does: it looks at the files."""

    def __enter__(self):
        self._view = OfflineStore(self.bench.path)
        self._follower = Follower(self._view, self._view.max_offset)
        return self

    def __exit__(self, *_):
        self._view.close()

    def rest(self):
        pass

    def get(self, number):
        found = []

        def look():
            for chunk in self._follower.poll():
                messages = chunk.columns.messages()
                found.extend(m.properties[NUMBER] for m in messages if m.topic == self.topic)
            return found

        until(look)
        assert found == [number]


READERS = {
    "consumer": ConsumerReader,
    "asyncio consumer": AsyncioReader,
    "listener": ListenerReader,
    "tail": TailReader,
}
