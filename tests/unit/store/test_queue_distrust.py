"""Queues after an unclean stop: what was not flushed may be anything, and is not relied on."""

from queue_makers import CountingOps, bounds, files, offsets, open_set, put

from rocketlake.files.ops import PosixFileOps
from rocketlake.model.queues import QueueKey

KEY = QueueKey("T", 0)
PER_FILE = 10


class NotedOps(PosixFileOps):
    """Keeps the directories that were synced."""

    def __init__(self):
        self.synced = []

    def sync_dir(self, path):
        self.synced.append(path)
        super().sync_dir(path)


def filled(root, count=45):
    queues = open_set(root, file_size=PER_FILE * 20)
    put(queues.get_or_create(KEY), 0, count)
    queues.close()
    return root / "consumequeue" / "T" / "0"


def distrusted(root, log_offset):
    queues = open_set(root, file_size=PER_FILE * 20)
    queues.load(is_clean=False)
    queues.recover()
    queues.distrust(log_offset)
    return queues


def test_units_from_an_offset_on_go(tmp_path):
    filled(tmp_path)
    queues = distrusted(tmp_path, 2350)
    assert bounds(queues.find(KEY)) == (0, 24, 2400)
    assert offsets(queues.find(KEY)) == [100 * number for number in range(24)]
    assert list(files(tmp_path)) == [0, 200, 400]
    queues.close()


def test_hole_before_the_last_three_files_goes_with_them(tmp_path):
    """Units of a page that was lost are zeros; the end of the queue is as good as ever."""
    place = filled(tmp_path, 60)
    with (place / f"{200:020d}").open("r+b") as file:
        file.seek(4 * 20)
        file.write(bytes(3 * 20))
    queues = distrusted(tmp_path, 1200)
    assert bounds(queues.find(KEY)) == (0, 12, 1200)
    put(queues.find(KEY), 12, 48)
    assert offsets(queues.find(KEY)) == [100 * number for number in range(60)]
    queues.close()


def test_queue_of_which_the_first_file_lost_its_name(tmp_path):
    place = filled(tmp_path)
    (place / f"{0:020d}").unlink()
    queues = distrusted(tmp_path, 0)
    put(queues.get_or_create(KEY), 0, 45)
    queues.flush(0)
    assert offsets(queues.find(KEY)) == [100 * number for number in range(45)]
    queues.close()


def test_file_that_lost_its_size_goes_with_those_behind_it(tmp_path):
    place = filled(tmp_path)
    (place / f"{400:020d}").write_bytes(b"")
    queues = distrusted(tmp_path, 1 << 40)
    assert bounds(queues.find(KEY)) == (0, 20, 2000)
    assert list(files(tmp_path)) == [0, 200]
    queues.close()


def test_flush_of_all_makes_names_safe_once(tmp_path):
    ops = NotedOps()
    queues = open_set(tmp_path, ops)
    ops.synced.clear()
    put(queues.get_or_create(KEY), 0, 3)
    queues.flush(1)
    assert not ops.synced
    queues.flush(0)
    above = tmp_path / "consumequeue"
    assert ops.synced == [tmp_path, above, above / "T", above / "T" / "0"]
    put(queues.find(KEY), 3, 3)
    queues.flush(0)
    assert len(ops.synced) == 4
    queues.close()


def test_flush_behind_a_drop_passes_over_directories_that_are_gone(tmp_path):
    queues = open_set(tmp_path, CountingOps())
    put(queues.get_or_create(KEY), 0, 3)
    queues.drop("T")
    assert not (tmp_path / "consumequeue" / "T").exists()
    queues.flush(0)
    queues.close()
