"""Directories of new files whose names are not on the disk yet."""

import shutil

from rocketlake.files.file_traits import FilePlace, FileTraits
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.files.ops import PosixFileOps
from support.manual_clock import ManualClock

UNDURABLE = FileTraits(is_durable=False)


class Noting(PosixFileOps):
    """Notes which directories are synced; `before` runs first."""

    def __init__(self):
        super().__init__()
        self.synced = []
        self.before = lambda path: None

    def sync_dir(self, path):
        self.before(path)
        super().sync_dir(path)
        self.synced.append(path)


def make(maker, path):
    return maker.create(FilePlace(path, 0, 4096))


def test_directory_that_is_removed_and_made_again_during_its_sync(tmp_path):
    ops = Noting()
    maker = MappedFileMaker(ops, ManualClock(), UNDURABLE)
    queue = tmp_path / "T" / "0"
    make(maker, queue / "00000000000000000000")
    shutil.rmtree(tmp_path / "T")
    made = []

    def make_again(path):
        if path == queue and not made:
            made.append(path)
            try:
                PosixFileOps().sync_dir(path)  # what the kernel is asked for: it is not there
            finally:
                make(maker, queue / "00000000000000000000")

    ops.before = make_again
    maker.sync_names()
    ops.before = lambda path: None
    ops.synced.clear()
    maker.sync_names()
    assert queue in ops.synced, "the names of the directory that was made again are forgotten"


def test_names_are_noted_once_they_are_there(tmp_path):
    ops = Noting()
    maker = MappedFileMaker(ops, ManualClock(), UNDURABLE)
    queue = tmp_path / "T" / "0"
    mkdirs = ops.mkdirs

    def flushed_meanwhile(path, **options):
        maker.sync_names()  # by the thread that flushes queues
        mkdirs(path, **options)

    ops.mkdirs = flushed_meanwhile
    make(maker, queue / "00000000000000000000")
    ops.synced.clear()
    maker.sync_names()
    assert ops.synced == [tmp_path, tmp_path / "T", queue]
