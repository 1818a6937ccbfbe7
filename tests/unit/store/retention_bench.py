"""A store whose disk is as full as a test says, and whose files are as old."""

import os
from contextlib import suppress
from datetime import UTC, datetime

from rocketlake.errors import DiskFullError, FileAccessError, StorePoisonedError
from rocketlake.files.ops import DiskUsage, PosixFileOps
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import GetRequest
from rocketlake.store.retention.service import Retention
from support.engine import open_engine, request
from support.manual_clock import ManualClock

FILE_SIZE = 4096
BODY = bytes(900)  # four records in a file
PER_FILE = 4
HOUR_MS = 3_600_000
GIB = 1 << 30


class Disk(PosixFileOps):
    """Files of the machine on a disk that is as full as one says."""

    def __init__(self):
        self.usages = {}
        self.usage = usage(10)
        self.is_full = False
        self.keeps_names = False

    def disk_usage(self, path):
        found = self.usages.get(path.name, self.usage)
        if found is None:
            raise FileAccessError(str(path), "cannot tell how full its disk is")
        return found

    def create(self, path, size, *, is_sparse=False):
        if self.is_full:
            raise DiskFullError(str(path), size, 123)
        return super().create(path, size, is_sparse=is_sparse)

    def unlink(self, path):
        if self.keeps_names and path.parent.name == "commitlog":
            raise FileAccessError(str(path), "cannot remove: Read-only file system")
        return super().unlink(path)


def usage(percent, total=100 * GIB):
    """A disk of which so many per cent are in use."""
    used = total * percent // 100
    return DiskUsage(total, used, total - used)


class Bench:
    """A store, its clock and its disk; nothing runs by itself but dispatch and flush."""

    def __init__(self, root, **options):
        self.root = root
        self.clock = ManualClock()
        self.disk = Disk()
        self.options = {
            "disk_ratio_enable": True,
            "delete_when": self.other_hour(),
            "delete_commit_log_files_interval": 0,
            "delete_consume_queue_files_interval": 0,
            **options,
        }
        self.store = self.open()
        self.sent = 0

    def open(self, **more):
        return open_engine(
            self.root, self.clock, ops=self.disk, batch_topics=("B",), **{**self.options, **more}
        )

    def reopen(self, **more):
        self.store = self.open(**more)
        return self.store

    # --- time ------------------------------------------------------------------------------------

    def hour(self, ahead=0):
        now_s = self.clock.now_ms() // 1000 + ahead * 3600
        return f"{datetime.fromtimestamp(now_s, UTC).astimezone().hour:02d}"

    def other_hour(self):
        return self.hour(ahead=12)

    def age(self, hours, count=None):
        """Let the oldest log files, or all, have been changed so many hours ago."""
        changed_s = (self.clock.now_ms() - hours * HOUR_MS) / 1000
        for file in self.store.log.files.files[:count]:
            os.utime(file.path, (changed_s, changed_s))

    def round(self, count=1):
        """Let rounds come; return how many log files they delete."""
        before = self.store.retention.gauges().deleted.files
        for _ in range(count):
            self.clock.advance_ms(60_000)
            self.store.retention.run_once()
        return self.store.retention.gauges().deleted.files - before

    # --- messages --------------------------------------------------------------------------------

    def fill(self, files, topic="T", queue_id=0):
        """Put messages until so many files more are full, and another one is begun."""
        for _ in range(files * PER_FILE + 1):
            receipt = self.put(topic, queue_id)
            assert receipt.is_ok, receipt
        self.settle()

    def put(self, topic="T", queue_id=0):
        self.sent += 1
        return self.store.put(request(topic, queue_id, BODY, keys=[f"k{self.sent - 1}"]))

    def settle(self):
        """Have everything dispatched and on the disk: only then may it go."""
        self.store.catch_up()
        self.store.flush()

    def bounds(self, topic="T", queue_id=0):
        return self.store.queue_bounds(QueueKey(topic, queue_id))

    def read(self, topic="T", queue_id=0, offset=0, count=10_000):
        return self.store.get(
            GetRequest(topic=topic, queue_id=queue_id, offset=offset, max_messages=count)
        )

    @property
    def names(self):
        return [path.name for path in sorted((self.root / "commitlog").iterdir())]

    @property
    def file_count(self):
        return len(self.store.log.files.files)


def benches(root, monkeypatch):
    """Give a function that makes stores whose retention runs only when a test lets it."""
    monkeypatch.setattr(Retention, "start", Retention._set_times)
    made = []

    def make(**options):
        made.append(Bench(root / "store", **options))
        return made[-1]

    yield make
    for bench in made:
        with suppress(StorePoisonedError):  # which a test may have done
            bench.store.close()
