"""What files tell about the options a store was made with."""

import pytest

from rocketlake.errors import ConfigError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import index as index_format
from rocketlake.format import layout
from rocketlake.store.disk.file_shape import find_shape
from rocketlake.store.options import FILE_SHAPE, StoreOptions, embedded
from support.golden import GoldenStores, case_names
from support.store_builder import StoreBuilder

SLOTS, ENTRIES = 10, 40


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=1000, index_shape=(SLOTS, ENTRIES))


def shape(root, chosen=None, log_dirs=()):
    return find_shape(StoreDir(PosixFileOps(), root, log_dirs), chosen)


def files(root, family, sizes):
    """Write files of zeros, by name and size."""
    place = root / family
    place.mkdir(parents=True, exist_ok=True)
    for base, size in sizes.items():
        (place / f"{base:020d}").write_bytes(bytes(size))


# --- the files of RocketMQ -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return GoldenStores(tmp_path_factory.mktemp("shapes"))


@pytest.mark.parametrize("name", case_names())
def test_golden_store_tells_the_options_it_was_written_with(stores, name):
    golden = stores.get(name)
    options = StoreOptions.complete(StoreOptions.choose(golden.case.options(golden.root)))
    found = shape(golden.root, log_dirs=golden.log_dirs)
    for key in FILE_SHAPE:
        if key in found:
            assert (key, found[key]) == (key, getattr(options, key))
    known = {"mapped_file_size_commit_log", "mapped_file_size_consume_queue"}
    has_keys = any(path.read_bytes()[36:40] > b"\0\0\0\1" for path in golden.files("index"))
    known |= {"max_hash_slot_num", "max_index_num"} if has_keys else set()
    assert known <= set(found)
    families = {
        "batchconsumequeue": "mapper_file_size_batch_consume_queue",
        "consumequeue_ext": "mapped_file_size_consume_queue_ext",
        "timerlog": "mapped_file_size_timer_log",
    }
    for family, key in families.items():
        assert (key in found) == bool(golden.files(family))
    assert set(found) <= set(FILE_SHAPE)


def test_store_keeps_its_own_sizes(builder):
    root = builder.record(keys=["k"]).write()
    found = shape(root)
    options = StoreOptions.complete(StoreOptions.choose(), found, embedded())
    assert options.mapped_file_size_commit_log == 1000
    assert (options.max_hash_slot_num, options.max_index_num) == (SLOTS, ENTRIES)


def test_other_sizes_are_refused_with_both_values(builder):
    root = builder.record(keys=["k"]).write()
    choice = StoreOptions.choose(mapped_file_size_commit_log=2000)
    found = shape(root, choice.values)
    options = StoreOptions.complete(choice, found)
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog = 1000, asked for 2000"):
        choice.check_agrees(options, found, where=root)


# --- sizes ---------------------------------------------------------------------------------------


def test_new_store_tells_nothing(tmp_path):
    assert shape(tmp_path) == {}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({0: 0}, None),  # made by a crash, never written
        ({0: 4096, 4096: 0}, 4096),
        ({0: 50}, None),  # no record has room in it
        ({49152: 1000}, None),  # cut short
        ({0: 4096, 16384: 16384}, 16384),  # cut short, the first
        ({0: 16384, 16384: 4096}, 16384),  # and the last
        ({0: 32768, 16384: 16384}, 16384),  # too long
        ({0: 16384, 16384: 16384, 32768: 100}, 16384),
        ({16384: 16384}, 16384),
        ({0: 4096, 12288: 4096}, 4096),  # one is missing
        ({0: 4096, 4096: 4096, 5000: 4096}, 4096),  # a strange name
    ],
)
def test_log_file_size(tmp_path, sizes, expected):
    files(tmp_path, "commitlog", sizes)
    assert shape(tmp_path).get("mapped_file_size_commit_log") == expected


def test_sizes_of_several_directories_count_together(tmp_path):
    files(tmp_path, "a", {0: 4096, 8192: 4096})
    files(tmp_path, "b", {4096: 4096, 12288: 0})
    found = shape(tmp_path, log_dirs=(tmp_path / "a", tmp_path / "b"))
    assert found == {"mapped_file_size_commit_log": 4096}


@pytest.mark.parametrize(
    ("family", "key", "size"),
    [
        ("consumequeue", "mapped_file_size_consume_queue", 400),
        ("batchconsumequeue", "mapper_file_size_batch_consume_queue", 460),
        ("consumequeue_ext", "mapped_file_size_consume_queue_ext", 1024),
    ],
)
def test_queue_file_size(tmp_path, family, key, size):
    files(tmp_path, f"{family}/A/0", {0: 0})
    files(tmp_path, f"{family}/A/1", {0: size, size: size})
    files(tmp_path, f"{family}/B/0", {3 * size: size})
    (tmp_path / family / "C").mkdir()
    (tmp_path / family / "stray").write_bytes(b"x")
    assert shape(tmp_path) == {key: size}


def test_queue_file_of_no_whole_units_says_nothing(tmp_path):
    files(tmp_path, "consumequeue/A/0", {0: 401})
    assert shape(tmp_path) == {}
    files(tmp_path, "consumequeue/B/0", {0: 400})
    assert shape(tmp_path) == {"mapped_file_size_consume_queue": 400}


def test_timer_log_size(tmp_path):
    files(tmp_path, "timerlog", {0: 5200, 5200: 5200})
    assert shape(tmp_path) == {"mapped_file_size_timer_log": 5200}


def test_only_a_few_of_many_queues_are_looked_at(tmp_path):
    looked = []

    class Watched(PosixFileOps):
        def entries(self, path):
            looked.append(path)
            return super().entries(path)

    for number in range(100):
        files(tmp_path, f"consumequeue/T{number:03d}/0", {0: 400})
    assert find_shape(StoreDir(Watched(), tmp_path)) == {"mapped_file_size_consume_queue": 400}
    assert len(looked) < 80


# --- the index -----------------------------------------------------------------------------------


def index_shape(root, **chosen):
    found = shape(root, chosen)
    return found.get("max_hash_slot_num"), found.get("max_index_num")


def test_index_of_unusual_shape_is_proven(builder):
    for number in range(20):
        builder.record(keys=[f"k{number}"])
    assert index_shape(builder.write()) == (SLOTS, ENTRIES)


def test_choice_that_the_chains_contradict_is_overruled(builder):
    """Both shapes give files of the same size."""
    other = (SLOTS + 5, ENTRIES - 1)
    assert index_format.file_size(*other) == index_format.file_size(SLOTS, ENTRIES)
    for number in range(20):
        builder.record(keys=[f"k{number}"])
    chosen = dict(zip(("max_hash_slot_num", "max_index_num"), other, strict=True))
    assert index_shape(builder.write(), **chosen) == (SLOTS, ENTRIES)


def test_index_without_keys_is_what_the_caller_says(builder):
    root = builder.record().write()
    assert index_shape(root, max_hash_slot_num=SLOTS, max_index_num=ENTRIES) == (SLOTS, ENTRIES)
    assert index_shape(root, max_hash_slot_num=SLOTS, max_index_num=ENTRIES + 1) == (None, None)


@pytest.mark.parametrize("real", [(10, 40), (100, 400), (1000, 20), (7, 3), (13, 1000)])
def test_index_without_keys_has_some_shape_of_its_size(tmp_path, real):
    builder = StoreBuilder(tmp_path, index_shape=real)
    found = index_shape(builder.record().write())
    assert index_format.file_size(*found) == index_format.file_size(*real)
    assert found[0] >= 1
    assert found[1] >= 2
    if real[1] == 4 * real[0]:
        assert found == real


def test_older_file_speaks_for_a_damaged_one(builder):
    for number in range(60):
        builder.record(keys=[f"k{number}"])
    root = builder.write()
    newest = builder.index_path(1)
    assert newest.exists()
    size = newest.stat().st_size
    newest.write_bytes(newest.read_bytes()[:60].ljust(size, b"\xff"))
    assert index_shape(root) == (SLOTS, ENTRIES)


@pytest.mark.parametrize(
    "expected",
    [
        (layout.DEFAULT_INDEX_SLOTS, layout.DEFAULT_INDEX_ENTRIES),
        (embedded()["max_hash_slot_num"], embedded()["max_index_num"]),
    ],
)
@pytest.mark.parametrize("keys", [0, 1, 3])
def test_usual_shapes_are_known_by_few_bytes(tmp_path, expected, keys):
    """The file of the reference's shape is sparse: reading it whole would take a while."""
    slots, entries = expected
    path = tmp_path / "index" / "20240131120000000"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(index_format.file_size(slots, entries))
        file.write(index_format.IndexHeader(1, 2, 100, 100 + keys - 1, keys, 1 + keys).encode())
        for number in range(1, 1 + keys):
            entry = index_format.IndexEntry(number * 7, 100 + number - 1, 0, 0)
            file.seek(index_format.entry_position(slots, number))
            file.write(entry.encode())
            file.seek(index_format.slot_position(slots, entry.key_hash))
            file.write(number.to_bytes(4, "big"))
    assert index_shape(tmp_path) == expected


@pytest.mark.parametrize("data", [b"", b"\0" * 39, b"\xff" * 40, b"\xff" * 100])
def test_file_that_is_no_index_says_nothing(tmp_path, data):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20240131120000000").write_bytes(data)
    assert shape(tmp_path) == {}
