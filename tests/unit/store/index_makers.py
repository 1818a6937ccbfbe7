"""Records with keys for index tests, a disk that can be full, and a checkpoint that remembers."""

from contextlib import suppress

import numpy as np

from rocketlake.errors import DiskFullError, FileAccessError
from rocketlake.files.ops import PosixFileOps
from rocketlake.format import index
from rocketlake.format.dispatch import KeyEntries
from rocketlake.format.index import ENTRY_DTYPE, IndexHeader
from rocketlake.format.record import Envelope, encode, scan, seal
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.index.index_file import IndexShape
from support.manual_clock import ManualClock

SMALL = IndexShape(slots=7, entries=5)
START = 1_700_000_000_000
HOST = Endpoint(bytes([10, 0, 0, 2]), 10911)


class KeyLog:
    """A log in memory, to be indexed as dispatch would do it.

    `keys` has the keys of each record, `offsets` where it begins, `times` its store time.
    """

    def __init__(self):
        self.data = bytearray()
        self.offsets = []
        self.times = []
        self.keys = []

    def add(self, *keys, unique=None, time=None, topic="T", sys_flag=0):
        """Append a record; a second later than the one before unless told otherwise."""
        if time is None:
            time = self.times[-1] + 1000 if self.times else START
        properties = {} if unique is None else {"UNIQ_KEY": unique}
        envelope = Envelope(
            queue_id=0, born_timestamp=0, born_host=HOST, store_host=HOST, sys_flag=sys_flag
        )
        message = Message(topic=topic, body=b"", properties=properties, keys=list(keys))
        record = encode(message, envelope)
        seal(record, 0, len(self.offsets), len(self.data), time, False)
        self.offsets.append(len(self.data))
        self.times.append(time)
        self.keys.append([*([unique] if unique else []), *keys])
        self.data += record
        return self

    def columns(self, first=0, last=None):
        """Scan some of the records, by their numbers."""
        end = len(self.data) if last is None else self.offsets[last]
        start = self.offsets[first] if first < len(self.offsets) else len(self.data)
        return scan(bytes(self.data), start, end, checks=0).columns

    def number_from(self, offset):
        """Return the number of the first record at or behind an offset."""
        return sum(each < offset for each in self.offsets)

    def index(self, files, first=0, last=None, batch=None):
        """Put records into index files, all at once or so many at a time."""
        last = len(self.offsets) if last is None else last
        for start in range(first, last, batch or max(last - first, 1)):
            stop = min(start + (batch or last), last)
            columns = self.columns(start, stop if stop < len(self.offsets) else None)
            files.put(columns)

    def wanted(self, key):
        """Return the offsets of the records with a key, newest first."""
        return [
            offset
            for offset, keys in zip(reversed(self.offsets), reversed(self.keys), strict=True)
            if key in keys
        ]

    @property
    def entry_count(self):
        return sum(len(keys) for keys in self.keys)


def entries(*numbers, hash_=7, time=START):
    """Entries at these offsets, a second apart."""
    count = len(numbers)
    return KeyEntries(
        np.full(count, hash_, np.int32),
        np.array(numbers, np.int64),
        time + 1000 * np.arange(count, dtype=np.int64),
    )


class FakeCheckpoint:
    """Remembers what it was told before each flush."""

    def __init__(self, index_timestamp=0, on_flush=None):
        self.index_timestamp = index_timestamp
        self.flushed = []
        self._on_flush = on_flush

    def flush(self):
        self.flushed.append(self.index_timestamp)
        if self._on_flush is not None:
            self._on_flush()


class SmallDisk(PosixFileOps):
    """A disk that runs full: `allocations` more are possible. Notes what is done, in `calls`."""

    def __init__(self, allocations=1 << 30):
        self.allocations = allocations
        self.calls = []
        self.faults = {}

    def note(self, name, path):
        self.calls.append((name, path.name))
        if name in self.faults:
            raise self.faults[name]

    def names(self, *kinds):
        return [call for call in self.calls if call[0] in kinds]

    def create(self, path, size, *, is_sparse=False):
        assert is_sparse, "an index file takes its space as it needs it"
        self.note("create", path)
        return _Writer(self, path, super().create(path, size, is_sparse=True))

    def open_writer(self, path):
        self.note("open", path)
        return _Writer(self, path, super().open_writer(path))

    def sync_dir(self, path):
        self.note("sync_dir", path)
        super().sync_dir(path)


class _Writer:
    def __init__(self, disk, path, inner):
        self._disk = disk
        self._path = path
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def allocate(self, position, size):
        if self._disk.allocations <= 0:
            raise DiskFullError(str(self._path), size, 0)
        self._disk.allocations -= 1
        self._disk.calls.append(("allocate", position, size))
        self._inner.allocate(position, size)

    def sync(self):
        self._disk.note("sync", self._path)
        self._inner.sync()


class IndexBench:
    """An index in a directory, with everything it needs; four keys a file."""

    def __init__(self, path, shape=SMALL):
        self.disk = SmallDisk()
        self.clock = ManualClock()
        self.path = path / "index"
        self.shape = shape
        self.checkpoint = FakeCheckpoint()
        self.open_sets = []
        self.files = self.open()

    def open(self, *, is_clean=True):
        files = IndexFileSet(self.disk, self.clock, self.path, self.shape)
        files.load(is_clean=is_clean, checkpoint=self.checkpoint)
        self.open_sets.append(files)
        return files

    def names(self):
        return sorted(path.name for path in self.path.iterdir()) if self.path.exists() else []

    def headers(self):
        return [IndexHeader.decode((self.path / name).read_bytes()) for name in self.names()]

    def entries(self):
        """Hash and offset of all entries, in their order, and each file's share."""
        found = []
        for name, header in zip(self.names(), self.headers(), strict=True):
            data = (self.path / name).read_bytes()
            at = index.entry_position(self.shape.slots, 1)
            part = np.frombuffer(data, ENTRY_DTYPE, header.entries_used, at)
            found.append(list(zip(part["key_hash"], part["physical_offset"], strict=True)))
        return found

    def offsets_put(self):
        return [int(offset) for part in self.entries() for _, offset in part]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for files in self.open_sets:
            with suppress(FileAccessError):  # where the test has made it fail
                files.close()


def found(files, key, begin=0, end=1 << 62, topic="T"):
    """The offsets that index files have for a key."""
    return list(files.offsets(topic, key, begin, end))
