"""Queues, index and dispatch as far as recovery knows them, and a store to recover.

The log is real: files, bytes, syncs and cuts. Queues and index are lists, so that a test sees what
they were told; they survive a "restart" as long as the bench is used.
"""

from rocketlake.errors import FlushFailedError
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue, QueuePaths
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.format.record import Check
from rocketlake.model.queues import QueueKey
from rocketlake.store.checkpoint import StoreCheckpoint
from rocketlake.store.disk.damage import Damage
from rocketlake.store.disk.index import is_indexed
from rocketlake.store.disk.log import Chunk, LogView, Readers
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.dispatch.placement import PlacementRules, Records, place
from rocketlake.store.inventory import QueueBounds
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.unit_kind import BATCHED, PLAIN
from rocketlake.store.recovery.parts import RecoveryParts
from rocketlake.store.recovery.recovery import Recovery
from support.manual_clock import ManualClock

T = QueueKey("T", 0)
SIZE = 1000


class FakeQueue:
    """Units as (queue offset, count, physical offset, size), in order."""

    def __init__(self, first_offset=0):
        self.first_offset = first_offset
        self.units = []

    @property
    def max_offset(self):
        return self.units[-1][0] + self.units[-1][1] if self.units else self.first_offset

    @property
    def max_physical_offset(self):
        return self.units[-1][2] + self.units[-1][3] if self.units else -1

    def put(self, offset, count, physical, size):
        """Add a unit as the reference does: what is there is passed over, a gap is closed up."""
        if physical + size <= self.max_physical_offset or offset < self.max_offset:
            return
        if not self.units:
            self.first_offset = offset
        at = self.max_offset if self.units and count == 1 else offset
        self.units.append((at, count, physical, size))


class FakeQueues:
    """Queues by their keys; `calls` has what was asked of them."""

    def __init__(self):
        self.queues = {}
        self.calls = []

    @classmethod
    def read(cls, root):
        """Take the units of the files of a store."""
        self = cls()
        ops = PosixFileOps()
        directory = StoreDir(ops, root)
        readers = Readers(ops)
        for family, kind in ((names.CONSUME_QUEUE, PLAIN), (names.BATCH_CONSUME_QUEUE, BATCHED)):
            for found in directory.queue_dirs(family):
                files = [file for file in directory.offset_files(found.path) if file.size]
                view = QueueView(QueueKey(found.topic, found.queue_id), kind, readers, files)
                view.load(Damage())
                queue = self.queues[view.key] = FakeQueue(view.first_index)
                index = view.first_index
                while len(units := view.units(index, 1 << 20)):
                    rows = ("queue_offset", "batch_size", "physical_offset", "size")
                    queue.units += [tuple(int(unit[row]) for row in rows) for unit in units]
                    index += len(units)
        readers.close()
        return self

    @property
    def max_physical_offset(self):
        return max((queue.max_physical_offset for queue in self.queues.values()), default=-1)

    def recover(self, workers=1, *, is_clean=False):
        self.calls.append(("recover", workers, is_clean))
        return self.max_physical_offset

    def items(self):
        return list(self.queues.items())

    def first_units(self):
        return []

    def distrust(self, log_offset, firsts):
        assert not firsts
        self.calls.append(("distrust", log_offset))
        self._cut(log_offset)

    def truncate(self, log_offset):
        self.calls.append(("truncate", log_offset))
        self._cut(log_offset)

    def _cut(self, log_offset):
        for queue in self.queues.values():
            queue.units = [unit for unit in queue.units if unit[2] < log_offset]

    def correct_min(self, log_min):
        self.calls.append(("correct_min", log_min))

    def flush(self, least_pages):
        self.calls.append(("flush", least_pages))
        return True

    def destroy(self):
        self.calls.append(("destroy",))
        self.queues.clear()

    def bounds(self):
        return {
            key: QueueBounds(queue.first_offset, queue.max_offset, queue.max_physical_offset)
            for key, queue in self.queues.items()
        }

    def broken(self):
        return []

    def reset(self, keys):
        for key in keys:
            self.queues[key] = FakeQueue()

    def drop_earlier(self, deleted):
        assert not deleted.ends
        return []

    def fill_gap(self, key, number, physical_offset):
        self.calls.append(("fill_gap", key, number, physical_offset))

    def put(self, columns):
        for block in place(Records(columns), PlacementRules()).blocks():
            numbers, counts = (column.tolist() for column in block.batch_numbers())
            places, sizes = (block.column(name).tolist() for name in ("physical_offset", "size"))
            queue = self.queues.setdefault(block.key, FakeQueue(numbers[0]))
            for unit in zip(numbers, counts, places, sizes, strict=True):
                queue.put(*unit)


class FakeIndex:
    """The offsets of records whose keys are indexed."""

    def __init__(self, offsets=(), rebuild_from=None):
        self.offsets = list(offsets)
        self.rebuild_from = rebuild_from
        self.calls = []

    @property
    def end_physical_offset(self):
        return max(self.offsets, default=0)

    def truncate(self, log_offset):
        self.calls.append(("truncate", log_offset))
        self.offsets = [offset for offset in self.offsets if offset < log_offset]

    def flush(self):
        self.calls.append(("flush",))

    def destroy(self):
        self.calls.append(("destroy",))
        self.offsets.clear()

    def put(self, message):
        if message.physical_offset not in self.offsets:
            self.offsets.append(message.physical_offset)


class RecoveryBench:
    """A store directory with queues and an index, recovered as often as a test wants."""

    def __init__(self, root, options=None, *, index=None, log_dirs=(), ops=None):
        self.root = root
        self.ops = ops or PosixFileOps()
        self.options = options or StoreOptions(mapped_file_size_commit_log=SIZE)
        self.log_dirs = log_dirs
        self.clock = ManualClock()
        self.queues = FakeQueues.read(root)
        self.index = index
        self.checkpoint = StoreCheckpoint(self.ops, root)
        self.progress = []
        self.dispatched = []
        self.topics = None
        self.files = None

    def recover(self, *, is_clean=None):
        """Open the log, recover, close the log; the mark of a running store says how it ended."""
        directory = StoreDir(self.ops, self.root, self.log_dirs)
        maker = MappedFileMaker(self.ops, self.clock)
        size = self.options.mapped_file_size_commit_log
        self.files = MappedFileQueue(
            self.ops, self.clock, maker, QueuePaths(directory.log_dirs), file_size=size
        )
        self.checkpoint.load()
        if is_clean is None:
            is_clean = not directory.exists(names.ABORT)
        try:
            self.files.load()
            parts = RecoveryParts(
                directory=directory,
                options=self.options,
                log_files=self.files,
                queues=self.queues,
                index=self.index,
                checkpoint=self.checkpoint,
                dispatch_range=self.dispatch_range,
                clock=self.clock,
                has_topic=lambda topic: self.topics is None or topic in self.topics,
                on_progress=lambda done, total: self.progress.append((done, total)),
            )
            return Recovery(parts).run(is_clean=is_clean)
        finally:
            self.positions = (
                self.files.max_offset,
                self.files.flushed_where,
                self.files.committed_where,
            )
            self.bases = [file.base_offset for file in self.files.files]
            self.files.close()

    def dispatch_range(self, start, end):
        """Read the log anew, as it is on the disk now, and put what is there."""
        self.dispatched.append((start, end))
        readers = Readers(self.ops)
        directory = StoreDir(self.ops, self.root, self.log_dirs)
        view = LogView(directory, readers, Damage())
        view.refresh()
        try:
            for step in view.walk(start, end, checks=Check.OFFSET):
                if not isinstance(step, Chunk):
                    return step.physical_offset
                self.queues.put(step.columns)
                for message in step.columns.messages():
                    self.put(message)
        finally:
            readers.close()
        return end

    def put(self, message):
        if self.index is not None and is_indexed(message) and (message.unique_key or message.keys):
            self.index.put(message)

    def offsets_of(self, topic="T", queue_id=0):
        """The physical offsets that a queue's units point to."""
        return [unit[2] for unit in self.queues.queues[QueueKey(topic, queue_id)].units]

    def log_bytes(self):
        """The log's files by name."""
        places = self.log_dirs or (self.root / names.COMMIT_LOG,)
        paths = sorted(path for place in places for path in place.iterdir())
        return {path.name: path.read_bytes() for path in paths}


def bench_of(builder, **rest):
    return RecoveryBench(builder.write(), **rest)


def options(**rest):
    return StoreOptions(mapped_file_size_commit_log=SIZE, **rest)


def places(builder, topic="T", queue_id=0):
    return [
        place.physical_offset
        for place in builder.placed
        if (place.topic, place.queue_id) == (topic, queue_id)
    ]


class WatchedOps(PosixFileOps):
    """Notes which files are read, written and synced; fails where `fault` says."""

    def __init__(self):
        self.read_paths = set()
        self.events = []
        self.fault = None

    def open_reader(self, path):
        self.read_paths.add(path.name)
        return super().open_reader(path)

    def open_writer(self, path):
        return WatchedWriter(self, path, super().open_writer(path))

    def unlink(self, path):
        self.events.append(("unlink", path.name))
        return super().unlink(path)


class WatchedWriter:
    def __init__(self, ops, path, inner):
        self._ops = ops
        self._path = path
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def sync(self):
        if self._ops.fault == "sync":
            raise FlushFailedError(str(self._path), "flush failed")
        self._ops.events.append(("sync", self._path.name))
        self._inner.sync()

    def zero(self, position, size):
        self._ops.events.append(("zero", self._path.name, position))
        return self._inner.zero(position, size)


def name(base):
    return f"{base:020d}"


def keyed(builder, count):
    for number in range(count):
        builder.record(keys=[f"k{number}"])
    return builder
