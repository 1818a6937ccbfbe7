"""Queues in small files, units as columns, and a log that knows the times of its records."""

import numpy as np

from rocketlake.errors import DiskFullError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.model.queues import QueueKey
from rocketlake.store.queue.queue_set import ConsumeQueueSet, QueueShape
from support.manual_clock import ManualClock

KEY = QueueKey("T", 0)
PER_FILE = 10
SIZE = 100  # of each record, unless a test says otherwise
SHAPE = {"file_size": PER_FILE * 20, "batch_file_size": PER_FILE * 46, "ext_file_size": 1024}


class CountingOps(PosixFileOps):
    """Counts what is opened and flushed; has no space for files, or more in them, if told so."""

    def __init__(self):
        self.opened = 0
        self.synced = 0
        self.is_full = False
        self.room = 1 << 60  # how many more files can be made

    def open_reader(self, path):
        self.opened += 1
        return super().open_reader(path)

    def open_writer(self, path):
        self.opened += 1
        return CountingWriter(self, path, super().open_writer(path))

    def create(self, path, size, *, is_sparse=False):
        if self.room <= 0:
            raise DiskFullError(str(path), size, 0)
        self.room -= 1
        return super().create(path, size, is_sparse=is_sparse)


class CountingWriter:
    """An open file that tells its CountingOps what is done to it."""

    def __init__(self, ops, path, inner):
        self._ops = ops
        self._path = path
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def allocate(self, position, size):
        if self._ops.is_full:
            raise DiskFullError(str(self._path), size, 0)
        self._inner.allocate(position, size)

    def sync(self):
        self._ops.synced += 1
        self._inner.sync()


class TimesOfRecords:
    """A log whose record at an offset has the time that a test gave it."""

    def __init__(self, times, min_offset=0):
        self.times = times
        self.min_offset = min_offset

    def store_timestamp_at(self, physical_offset):
        return self.times.get(physical_offset, -1)


def open_set(root, ops=None, clock=None, **shape):
    directory = StoreDir.make(ops or PosixFileOps(), root)
    return ConsumeQueueSet(directory, clock or ManualClock(), QueueShape(**(SHAPE | shape)))


def reopen(root, log_min=None, *, is_clean=False, **shape):
    """Open the queues as a start of the store does."""
    found = open_set(root, **shape)
    found.load()
    found.recover(is_clean=is_clean)
    if log_min is not None:
        found.correct_min(log_min)
    return found


def columns(*units):
    """Units from tuples of physical offset, size and tags code; the last two may be left out."""
    rows = [(*unit, *(SIZE, 0)[len(unit) - 1 :]) for unit in units]
    return np.array(rows, UNIT_DTYPE)


def run(first, count, begin=None):
    """Units and numbers of consecutive messages; message n lies at 100 n unless told otherwise."""
    begin = first * SIZE if begin is None else begin
    places = columns(*((begin + SIZE * index,) for index in range(count)))
    places["tags_code"] = np.arange(first, first + count)
    return places, np.arange(first, first + count)


def put(queue, first, count, begin=None):
    queue.put(*run(first, count, begin))


def offsets(queue):
    """The physical offset of each unit from the lowest to the highest queue offset."""
    found = []
    number = queue.min_offset
    while number < queue.max_offset:
        units = queue.units(number, 1000)
        assert len(units), f"nothing at {number} of {queue}"
        found += units["physical_offset"].tolist()
        number += len(units)
    return found


def bounds(queue):
    return queue.min_offset, queue.max_offset, queue.max_physical_offset


def files(root, family="consumequeue", key=KEY):
    """The bytes of a queue's files by their base offsets."""
    place = root / family / key.topic / str(key.queue_id)
    found = sorted(place.iterdir()) if place.exists() else []
    return {int(path.name): path.read_bytes() for path in found}


def encoded(first, count, begin=None):
    units, _ = run(first, count, begin)
    return units.tobytes()
