"""Files that another process cuts, deletes or extends while they are read."""

import os

import pytest

from rocketlake.files.ops import PosixFileOps
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import KeyQuery, OfflineStore
from support.reading import bodies, bounds, offsets, walked
from support.store_builder import StoreBuilder

T = QueueKey("T", 0)


@pytest.fixture
def builder(tmp_path):
    """Four log files of 9, 9, 9 and 3 records, two queue files of twenty units."""
    made = StoreBuilder(tmp_path, log_file_size=1000, queue_file_units=20)
    for number in range(30):
        made.record(body=b"%02d" % number, keys=[f"k{number}"])
    assert [made.placed[n].physical_offset for n in (9, 18, 27)] == [1000, 2000, 3000]
    made.write()
    return made


def test_log_file_cut_while_reading(builder):
    with OfflineStore(builder.root) as store:
        assert len(store.queues[T].units(0, 30)) == 20
        os.truncate(builder.log_path(1000), 250)
        found = offsets(store)
        assert found == [n for n, place in enumerate(builder.placed) if not cut(place, 250)]
        assert walked(store) == [builder.placed[n].physical_offset for n in found]
        assert store.damage.count == 30 - len(found)


def cut(place, size):
    return 1000 <= place.physical_offset < 2000 and place.end > 1000 + size


def test_log_file_deleted_while_reading(builder):
    with OfflineStore(builder.root) as store:
        _ = store.queues
        builder.log_path(2000).unlink()
        store.close()  # or the file, still open, would be read to its end
        kept = [*range(18), *range(27, 30)]
        assert offsets(store) == kept
        assert walked(store) == [builder.placed[n].physical_offset for n in kept]


def test_every_log_file_deleted_while_reading(builder):
    with OfflineStore(builder.root) as store:
        assert bounds(store) == {"T/0": (0, 30)}
        store.close()
        for path in (builder.root / "commitlog").iterdir():
            path.unlink()
        assert bodies(store) == []
        assert walked(store) == []
        assert store.find(KeyQuery(topic="T", key="k7")) == []
        assert store.time_bounds(T) == (None, None)
        assert store.offset_by_time(T, 1) in range(31)
        assert store.nearest_offset_by_time(T, 1) in range(31)
        assert store.message_at(0) is None


def test_queue_file_cut_while_reading(builder):
    with OfflineStore(builder.root) as store:
        assert bounds(store) == {"T/0": (0, 30)}
        os.truncate(builder.queue_path("T", 0), 5 * 20 + 7)
        assert offsets(store) == [*range(5), *range(20, 30)]


def test_queue_file_deleted_while_reading(builder):
    with OfflineStore(builder.root) as store:
        assert bounds(store) == {"T/0": (0, 30)}
        store.close()
        builder.queue_path("T", 0, 0).unlink()
        assert offsets(store) == [*range(20, 30)]


def test_units_still_owed_are_shown_when_the_queue_is_deleted(builder):
    """The units of the log's tail do not come from the file that is gone."""
    builder.records(3, dispatched=False).unclean().write()
    with OfflineStore(builder.root) as store:
        assert bounds(store) == {"T/0": (0, 33)}
        store.close()
        for path in builder.queue_path("T", 0).parent.iterdir():
            path.unlink()
        assert offsets(store) == [30, 31, 32]


def test_queue_directory_deleted_between_listing_and_reading(builder):
    with OfflineStore(builder.root) as store:
        view = store._disk_queues[T]
        store.close()
        for path in builder.queue_path("T", 0).parent.iterdir():
            path.unlink()
        view.load(store.damage)
        assert view.total == 0


def test_index_file_cut_while_reading(builder):
    with OfflineStore(builder.root) as store:
        assert [m.body for m in store.find(KeyQuery(topic="T", key="k3"))] == [b"03"]
        os.truncate(builder.index_path(), 60)
        store.find(KeyQuery(topic="T", key="k4"))  # whatever it finds, it ends
        os.truncate(builder.index_path(), 0)
        store.find(KeyQuery(topic="T", key="k4"))


def test_file_that_grows_is_read_as_far_as_it_was(builder):
    """The view is of one moment: what comes later is for a follower."""
    with OfflineStore(builder.root) as store:
        assert len(bodies(store)) == 30
        end = store.max_offset
        builder.records(5).write()
        assert store.max_offset == end
        assert len(bodies(store)) == 30
        assert len(walked(store)) == 30
    with OfflineStore(builder.root) as store:
        assert len(bodies(store)) == 35


def test_more_files_than_descriptors_are_read(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=300, queue_file_units=1)
    builder.records(200)
    with OfflineStore(builder.write()) as store:
        assert bodies(store) == [b"%d" % number for number in range(200)]
        assert len(store._readers._open) <= 64
    assert len(store._readers._open) == 0


class WritingOps(PosixFileOps):
    """Files of the machine; before the n-th read a writer ends what it was about to write."""

    def __init__(self, path, whole, reads):
        self._path, self._whole, self._left = path, whole, reads

    @property
    def has_written(self):
        return self._left <= 0

    def count(self):
        self._left -= 1
        if not self._left:
            with self._path.open("r+b") as file:
                file.write(self._whole)

    def open_reader(self, path):
        return CountedReader(super().open_reader(path), self)


class CountedReader:
    def __init__(self, reader, ops):
        self._reader, self._ops = reader, ops

    def read(self, position, size):
        self._ops.count()
        return self._reader.read(position, size)

    def close(self):
        self._reader.close()


def test_record_half_written_is_no_damage_whenever_the_writer_goes_on(builder):
    """Between any two reads it may end the record, and put others behind it."""
    root = builder.unclean().write()
    path = builder.log_path(0)
    whole = path.read_bytes()
    cut = builder.placed[3].physical_offset + 60
    for reads in range(1, 100):
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        for later in (1000, 2000, 3000):
            path.with_name(f"{later:020d}").unlink(missing_ok=True)
        ops = WritingOps(path, whole, reads)
        with OfflineStore(root, ops=ops) as store:
            found = bodies(store)
            assert found == [b"%02d" % number for number in range(len(found))]
            assert (reads, store.damage.findings) == (reads, [])
        if not ops.has_written:
            break
    assert 10 < reads < 99
