"""Queue files: sizes, rolled and expired ones, pre-fill, damaged units."""

import os

import pytest

from rocketlake.format.queue_unit import PREFILL, QueueUnit
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore
from rocketlake.store.options import ReadOptions
from support.reading import bodies, bounds, findings, offsets
from support.store_builder import StoreBuilder

T = QueueKey("T", 0)


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path, log_file_size=4000, queue_file_units=10)


def test_size_of_queue_files_comes_from_the_files(builder):
    with OfflineStore(builder.records(25).write()) as store:
        assert store.queues[T].file_units() == 10
        assert offsets(store) == list(range(25))


def test_size_of_queue_files_may_be_given_and_is_rounded_up(builder):
    root = builder.records(25).write()
    options = ReadOptions(mapped_file_size_consume_queue=199)
    with OfflineStore(root, options=options) as store:
        assert store.queues[T].file_size == 200
        assert offsets(store) == list(range(25))


def test_ranges(builder):
    with OfflineStore(builder.records(25).write()) as store:
        assert offsets(store, begin=8, end=12) == [8, 9, 10, 11]
        assert offsets(store, begin=24) == [24]
        assert offsets(store, begin=25) == []
        assert offsets(store, begin=-5, end=2) == [0, 1]
        assert offsets(store, begin=5, end=5) == []
        assert offsets(store, begin=9, end=3) == []


def test_expired_queue_files_leave_the_numbers_as_they_are(builder):
    """Ten files of log; the first two queue files went with the first of them."""
    for number in range(45):
        builder.record(body=b"%d" % number + b"x" * 300)
    builder.expire(3)
    root = builder.write()
    first = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 12_000)
    for number in range(0, first // 10 * 10, 10):
        builder.queue_path("T", 0, number).unlink()
    with OfflineStore(root) as store:
        assert store.queues[T].first_index == first // 10 * 10
        assert bounds(store) == {"T/0": (first, 45)}
        assert offsets(store) == list(range(first, 45))
        assert offsets(store, begin=0, end=first + 1) == [first]
        assert store.damage.count == 0


def test_prefill_is_no_message(builder):
    """A queue that began at 7: the units before are filler."""
    for number in range(7):
        builder.unit("T", 0, number, PREFILL)
    builder.record(queue_offset=7, body=b"7").record(queue_offset=8, body=b"8")
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"T/0": (7, 9)}
        assert offsets(store) == [7, 8]
        assert bodies(store) == [b"7", b"8"]
        assert store.damage.count == 0


def test_queue_of_prefill_only_is_empty(builder):
    builder.record("U")
    for number in range(7):
        builder.unit("T", 0, number, PREFILL)
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"T/0": (7, 7), "U/0": (0, 1)}
        assert offsets(store) == []


def test_missing_queue_file_in_the_middle_is_told_and_stepped_over(builder):
    root = builder.records(35).write()
    builder.queue_path("T", 0, 20).unlink()
    with OfflineStore(root) as store:
        assert offsets(store) == [*range(20), *range(30, 35)]
        assert findings(store) == [
            ("00000000000000000600", 0, "the queue's file for 20 is missing"),
        ]


def test_missing_queue_file_long_before_the_end_is_told(builder):
    """A start looks at the last three files only; a reader must say what it left out."""
    root = builder.records(65).write()
    builder.queue_path("T", 0, 10).unlink()
    with OfflineStore(root) as store:
        assert offsets(store) == [*range(10), *range(20, 65)]
        assert store.damage.count == 1


def test_queue_file_that_is_not_whole_units_is_told(builder):
    root = builder.records(25).write()
    os.truncate(builder.queue_path("T", 0, 20), 4 * 20 + 11)
    with OfflineStore(root) as store:
        assert offsets(store) == list(range(25)), "the log still owes what was cut off"
        assert ("00000000000000000400", 91, "not whole units of 20 bytes") in findings(store)


def test_empty_queue_file_is_passed_over(builder):
    root = builder.records(20).write()
    builder.queue_path("T", 0, 20).write_bytes(b"")
    with OfflineStore(root) as store:
        assert offsets(store) == list(range(20))
        assert store.damage.count == 0


# --- damaged units ---------------------------------------------------------------------------

BAD_UNITS = {
    "garbage": QueueUnit(50, 100, 0),
    "behind the log": QueueUnit(1 << 40, 93, 0),
    "far behind the log": QueueUnit((1 << 63) - 1, 93, 0),
    "huge size": QueueUnit(0, (1 << 31) - 2, 0),
    "huge both": QueueUnit((1 << 63) - 1, (1 << 31) - 1, 0),
    "wrong size": QueueUnit(0, 92, 0),
    "negative offset": QueueUnit(-1, 93, 0),
    "most negative offset": QueueUnit(-(1 << 63), 93, 0),
    "negative size": QueueUnit(93, -1, 0),
    "size zero": QueueUnit(93, 0, 0),
}


@pytest.mark.parametrize("unit", BAD_UNITS.values(), ids=BAD_UNITS)
def test_damaged_unit_in_an_old_file_is_told_once_and_left_out(builder, unit):
    """Unit 4 of 65: a start looks at the last three files only."""
    root = builder.records(65).unit("T", 0, 4, unit).write()
    with OfflineStore(root) as store:
        for _ in range(2):
            assert offsets(store) == [n for n in range(65) if n != 4]
        assert store.damage.count == 1
        assert bounds(store) == {"T/0": (0, 65)}


@pytest.mark.parametrize("unit", BAD_UNITS.values(), ids=BAD_UNITS)
def test_damaged_unit_in_the_last_file_never_stops_the_reader(builder, unit):
    """What is not readable by the unit is still in the log; other queues go on."""
    for number in range(8):
        builder.record(body=b"%d" % number).record("U", 0, b"u%d" % number)
    builder.unit("T", 0, 4, unit).unclean()
    with OfflineStore(builder.write()) as store:
        found = offsets(store)
        assert set(found) >= {0, 1, 2, 3}
        assert len(found) == len(set(found)) <= 8
        assert bodies(store, "U") == [b"u%d" % number for number in range(8)]
        assert store.damage.count <= 1
        missing = set(range(8)) - set(found)
        assert not missing or store.damage.count, f"{missing} are left out without a word"


@pytest.mark.parametrize("unit", BAD_UNITS.values(), ids=BAD_UNITS)
def test_damaged_last_unit_of_a_clean_store(builder, unit):
    root = builder.records(8).record("U", 0, b"u").unit("T", 0, 7, unit).write()
    with OfflineStore(root) as store:
        found = offsets(store)
        assert set(found) >= set(range(7))
        assert bodies(store, "U") == [b"u"]
        assert found == list(range(8)) or store.damage.count, "7 is left out without a word"


@pytest.mark.parametrize("unit", BAD_UNITS.values(), ids=BAD_UNITS)
def test_damaged_first_unit(builder, unit):
    root = builder.records(35).unit("T", 0, 0, unit).write()
    with OfflineStore(root) as store:
        assert set(range(1, 35)) <= set(offsets(store))
        assert store.time_bounds(T)[1] is not None


def test_file_of_garbage_units(builder):
    root = builder.records(35).write()
    builder.queue_path("T", 0, 10).write_bytes(bytes(range(200)))
    with OfflineStore(root) as store:
        found = offsets(store)
        assert len(found) == len(set(found))
        assert set(found) >= set(range(10))
        assert store.damage.count >= 1


def test_units_of_another_queue_are_shown_as_their_records_are(builder):
    """A unit may point to any good record; its record says what it is."""
    builder.record("T", 0, b"mine").record("U", 0, b"yours")
    other = builder.placed[1]
    root = builder.unit("T", 0, 1, QueueUnit(other.physical_offset, other.size, 0)).write()
    with OfflineStore(root) as store:
        assert bodies(store) == [b"mine", b"yours"]


# --- batch queues ----------------------------------------------------------------------------


def test_batch_queue_bounds_and_ranges(builder):
    for count in (3, 1, 5):
        builder.inner_batch(count)
    with OfflineStore(builder.write()) as store:
        assert bounds(store) == {"B/0": (0, 9)}
        assert offsets(store, "B") == [0, 3, 4]
        # A range begins with the batch that holds its first message.
        assert offsets(store, "B", begin=2) == [0, 3, 4]
        assert offsets(store, "B", begin=3, end=4) == [3]
        assert offsets(store, "B", begin=8) == [4]
        assert offsets(store, "B", begin=9) == []


def test_expired_batches_move_the_begin(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=400)
    for count in (3, 2, 4, 1):
        builder.inner_batch(count)
    first = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 400)
    with OfflineStore(builder.expire(1).write()) as store:
        begin = sum((3, 2, 4, 1)[:first])
        assert 0 < begin < 10
        assert bounds(store) == {"B/0": (begin, 10)}


def test_more_units_than_one_read(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1 << 20, queue_file_units=5000)
    with OfflineStore(builder.records(7000).write()) as store:
        assert bounds(store) == {"T/0": (0, 7000)}
        assert offsets(store) == list(range(7000))
