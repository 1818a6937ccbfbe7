"""IndexFile: one file of hashes: its bytes, its space on the disk, its chains."""

import threading

import pytest
from index_makers import START, SmallDisk, entries

from rocketlake.errors import DiskFullError
from rocketlake.files.file_traits import INDEX_FILES
from rocketlake.files.mapped_file_factory import MappedFileMaker
from rocketlake.format import index
from rocketlake.format.index import IndexHeader
from rocketlake.store.index.index_file import IndexFile, IndexShape
from rocketlake.store.options import StoreOptions
from support.manual_clock import ManualClock

SHAPE = IndexShape(slots=10, entries=30)
EVER = 1 << 62


@pytest.fixture
def disk():
    return SmallDisk()


@pytest.fixture
def factory(disk):
    return MappedFileMaker(disk, ManualClock(), INDEX_FILES)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "index" / "20240131235959123"


@pytest.fixture
def make(factory, path):
    made = []

    def make(shape=SHAPE, before=None):
        made.append(IndexFile.create(factory, path, shape, before))
        return made[-1]

    yield make
    for file in made:
        file.close()


def reopened(factory, path, shape=SHAPE):
    return IndexFile.open(factory, path, shape, IndexHeader.decode(path.read_bytes()))


def put_one_by_one(*groups, shape=SHAPE, header=None):
    """What the file must be: each entry put by the format's own function."""
    data = bytearray(shape.file_size)
    if header is not None:
        data[:40] = header.encode()
    for group in groups:
        for i in range(len(group)):
            numbers = (group.hashes[i], group.physical_offsets[i], group.store_timestamps[i])
            place = (int(number) for number in numbers)
            assert index.put(data, shape.slots, shape.entries, *place, shape.count_every_put)
    return bytes(data)


# --- making ------------------------------------------------------------------------------------


def test_new_file_has_its_full_length_and_an_empty_header(make, path):
    file = make()
    assert path.read_bytes() == bytes(SHAPE.file_size)
    assert file.header == IndexHeader(0, 0, 0, 0, 0, 0)
    assert not file.is_full


def test_new_file_of_default_size_takes_space_for_its_slots_alone(make, path):
    shape = IndexShape.of(StoreOptions())
    make(shape)
    state = path.stat()
    assert state.st_size == 420_000_040
    assert 20_000_040 <= state.st_blocks * 512 < 21_000_000


def test_space_of_entries_is_taken_before_they_are_written(make, disk):
    shape = IndexShape(slots=5_000, entries=20_000)
    file = make(shape)
    head = index.entry_position(shape.slots, 1)
    taken = max(position + size for _, position, size in disk.names("allocate"))
    assert taken >= head
    for _ in range(6):
        count = 1500
        file.put(entries(*range(count)))
        taken = max(position + size for _, position, size in disk.names("allocate"))
        assert taken >= index.entry_position(shape.slots, file.header.entry_count)
    assert taken < shape.file_size


def test_follow_up_file_begins_with_the_end_of_the_one_before(make, path):
    file = make(before=IndexHeader(START, START + 5000, 100, 900, 7, 30))
    assert file.header == IndexHeader(START + 5000, START + 5000, 900, 900, 0, 0)
    assert path.read_bytes()[:40] == file.header.encode()


def test_full_disk_leaves_no_file_behind(make, disk, path):
    disk.allocations = 0
    with pytest.raises(DiskFullError):
        make()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(("slots", "entries_"), [(0, 30), (10, 1), (10, 0), (-1, 5)])
def test_shape_that_holds_no_key_is_refused(slots, entries_):
    with pytest.raises(ValueError, match="maxHashSlotNum, maxIndexNum"):
        IndexShape(slots=slots, entries=entries_)


@pytest.mark.parametrize(
    ("version", "every", "empty"),
    [("5.3", False, True), ("4.9", False, False), ("4.6", True, False)],
)
def test_shape_follows_the_options(version, every, empty):
    chosen = {"compat_version": version, "max_hash_slot_num": 11, "max_index_num": 12}
    options = StoreOptions.from_source(**chosen)
    wanted = IndexShape(slots=11, entries=12, count_every_put=every, counts_empty=empty)
    assert IndexShape.of(options) == wanted


# --- putting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [False, True])
def test_bytes_are_those_of_puts_one_by_one(make, path, every):
    shape = IndexShape(slots=10, entries=30, count_every_put=every)
    before = IndexHeader(START - 9000, START - 3000, 1, 5, 3, 30)
    file = make(shape, before)
    groups = [entries(5, 5, 60), entries(70, hash_=17, time=START + 9000), entries(80, 90)]
    assert [file.put(group) for group in groups] == [3, 1, 2]
    preset = IndexHeader(START - 3000, START - 3000, 5, 5, 0, 0)
    assert path.read_bytes() == put_one_by_one(*groups, shape=shape, header=preset)
    assert file.header == IndexHeader.decode(path.read_bytes())


def test_full_file_takes_what_fits(make, path):
    file = make()
    assert file.put(entries(*range(20))) == 20
    assert file.put(entries(*range(20, 40))) == 9
    assert file.is_full
    assert file.put(entries(50)) == 0
    assert path.read_bytes() == put_one_by_one(entries(*range(20)), entries(*range(20, 29)))


def test_full_disk_leaves_the_file_as_it_was_and_putting_goes_on_later(make, disk, path):
    shape = IndexShape(slots=10, entries=20_000)
    file = make(shape)
    disk.allocations = 0
    many = entries(*range(10_000))
    before = path.read_bytes()
    with pytest.raises(DiskFullError):
        file.put(many)
    assert path.read_bytes() == before
    disk.allocations = 1
    assert file.put(many) == 10_000
    assert list(file.offsets(7, 0, EVER)) == list(range(9_999, -1, -1))


# --- opening -----------------------------------------------------------------------------------


def test_file_that_was_opened_is_gone_on_with(make, factory, path):
    file = make()
    file.put(entries(1, 2, 3))
    file.finish()
    file.close()
    again = reopened(factory, path)
    assert again.header.entries_used == 3
    assert again.put(entries(*range(10, 60))) == 26
    assert again.is_full
    assert path.read_bytes() == put_one_by_one(entries(1, 2, 3), entries(*range(10, 36)))
    again.close()


def test_file_with_holes_gets_space_below_its_end_before_it_is_written(disk, factory, path):
    """A file that the reference made is a hole wherever nothing was written yet."""
    shape = IndexShape(slots=50_000, entries=60)
    path.parent.mkdir()
    with path.open("wb") as sparse:
        sparse.truncate(shape.file_size)
    file = reopened(factory, path, shape)
    assert disk.names("allocate") == []
    file.put(entries(1))
    assert path.stat().st_blocks * 512 >= index.entry_position(shape.slots, 2)
    assert disk.names("allocate")[0][1] == 0
    file.close()


def test_full_file_that_was_opened_is_full(make, factory, path):
    file = make()
    file.put(entries(*range(40)))
    file.close()
    again = reopened(factory, path)
    assert again.is_full
    assert again.put(entries(99)) == 0
    assert list(again.offsets(7, 0, EVER)) == list(range(28, -1, -1))
    again.close()


@pytest.mark.parametrize(("counts_empty", "count"), [(True, 1), (False, 0)])
@pytest.mark.parametrize("is_new", [True, False])
def test_file_without_keys_ends_as_the_release_ends_it(
    make, factory, path, is_new, counts_empty, count
):
    shape = IndexShape(slots=10, entries=30, counts_empty=counts_empty)
    file = make(shape, IndexHeader(0, START, 0, 900, 1, 30))
    if not is_new:
        file.close()
        file = reopened(factory, path, shape)
    file.finish()
    assert IndexHeader.decode(path.read_bytes()) == IndexHeader(START, START, 900, 900, 0, count)
    file.close()


def test_file_with_keys_ends_as_it_is(make, path):
    file = make()
    file.put(entries(1))
    before = path.read_bytes()
    file.finish()
    assert path.read_bytes() == before


# --- flushing ----------------------------------------------------------------------------------


def test_flush_syncs_what_was_put_and_only_then(make, disk):
    file = make()
    file.put(entries(1))
    file.flush()
    file.flush()
    assert len(disk.names("sync")) == 1
    file.put(entries(2))
    file.flush()
    assert len(disk.names("sync")) == 2


# --- reading -----------------------------------------------------------------------------------


def test_offsets_come_newest_first_however_many_there_are(make):
    file = make(IndexShape(slots=3, entries=5_000))
    file.put(entries(*range(0, 4000, 2), hash_=7))
    file.put(entries(*range(4000, 5000), hash_=10))
    file.put(entries(*range(5000, 5010), hash_=7))
    wanted = [*range(5009, 4999, -1), *range(3998, -1, -2)]
    assert list(file.offsets(7, 0, EVER)) == wanted
    assert list(file.offsets(13, 0, EVER)) == []


def test_offsets_keep_to_the_range_of_time(make):
    file = make()
    file.put(entries(1, 2, 3, 4, 5))
    assert list(file.offsets(7, START + 1000, START + 3000)) == [4, 3, 2]
    assert list(file.offsets(7, START + 5000, EVER)) == []


def test_lookup_ends_when_the_file_goes_away_meanwhile(make, path):
    file = make(IndexShape(slots=1, entries=1000))
    file.put(entries(*range(900)))
    found = file.offsets(7, 0, EVER)
    assert next(found) == 899
    assert file.destroy()
    assert not path.exists()
    rest = list(found)
    assert rest == list(range(898, 898 - len(rest), -1))
    assert len(rest) < 899
    assert list(file.offsets(7, 0, EVER)) == []


def test_last_hashes_are_those_of_the_last_record(make):
    file = make()
    assert file.last_hashes(0) == []
    file.put(entries(5, 5))
    file.put(entries(5, hash_=9))
    assert file.last_hashes(5) == [9, 7, 7]
    file.put(entries(6))
    assert file.last_hashes(6) == [7]
    assert file.last_hashes(5) == []


def test_what_was_found_once_is_found_while_others_are_put(make):
    """Chains of one slot grow under the reader's eyes; their old ends stay in sight."""
    shape = IndexShape(slots=2, entries=200_000)
    file = make(shape)
    file.put(entries(1, 2, 3, hash_=8))
    wrong = []
    has_ended = threading.Event()

    def look():
        while not has_ended.is_set():
            found = list(file.offsets(8, 0, EVER))
            if found[-3:] != [3, 2, 1] or found != sorted(found, reverse=True):
                wrong.append(found)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(10, 60_000, 500):
        file.put(entries(*range(start, start + 500), hash_=2 * (start % 3)))
    has_ended.set()
    for reader in readers:
        reader.join()
    assert wrong == []
