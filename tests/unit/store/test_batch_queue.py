"""A batch queue: units that stand for several messages."""

import numpy as np
import pytest
from queue_makers import CountingOps, columns, files, open_set, reopen

from rocketlake.errors import DiskFullError
from rocketlake.format.queue_unit import BatchUnit
from rocketlake.model.queues import QueueKey

KEY = QueueKey("B", 0)
TIME = 1_700_000_000_000
COUNTS = (3, 1, 2, 5)  # messages of one batch after the other, again and again


def batches(first, count):
    """Batches number `first` and on: each record has 100 bytes, and starts one second later."""
    numbers = range(first, first + count)
    units = columns(*((100 * number, 100, -number) for number in numbers))
    bases = np.array([base_of(number) for number in numbers], np.int64)
    times = np.array([TIME + 1000 * number for number in numbers], np.int64)
    sizes = np.array([COUNTS[number % 4] for number in numbers], np.int64)
    return units, bases, times, sizes


def base_of(number):
    return number // 4 * sum(COUNTS) + sum(COUNTS[: number % 4])


def put(queue, first, count):
    queue.put(*batches(first, count))


def encoded(first, count):
    units, bases, times, sizes = batches(first, count)
    return b"".join(
        BatchUnit(
            physical_offset=int(unit["physical_offset"]),
            size=int(unit["size"]),
            tags_code=int(unit["tags_code"]),
            store_timestamp=int(time),
            base_queue_offset=int(base),
            batch_size=int(size),
        ).encode()
        for unit, base, time, size in zip(units, bases, times, sizes, strict=True)
    )


def bounds(queue):
    return queue.min_offset, queue.max_offset, queue.max_physical_offset


@pytest.fixture
def queue(tmp_path):
    queues = open_set(tmp_path)
    yield queues.get_or_create(KEY, is_batch=True)
    queues.close()


def recovered(root, log_min=None, **shape):
    return reopen(root, log_min, **shape).find(KEY)


# --- putting -------------------------------------------------------------------------------------


def test_new_queue_is_empty(queue, tmp_path):
    assert bounds(queue) == (0, 0, -1)
    assert (queue.slice(0), len(queue.units(0, 9))) == (None, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cuts", [[25], [1] * 25, [10, 15], [9, 2, 14]])
def test_units_follow_each_other_in_files_of_the_reference(queue, tmp_path, cuts):
    first = 0
    for count in cuts:
        put(queue, first, count)
        first += count
    found = files(tmp_path, "batchconsumequeue", KEY)
    assert list(found) == [0, 460, 920]
    assert b"".join(found.values()) == encoded(0, 25) + bytes(5 * 46)
    assert bounds(queue) == (0, 69, 2500)


@pytest.mark.parametrize(("first", "count"), [(0, 25), (24, 1), (3, 9)])
def test_repeated_records_are_passed_over(queue, tmp_path, first, count):
    put(queue, 0, 25)
    before = files(tmp_path, "batchconsumequeue", KEY)
    put(queue, first, count)
    assert files(tmp_path, "batchconsumequeue", KEY) == before
    assert bounds(queue) == (0, 69, 2500)


@pytest.mark.parametrize("first", [0, 12, 24])
def test_what_is_new_behind_repeats_is_appended(queue, tmp_path, first):
    put(queue, 0, 25)
    put(queue, first, 30 - first)
    assert b"".join(files(tmp_path, "batchconsumequeue", KEY).values()) == encoded(0, 30)


def test_first_record_may_have_any_offset(queue, tmp_path):
    """No pre-fill here: files count bytes, queue offsets are in the units."""
    put(queue, 5, 2)
    assert bounds(queue) == (base_of(5), base_of(7), 700)
    assert list(files(tmp_path, "batchconsumequeue", KEY)) == [0]


def test_gap_in_offsets_is_kept(queue):
    put(queue, 0, 2)
    put(queue, 4, 1)
    assert bounds(queue) == (0, base_of(5), 500)
    assert queue.units(base_of(4), 1)["physical_offset"].tolist() == [400]


@pytest.mark.parametrize(("base", "size"), [(-1, 1), (5, 0), (5, -1), (5, 40_000)])
def test_record_that_says_no_place_is_passed_over(queue, caplog, base, size):
    units, bases, times, sizes = batches(0, 3)
    bases[1], sizes[1] = base, size
    queue.put(units, bases, times, sizes)
    assert queue.units(0, 9)["physical_offset"].tolist() == [0, 200]
    assert "records without a place in their batch queue key=B/0 count=1" in caplog.text
    queue.put(*(column[:0] for column in batches(0, 1)))
    assert queue.max_offset == base_of(3)


def test_full_disk_is_told_and_a_repeat_goes_on(tmp_path):
    ops = CountingOps()
    queue = open_set(tmp_path, ops).get_or_create(KEY, is_batch=True)
    ops.room = 1
    with pytest.raises(DiskFullError):
        put(queue, 0, 25)
    assert bounds(queue) == (0, base_of(10), 1000)
    ops.room = 9
    put(queue, 0, 25)
    assert bounds(queue) == (0, 69, 2500)
    assert b"".join(files(tmp_path, "batchconsumequeue", KEY).values())[: 25 * 46] == encoded(0, 25)


# --- reading -------------------------------------------------------------------------------------


def test_every_offset_finds_its_unit(queue):
    put(queue, 0, 25)
    for number in range(25):
        for offset in range(base_of(number), base_of(number + 1)):
            assert queue.units(offset, 1)["physical_offset"].tolist() == [100 * number]
            with queue.slice(offset) as found:
                last = min(number // 10 * 10 + 10, 25)
                assert bytes(found.view) == encoded(number, last - number)


@pytest.mark.parametrize("offset", [-1, 69, 70, 1000])
def test_nothing_lies_outside(queue, offset):
    put(queue, 0, 25)
    assert queue.slice(offset) is None
    assert len(queue.units(offset, 1)) == 0


def test_next_file_begins_with_its_first_batch(queue):
    put(queue, 0, 25)
    ends = [queue.roll_next(offset) for offset in (0, base_of(10) - 1, base_of(10), base_of(20))]
    assert ends == [base_of(10), base_of(10), base_of(20), 69]


# --- after a stop --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("count", [1, 10, 11, 25, 30])
def test_end_is_found(queue, tmp_path, count, is_clean):
    put(queue, 0, count)
    again = recovered(tmp_path, is_clean=is_clean)
    assert bounds(again) == (0, base_of(count), 100 * count)
    put(again, count, 1)
    assert again.units(base_of(count), 1)["physical_offset"].tolist() == [100 * count]


def changed(**fields):
    """The eighth unit, with some fields changed."""
    good = BatchUnit.decode(encoded(7, 1))
    values = {name: getattr(good, name) for name in good.__struct_fields__}
    return BatchUnit(**(values | fields)).encode()


@pytest.mark.parametrize(
    "bad",
    [
        bytes(46),
        changed(physical_offset=-1),
        changed(size=0),
        changed(base_queue_offset=-1),
        changed(batch_size=0),
    ],
)
def test_first_bad_unit_is_the_end(queue, tmp_path, bad):
    put(queue, 0, 25)
    with (tmp_path / "batchconsumequeue/B/0" / f"{0:020d}").open("r+b") as file:
        file.seek(7 * 46)
        file.write(bad)
    assert bounds(recovered(tmp_path)) == (0, base_of(7), 700)
    assert files(tmp_path, "batchconsumequeue", KEY) == {0: encoded(0, 7) + bytes(3 * 46)}


@pytest.mark.parametrize(
    ("log_offset", "count"), [(2500, 25), (2499, 25), (2400, 24), (2000, 20), (1, 1), (0, 0)]
)
def test_units_at_or_behind_an_offset_are_dropped(queue, tmp_path, log_offset, count):
    put(queue, 0, 25)
    again = recovered(tmp_path)
    assert again.slice(base_of(24)).close() is None, "so that first offsets are remembered"
    again.truncate(log_offset)
    assert bounds(again) == (0, base_of(count), 100 * count or -1)
    put(again, count, 25 - count)
    assert bounds(again) == (0, 69, 2500)
    assert again.units(68, 1)["physical_offset"].tolist() == [2400]


@pytest.mark.parametrize(
    ("log_min", "number"), [(0, 0), (1, 1), (900, 9), (901, 10), (2400, 24), (9999, 25)]
)
def test_lowest_offset_is_that_of_the_first_record_left(queue, tmp_path, log_min, number):
    put(queue, 0, 25)
    again = recovered(tmp_path, log_min)
    assert again.min_offset == base_of(number)
    again.correct_min(0)
    assert again.min_offset == 0, "found anew each time, as the reference does"


def test_files_of_expired_records_are_deleted(queue, tmp_path):
    put(queue, 0, 25)
    assert queue.delete_expired(1200) == 1
    assert list(files(tmp_path, "batchconsumequeue", KEY)) == [460, 920]
    assert bounds(queue) == (base_of(12), 69, 2500)
    assert queue.slice(base_of(12) - 1) is None
    assert queue.units(base_of(12), 1)["physical_offset"].tolist() == [1200]
    assert queue.delete_expired(1 << 40) == 1
    assert bounds(queue) == (69, 69, 2500)
    put(queue, 25, 1)
    assert bounds(queue) == (69, base_of(26), 2600)


def test_destroyed_queue_can_be_used_again(queue, tmp_path):
    put(queue, 0, 25)
    queue.units(5, 1)
    queue.destroy()
    assert bounds(queue) == (0, 0, -1)
    assert not (tmp_path / "batchconsumequeue/B/0").exists()
    put(queue, 3, 12)
    for number in range(3, 15):
        assert queue.units(base_of(number), 1)["physical_offset"].tolist() == [100 * number]


def test_flush_covers_all_files(queue):
    put(queue, 0, 25)
    assert queue.flush(0)
    assert not queue.flush(0)
