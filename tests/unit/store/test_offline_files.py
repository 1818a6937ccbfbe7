"""Log files that are missing, doubled, empty, foreign or of the wrong size."""

import errno
import os

import pytest

from rocketlake.errors import ConfigError, StoreNotFoundError
from rocketlake.files.ops import PosixFileOps
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore
from rocketlake.store.options import ReadOptions
from support.reading import bodies, bounds, findings, offsets, walked
from support.store_builder import StoreBuilder

NAME = "{:020d}".format


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=1000)


def three_files(builder):
    """Two records in each of three files."""
    for number in range(6):
        builder.record(body=b"%d" % number)
        if number in (1, 3):
            builder.roll()
    return builder


def test_directory_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"")
    with pytest.raises(StoreNotFoundError, match="it has no commitlog directory"):
        OfflineStore(tmp_path)


def test_empty_log_directory_is_an_empty_store(tmp_path):
    (tmp_path / "commitlog").mkdir()
    with OfflineStore(tmp_path) as store:
        assert (store.min_offset, store.max_offset) == (0, 0)
        assert store.queues == {}
        assert list(store.walk()) == []
        assert store.last_timestamp() is None
        assert store.damage.count == 0


def test_a_small_store_is_read(builder):
    builder.record("T", 0, b"a").record("T", 1, b"b").record("U", 0, b"c")
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"T/0": (0, 1), "T/1": (0, 1), "U/0": (0, 1)}
        assert bodies(store, "T", 1) == [b"b"]
        assert walked(store) == [place.physical_offset for place in builder.placed]
        assert store.max_offset == builder.end
        assert store.damage.count == 0


def test_queue_that_is_not_there_has_no_messages(builder):
    with OfflineStore(builder.record().write()) as store:
        assert bodies(store, "None", 7) == []


def test_all_zero_file_behind_the_log_is_no_damage(builder):
    three_files(builder).spare_file()
    with OfflineStore(builder.write()) as store:
        assert len(store.log.files) == 4
        assert store.max_offset == builder.end
        assert bodies(store) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert store.damage.count == 0


def test_all_zero_file_alone_is_an_empty_log(builder):
    with OfflineStore(builder.spare_file().write()) as store:
        assert (store.min_offset, store.max_offset) == (0, 0)
        assert walked(store) == []
        assert store.damage.count == 0


def test_empty_file_behind_the_log_is_passed_over(builder):
    root = three_files(builder).write()
    (root / "commitlog" / NAME(3000)).write_bytes(b"")
    with OfflineStore(root) as store:
        assert [file.base_offset for file in store.log.files] == [0, 1000, 2000]
        assert len(bodies(store)) == 6
        assert store.damage.count == 0


def test_missing_file_in_the_middle_is_told_and_stepped_over(builder):
    root = three_files(builder).lose_log_file(1000).write()
    with OfflineStore(root) as store:
        assert findings(store) == [
            (NAME(0), 1000, "the log goes on at 2000: a file is missing"),
        ]
        assert store.max_offset == builder.end
        assert bodies(store) == [b"0", b"1", b"4", b"5"]
        assert walked(store) == [builder.placed[i].physical_offset for i in (0, 1, 4, 5)]
        lost = [reason for _, _, reason in findings(store)[1:]]
        assert lost == [
            f"no file holds the record; message {number} of T/0 is left out" for number in (2, 3)
        ]


def test_empty_first_file_is_told(builder):
    """A file that expired is gone; an empty one has lost what it held."""
    root = three_files(builder).write()
    first = sorted((root / "commitlog").iterdir())[0]
    first.write_bytes(b"")
    with OfflineStore(root) as store:
        assert store.min_offset == 1000
        assert findings(store) == [
            (first.name, 0, "the file is empty, but the log goes on at 1000")
        ]


def test_missing_first_files_are_expired_not_damaged(builder):
    with OfflineStore(three_files(builder).expire(1).write()) as store:
        assert store.min_offset == 1000
        assert bounds(store) == {"T/0": (2, 6)}
        assert offsets(store) == [2, 3, 4, 5]
        assert store.damage.count == 0


def test_queue_that_is_wholly_expired_keeps_its_count(builder):
    builder.record("Old").roll().record("New")
    with OfflineStore(builder.expire(1).write()) as store:
        assert bounds(store) == {"New/0": (0, 1), "Old/0": (1, 1)}


def test_queue_that_is_wholly_expired_keeps_its_begin_in_4x(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000, is_5x=False)
    builder.record("Old").roll().record("New").expire(1)
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"New/0": (0, 1), "Old/0": (0, 1)}
        assert bodies(store, "Old") == []
        assert store.damage.count == 0


def test_same_file_in_two_directories_is_read_once_and_told(tmp_path):
    builder = three_files(StoreBuilder(tmp_path, log_file_size=1000, log_dirs=("a", "b")))
    root = builder.write()
    twin = root / "b" / NAME(0)
    twin.write_bytes((root / "a" / NAME(0)).read_bytes())
    with OfflineStore(root, log_dirs=(root / "a", root / "b")) as store:
        assert findings(store) == [
            (NAME(0), 0, f"the same part of the log as {root / 'a' / NAME(0)}")
        ]
        assert len(walked(store)) == 6


def test_log_in_several_directories_is_one_log(tmp_path):
    builder = three_files(StoreBuilder(tmp_path, log_file_size=1000, log_dirs=("b", "a")))
    root = builder.write()
    for log_dirs in ((), (root / "a", root / "b"), (root / "b", root / "a")):
        with OfflineStore(root, log_dirs=log_dirs) as store:
            assert bodies(store) == [b"0", b"1", b"2", b"3", b"4", b"5"]
            assert store.damage.count == 0


def test_short_last_file_is_read_as_far_as_it_goes(builder):
    """A copy that was cut off: the file ends inside its second record."""
    root = three_files(builder).write()
    os.truncate(root / "commitlog" / NAME(2000), builder.placed[4].size + 50)
    with OfflineStore(root) as store:
        assert store.max_offset == builder.placed[4].end
        assert bodies(store) == [b"0", b"1", b"2", b"3", b"4"]
        assert findings(store) == [
            (NAME(2000), builder.placed[4].size + 50, "the file has 143 bytes, the others 1000"),
            (NAME(0), 5 * 20, "1 units of T/0 point behind the end of the log"),
        ]


def test_short_file_in_the_middle_is_told_and_stepped_over(builder):
    root = three_files(builder).write()
    os.truncate(root / "commitlog" / NAME(1000), builder.placed[2].size + 50)
    with OfflineStore(root) as store:
        assert bodies(store) == [b"0", b"1", b"2", b"4", b"5"]
        assert findings(store) == [
            (NAME(1000), 143, "the file has 143 bytes, the others 1000"),
            (NAME(1000), 93, "a record reaches beyond the end; message 3 of T/0 is left out"),
        ]


def test_long_file_is_read_up_to_the_next_one(builder):
    root = three_files(builder).write()
    with (root / "commitlog" / NAME(1000)).open("ab") as file:
        file.write(b"\xff" * 500)
    with OfflineStore(root) as store:
        assert findings(store) == [(NAME(1000), 1000, "the file has 1500 bytes, the others 1000")]
        assert len(bodies(store)) == 6


def test_given_size_that_no_file_has_is_refused(builder):
    root = three_files(builder).write()
    options = ReadOptions(mapped_file_size_commit_log=4096)
    with pytest.raises(ConfigError, match=r"given as 4096, but the files of .* have 1000 bytes"):
        OfflineStore(root, options=options)


def test_foreign_things_among_the_log_are_passed_over(builder):
    root = three_files(builder).file("commitlog/README", b"hello").write()
    (root / "commitlog" / NAME(9000)).mkdir()
    builder.file("consumequeue/T/0/notes.txt", b"x").file("consumequeue/T/readme", b"").write()
    (root / "consumequeue" / "T" / "lost+found").mkdir()
    with OfflineStore(root) as store:
        assert len(bodies(store)) == 6
        assert bounds(store) == {"T/0": (0, 6)}
        assert store.damage.count == 0


@pytest.mark.parametrize("place", ["commitlog", "consumequeue/T/0"])
def test_name_beyond_any_offset_does_not_stop_the_reader(builder, place):
    root = three_files(builder).file(f"{place}/{'9' * 20}", b"x" * 1000).write()
    with OfflineStore(root) as store:
        assert bodies(store) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_file_of_garbage_is_no_log(builder):
    builder.overwrite(0, bytes(range(256)) * 3)
    with OfflineStore(builder.write()) as store:
        assert (store.min_offset, store.max_offset) == (0, 0)
        assert store.queues == {}
        assert walked(store) == []


def test_file_of_four_bytes_is_no_log(tmp_path):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / NAME(0)).write_bytes(b"\0\0\0\x5b")
    with OfflineStore(tmp_path) as store:
        assert store.max_offset == 0
        assert walked(store) == []


class FailingOps(PosixFileOps):
    """Files of the machine, those of one name unreadable."""

    def __init__(self, name):
        self._name = name

    def open_reader(self, path):
        if path.name == self._name:
            raise StoreNotFoundError(f"cannot read {path}: {os.strerror(errno.EACCES)}")
        return super().open_reader(path)


def test_log_file_that_may_not_be_read_is_named(builder):
    root = three_files(builder).write()
    with (
        OfflineStore(root, ops=FailingOps(NAME(2000))) as store,
        pytest.raises(StoreNotFoundError, match=f"{NAME(2000)}: Permission denied"),
    ):
        bodies(store)


def test_queue_without_files_is_an_empty_queue(builder):
    root = builder.record().write()
    (root / "consumequeue" / "Idle" / "3").mkdir(parents=True)
    with OfflineStore(root) as store:
        assert bounds(store) == {"Idle/3": (0, 0), "T/0": (0, 1)}
        assert store.time_bounds(QueueKey("Idle", 3)) == (None, None)
        assert store.offset_by_time(QueueKey("Idle", 3), 1) == 0
        assert store.nearest_offset_by_time(QueueKey("Idle", 3), 1) == 0
