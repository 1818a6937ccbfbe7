"""A plain queue after a stop: its end, cutting, the lowest offset, expiry."""

import os

import numpy as np
import pytest
from queue_makers import (
    KEY,
    SIZE,
    CountingOps,
    bounds,
    columns,
    encoded,
    files,
    offsets,
    open_set,
    put,
    reopen,
)

from rocketlake.errors import FileSizeError
from rocketlake.format.queue_unit import PREFILL, QueueUnit


@pytest.fixture
def write(tmp_path):
    """Put units into a queue and close it; return the directory of its files."""

    def write(first, count, **shape):
        queues = open_set(tmp_path, **shape)
        put(queues.get_or_create(KEY), first, count)
        queues.close()
        return tmp_path / "consumequeue/T/0"

    return write


def path_of(place, number):
    return place / f"{number // 10 * 200:020d}"


def overwrite(place, number, data):
    with path_of(place, number).open("r+b") as file:
        file.seek(number % 10 * 20)
        file.write(data)


def recovered(root, log_min=None, *, is_clean=False, **shape):
    return reopen(root, log_min, is_clean=is_clean, **shape).find(KEY)


# --- the end -------------------------------------------------------------------------------------


def test_stale_units_do_not_come_back_behind_new_ones(write, tmp_path):
    """RocketMQ cuts by moving positions: whole units may lie behind the end of a clean store."""
    place = write(0, 8)
    overwrite(place, 3, bytes(20))
    queue = recovered(tmp_path, is_clean=True)
    assert bounds(queue)[:2] == (0, 3)
    put(queue, 3, 1)
    queue.flush(0)
    assert recovered(tmp_path).max_offset == 4


@pytest.mark.parametrize(("count", "left"), [(0, 0), (10, 1), (13, 2)])
def test_file_in_which_a_crash_left_no_unit_goes(write, tmp_path, count, left):
    """RocketMQ would count the first zeros of it as a unit when it cuts."""
    place = write(0, count) if count else tmp_path / "consumequeue/T/0"
    place.mkdir(parents=True, exist_ok=True)
    path_of(place, -(-count // 10) * 10).write_bytes(bytes(200))
    queue = recovered(tmp_path)
    assert queue.max_offset == count
    assert len(list(place.iterdir())) == left
    put(queue, count, 1)
    assert queue.max_offset == count + 1


def test_clean_start_changes_no_queue_and_opens_each_once(write, tmp_path):
    place = write(0, 8)
    overwrite(place, 3, bytes(20))
    before = files(tmp_path)
    ops = CountingOps()
    reopen(tmp_path, 0, is_clean=True, ops=ops)
    assert ops.opened == 1
    assert files(tmp_path) == before


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 25, 30, 47])
def test_end_is_found(write, tmp_path, count, is_clean):
    write(0, count)
    before = files(tmp_path)
    queue = recovered(tmp_path, is_clean=is_clean)
    assert bounds(queue) == (0, count, count * SIZE)
    assert files(tmp_path) == before
    put(queue, count, 5)
    assert offsets(queue) == list(range(0, (count + 5) * SIZE, SIZE))


@pytest.mark.parametrize("is_clean", [True, False])
def test_end_is_found_in_a_file_of_many_reads(tmp_path, is_clean):
    """More units than one read brings, none, and a full file."""
    for count in (204, 205, 3000, 99_999, 100_000):
        root = tmp_path / str(count)
        queues = open_set(root, file_size=2_000_000)
        put(queues.get_or_create(KEY), 0, count)
        queues.close()
        queue = recovered(root, is_clean=is_clean, file_size=2_000_000)
        assert bounds(queue) == (0, count, count * SIZE)


def test_search_after_a_clean_stop_reads_little(write, tmp_path):
    write(0, 90_000, file_size=2_000_000)
    ops = CountingOps()
    queues = open_set(tmp_path, ops, file_size=2_000_000)
    queues.load()
    assert ops.opened == 0, "files are opened when they are needed"
    queues.recover(is_clean=True)
    queue = queues.find(KEY)
    assert queue.max_offset == 90_000
    assert ops.opened <= 3


@pytest.mark.parametrize(
    "bad", [bytes(20), QueueUnit(-1, 100, 0).encode(), QueueUnit(700, 0, 0).encode()]
)
def test_first_bad_unit_is_the_end_and_what_follows_becomes_zeros(write, tmp_path, bad):
    place = write(0, 25)
    overwrite(place, 7, bad)
    queue = recovered(tmp_path)
    assert bounds(queue) == (0, 7, 700)
    assert files(tmp_path) == {0: encoded(0, 7) + bytes(60)}


def test_bad_unit_before_the_last_three_files_is_not_seen(write, tmp_path):
    """As the reference, which begins at the third file from the end."""
    place = write(0, 45)
    overwrite(place, 15, bytes(20))
    assert recovered(tmp_path).max_offset == 45
    overwrite(place, 25, bytes(20))
    queue = recovered(tmp_path)
    assert bounds(queue) == (0, 25, 2500)
    assert [base // 20 for base in files(tmp_path)] == [0, 10, 20]


def test_empty_file_behind_full_ones_counts_nothing(write, tmp_path):
    place = write(0, 20)
    path_of(place, 20).write_bytes(bytes(200))
    queue = recovered(tmp_path)
    assert bounds(queue) == (0, 20, 2000)
    put(queue, 20, 1)
    assert offsets(queue)[-1] == 2000


def test_end_of_the_last_real_unit_is_found_before_the_files_looked_at(write, tmp_path):
    place = write(0, 25)
    for number in (20, 30, 40):
        path_of(place, number).write_bytes(bytes(200))
    queue = recovered(tmp_path)
    assert bounds(queue) == (0, 20, 2000)
    put(queue, 20, 1)
    assert bounds(queue) == (0, 21, 2100)


def test_units_of_an_unclean_stop_are_flushed_again(write, tmp_path):
    """They may be in memory only: the process was killed, not the machine."""
    write(0, 25)
    for is_clean in (False, True):
        ops = CountingOps()
        queues = open_set(tmp_path, ops)
        queues.load()
        queues.recover(is_clean=is_clean)
        ops.synced = 0
        assert queues.flush(0) != is_clean
        assert ops.synced == (0 if is_clean else 3)
        assert not queues.flush(0)


def test_no_files_no_units(tmp_path):
    (tmp_path / "consumequeue/T/0").mkdir(parents=True)
    queue = recovered(tmp_path, 500)
    assert bounds(queue) == (0, 0, -1)
    put(queue, 0, 1)
    assert queue.max_offset == 1


def test_file_of_another_size_is_refused(write, tmp_path):
    place = write(0, 5)
    os.truncate(path_of(place, 0), 180)
    with pytest.raises(FileSizeError, match=r"180 bytes, .* have 200"):
        recovered(tmp_path)


# --- truncate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_offset", "count"),
    [(9999, 25), (2500, 25), (2499, 25), (2400, 24), (2001, 21), (2000, 20), (1999, 20), (50, 1)],
)
def test_units_at_or_behind_an_offset_are_dropped(write, tmp_path, log_offset, count):
    write(0, 25)
    queue = recovered(tmp_path)
    queue.truncate(log_offset)
    assert bounds(queue) == (0, count, count * SIZE)
    whole = -(-count // 10) * 10
    assert b"".join(files(tmp_path).values()) == encoded(0, count) + bytes((whole - count) * 20)
    put(queue, count, 3)
    assert offsets(queue) == list(range(0, (count + 3) * SIZE, SIZE))


def test_queue_that_loses_everything_has_no_files(write, tmp_path):
    """An empty file would be a trap: the reference, cutting again, counts its first zeros."""
    write(0, 25)
    queue = recovered(tmp_path)
    queue.truncate(0)
    assert bounds(queue) == (0, 0, -1)
    assert files(tmp_path) == {}
    put(queue, 4, 1)
    assert bounds(queue) == (4, 5, 500)


def test_queue_that_loses_everything_keeps_its_count(write, tmp_path):
    """Older files expired: the name of the first one left is all that tells the next number."""
    write(30, 15)
    queue = recovered(tmp_path)
    queue.truncate(3000)
    assert bounds(queue) == (30, 30, -1)
    assert files(tmp_path) == {600: bytes(200)}
    put(queue, 30, 1)
    assert offsets(queue) == [3000]
    assert bounds(recovered(tmp_path, 0)) == (30, 31, 3100)


def test_prefilled_places_survive_a_cut(write, tmp_path):
    write(5, 3)
    queue = recovered(tmp_path)
    queue.truncate(600)
    assert queue.max_offset == 6
    assert files(tmp_path) == {0: PREFILL * 5 + encoded(5, 1) + bytes(80)}


def test_empty_last_file_is_not_counted_by_a_cut(write, tmp_path):
    place = write(0, 20)
    path_of(place, 20).write_bytes(bytes(200))
    queue = recovered(tmp_path)
    queue.truncate(1950)
    assert bounds(queue) == (0, 20, 2000)
    queue.truncate(1900)
    assert bounds(queue) == (0, 19, 1900)
    assert [base // 20 for base in files(tmp_path)] == [0, 10]


def test_cut_queue_takes_the_lost_records_again(write, tmp_path):
    write(0, 25)
    queue = recovered(tmp_path)
    queue.truncate(1234)
    put(queue, 0, 25)
    assert offsets(queue) == list(range(0, 2500, SIZE))


def test_lowest_offset_stays_below_the_highest(write, tmp_path):
    write(0, 25)
    queue = recovered(tmp_path, 2000)
    assert bounds(queue) == (20, 25, 2500)
    queue.truncate(1500)
    assert bounds(queue) == (15, 15, 1500)


# --- the lowest offset ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_min", "first"), [(0, 0), (1, 1), (900, 9), (901, 10), (2400, 24), (2401, 25), (9999, 25)]
)
def test_lowest_offset_is_that_of_the_first_record_left(write, tmp_path, log_min, first):
    write(0, 25)
    assert recovered(tmp_path, log_min).min_offset == first


def test_lowest_offset_rises_with_the_log_and_never_falls(write, tmp_path):
    write(0, 25)
    queue = recovered(tmp_path, 0)
    for log_min, first in ((500, 5), (300, 5), (1500, 15), (5000, 25), (0, 25)):
        queue.correct_min(log_min)
        assert queue.min_offset == first
    put(queue, 25, 3, begin=6000)
    queue.correct_min(5500)
    assert bounds(queue) == (25, 28, 6300)


def test_prefilled_places_are_below_the_lowest_offset(write, tmp_path):
    write(17, 3)
    assert recovered(tmp_path, 0).min_offset == 17


def test_expired_queue_keeps_its_count(write, tmp_path):
    """5.x: nothing is left, and the next message has the next number."""
    write(0, 25)
    assert bounds(recovered(tmp_path, 1 << 40)) == (25, 25, 2500)


@pytest.mark.parametrize(
    ("log_min", "first"), [(0, 0), (1, 1), (900, 9), (901, 0), (2400, 0), (9999, 0)]
)
def test_4x_looks_at_the_first_file_only(write, tmp_path, log_min, first):
    write(0, 25)
    queue = recovered(tmp_path, log_min, is_4x=True)
    assert queue.min_offset == first


def test_4x_finds_the_lowest_offset_anew_each_time(write, tmp_path):
    write(0, 25)
    queue = recovered(tmp_path, 500, is_4x=True)
    queue.correct_min(300)
    assert queue.min_offset == 3


def test_lowest_offset_is_found_without_mapping(write, tmp_path):
    """Looking at one unit of each of ten thousand queues must not map them."""
    write(0, 25)
    queue = recovered(tmp_path, 700)
    assert queue.min_offset == 7
    assert [len(file.buffer) for file in queue._units.files.files] == [0, 0, 0]


# --- expiry --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_min", "deleted", "first"),
    [(0, 0, 0), (900, 0, 9), (901, 1, 10), (1900, 1, 19), (1901, 2, 20), (2200, 2, 22)],
)
def test_files_of_expired_records_are_deleted(write, tmp_path, log_min, deleted, first):
    write(0, 25)
    queue = recovered(tmp_path, 0)
    assert queue.delete_expired(log_min) == deleted
    assert [base // 20 for base in files(tmp_path)] == [0, 10, 20][deleted:]
    assert bounds(queue) == (first, 25, 2500)
    assert offsets(queue) == list(range(first * SIZE, 2500, SIZE))
    assert queue.slice(first - 1) is None


@pytest.mark.parametrize("is_4x", [True, False])
def test_last_file_is_never_deleted(write, tmp_path, is_4x):
    write(0, 25)
    queue = recovered(tmp_path, 0, is_4x=is_4x)
    assert queue.delete_expired(1 << 40) == 2
    assert [base // 20 for base in files(tmp_path)] == [20]
    assert queue.min_offset == (0 if is_4x else 25)
    put(queue, 25, 1)
    assert queue.max_offset == 26


def test_prefilled_file_is_deleted_with_its_records(write, tmp_path):
    write(8, 10)
    queue = recovered(tmp_path, 0)
    assert queue.delete_expired(1000) == 1
    assert bounds(queue) == (10, 18, 1800)


def test_missing_file_in_the_middle_is_no_reason_to_fail(write, tmp_path):
    place = write(0, 45)
    path_of(place, 10).unlink()
    queue = recovered(tmp_path, 0)
    assert bounds(queue) == (0, 45, 4500)
    assert queue.slice(12) is None
    assert len(queue.units(12, 5)) == 0
    queue.truncate(2150)  # a search that meets the missing file
    assert bounds(queue) == (0, 22, 2200)
    assert queue.delete_expired(2000) == 1
    assert queue.min_offset == 20


def test_units_may_point_anywhere(tmp_path):
    """Light queues and retries: the log lies between, and numbers do not follow the offsets."""
    queue = open_set(tmp_path).get_or_create(KEY)
    queue.put(columns((7, 3), (900, 50), (10_000, 1)), np.arange(3))
    queue.correct_min(8)
    assert bounds(queue) == (1, 3, 10_001)
    queue.truncate(900)
    assert queue.max_offset == 1
