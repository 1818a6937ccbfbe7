"""A plain queue: putting, repeats, gaps, first numbers, files, reading."""

import logging
import threading

import numpy as np
import pytest
from queue_makers import (
    KEY,
    PER_FILE,
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
    run,
)

from rocketlake.errors import DiskFullError, StoreClosedError
from rocketlake.format.queue_unit import PREFILL


@pytest.fixture
def opened(tmp_path):
    queues = open_set(tmp_path)
    yield queues
    queues.close()


@pytest.fixture
def queue(opened):
    return opened.get_or_create(KEY)


# --- putting -------------------------------------------------------------------------------------


def test_new_queue_is_empty_and_makes_no_files(queue, tmp_path):
    assert bounds(queue) == (0, 0, -1)
    assert (offsets(queue), queue.slice(0), queue.mapped_size) == ([], None, 0)
    assert list(tmp_path.iterdir()) == []


def test_units_follow_each_other_in_files_of_the_reference(queue, tmp_path):
    put(queue, 0, 25)
    assert bounds(queue) == (0, 25, 2500)
    found = files(tmp_path)
    assert [base // 20 for base in found] == [0, 10, 20]
    assert b"".join(found.values()) == encoded(0, 25) + bytes(5 * 20)
    assert queue.mapped_size == 600


def test_first_unit_as_bytes(queue, tmp_path):
    queue.put(columns((0x0102030405060708, 0x090A0B0C, -2)), np.array([0]))
    want = bytes(range(1, 13)) + b"\xff" * 7 + b"\xfe"
    assert files(tmp_path)[0][:20] == want


@pytest.mark.parametrize("cuts", [[1] * 25, [9, 1, 15], [10, 10, 5], [3, 22], [24, 1]])
def test_rounds_of_any_size_give_the_same_bytes(queue, tmp_path, cuts):
    first = 0
    for count in cuts:
        put(queue, first, count)
        first += count
    assert b"".join(files(tmp_path).values()) == encoded(0, 25) + bytes(5 * 20)


def test_large_round_goes_through_files_that_are_mapped(tmp_path):
    """Thousands of units are written by a call, single ones are copied; both are read alike."""
    queues = open_set(tmp_path, file_size=20 * 5000)
    queue = queues.get_or_create(KEY)
    put(queue, 0, 1)
    put(queue, 1, 11_000)
    put(queue, 11_001, 1)
    assert offsets(queue) == list(range(0, 11_002 * SIZE, SIZE))
    assert bounds(queue) == (0, 11_002, 11_002 * SIZE)
    queues.close()
    assert b"".join(files(tmp_path).values()).rstrip(b"\0") == encoded(0, 11_002).rstrip(b"\0")


def test_nothing_put_changes_nothing(queue, tmp_path):
    queue.put(columns(), np.array([], np.int64))
    assert list(tmp_path.iterdir()) == []


def test_units_need_not_lie_together_in_memory(queue):
    units, numbers = run(0, 20)
    queue.put(units[::2], numbers[:10])
    assert offsets(queue) == list(range(0, 2000, 200))


def test_units_of_the_machine_s_own_byte_order_are_turned(queue, tmp_path):
    units, numbers = run(0, 3)
    queue.put(np.concatenate([units[:1], units[1:]]), numbers)  # numpy returns its own order
    assert files(tmp_path)[0][:60] == encoded(0, 3)


def test_packed_units_are_appended_as_they_are(queue, tmp_path):
    """Slices of one buffer, as dispatch hands them over."""
    data = memoryview(encoded(0, 25))
    queue.append_packed(data[:20], 0, 1, 0, 100)
    queue.append_packed(data[20:100], 1, 4, 100, 500)
    queue.append_packed(data[100:], 5, 20, 500, 2500)
    assert bounds(queue) == (0, 25, 2500)
    assert b"".join(files(tmp_path).values()) == encoded(0, 25) + bytes(5 * 20)


# --- repeats -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "count"), [(0, 25), (0, 10), (24, 1), (7, 11)])
def test_repeated_units_are_passed_over(queue, tmp_path, first, count):
    put(queue, 0, 25)
    before = files(tmp_path)
    put(queue, first, count)
    assert bounds(queue) == (0, 25, 2500)
    assert files(tmp_path) == before


@pytest.mark.parametrize("first", [0, 9, 10, 24, 25])
def test_what_is_new_behind_repeats_is_appended(queue, tmp_path, first):
    put(queue, 0, 25)
    put(queue, first, 32 - first)
    assert bounds(queue) == (0, 32, 3200)
    assert b"".join(files(tmp_path).values()) == encoded(0, 32) + bytes(8 * 20)


def test_packed_units_are_passed_over_too(queue):
    put(queue, 0, 5)
    data = memoryview(encoded(0, 8))
    queue.append_packed(data, 0, 8, 0, 800)
    queue.append_packed(data, 0, 8, 0, 800)
    assert offsets(queue) == [0, 100, 200, 300, 400, 500, 600, 700]


def test_new_record_with_an_old_number_is_passed_over(queue):
    """As after offsets were counted anew: the number decides."""
    put(queue, 0, 5)
    put(queue, 3, 4, begin=5000)
    assert offsets(queue) == [0, 100, 200, 300, 400, 5200, 5300]
    assert queue.max_physical_offset == 5400


def test_record_that_ends_where_the_last_one_does_is_a_repeat(queue):
    queue.put(columns((0, 100)), np.array([0]))
    queue.put(columns((50, 50)), np.array([1]))
    assert bounds(queue) == (0, 1, 100)
    queue.put(columns((50, 51)), np.array([1]))
    assert bounds(queue) == (0, 2, 101)


def test_number_0_is_never_a_repeat(queue):
    """The reference compares numbers only if they are not 0."""
    put(queue, 0, 3)
    put(queue, 0, 5, begin=1000)
    # Number 0 is appended as 3; 1, 2 and 3 are repeats then; 4 fits.
    assert offsets(queue) == [0, 100, 200, 1000, 1400]


# --- gaps ----------------------------------------------------------------------------------------


def test_units_behind_a_gap_keep_their_numbers(queue, caplog):
    put(queue, 0, 3)
    with caplog.at_level(logging.WARNING):
        put(queue, 5, 2)
        put(queue, 7, 2)
    assert offsets(queue) == [0, 100, 200, 300, 300, 500, 600, 700, 800]
    assert bounds(queue) == (0, 9, 900)
    assert [record.getMessage() for record in caplog.records] == [
        "queue goes on behind messages that are lost key=T/0 from=3 to=5"
    ]


def test_gap_over_several_files(queue):
    put(queue, 0, 3)
    put(queue, 35, 2)
    assert bounds(queue) == (0, 37, 3700)
    assert [unit["physical_offset"] for unit in queue.units(35, 9)] == [3500, 3600]


def test_queue_whose_messages_are_all_deleted_begins_anew_behind_a_gap(queue, tmp_path):
    put(queue, 0, 3)
    queue.correct_min(3400)
    put(queue, 35, 2)
    assert bounds(queue) == (35, 37, 3700)
    assert [unit["physical_offset"] for unit in queue.units(35, 9)] == [3500, 3600]
    assert len([*(tmp_path / "consumequeue/T/0").iterdir()]) == 1


def test_number_that_the_log_has_no_room_for_is_not_believed(queue, caplog):
    put(queue, 0, 3)
    with caplog.at_level(logging.WARNING):
        put(queue, 1 << 40, 1, begin=300)
    put(queue, 4, 1)
    assert offsets(queue) == [0, 100, 200, 300, 400]
    assert [record.getMessage() for record in caplog.records] == [
        f"units out of place: gap in queue offsets key=T/0 expected=3 found={1 << 40}"
    ]


def test_number_that_the_next_one_contradicts_is_not_believed(queue):
    """One damaged number must not hide the good records behind it."""
    put(queue, 0, 3)
    units = columns((1300,), (1400,), (1500,))
    queue.put(units, np.array([11, 4, 5]))
    assert offsets(queue) == [0, 100, 200, 1300, 1400, 1500]
    queue.put(units, np.array([11, 4, 5]))
    assert bounds(queue) == (0, 6, 1600), "and once only"


def test_gap_within_a_round(queue):
    units = columns((0,), (100,), (500,), (600,), (700,))
    queue.put(units, np.array([0, 1, 5, 6, 6]))
    # The second 6 is a repeat as far as its number tells.
    assert offsets(queue) == [0, 100, 200, 200, 200, 500, 600]


def test_left_out_shifts_are_told_at_the_end(opened, queue, caplog):
    put(queue, 0, 1)
    for number in range(10):
        put(queue, 1 << 40, 1, begin=100 + 100 * number)
    opened.close()
    assert caplog.records[-1].getMessage().endswith("left_out=9")


# --- the first number ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 9, 10, 11, 19, 20, 25, 1_000_003])
def test_first_unit_of_another_number_than_0_is_prefilled(queue, tmp_path, number):
    put(queue, number, 3)
    assert bounds(queue) == (number, number + 3, (number + 3) * SIZE)
    assert offsets(queue) == [SIZE * n for n in range(number, number + 3)]
    found = files(tmp_path)
    base = number // PER_FILE * PER_FILE
    assert next(iter(found)) == base * 20
    data = b"".join(found.values())
    want = PREFILL * (number - base) + encoded(number, 3)
    assert data == want + bytes(len(found) * 200 - len(want))


def test_prefilled_places_are_not_read(queue):
    put(queue, 7, 3)
    assert queue.slice(6) is None
    assert len(queue.units(6, 1)) == 0
    assert queue.units(7, 1)["physical_offset"].tolist() == [700]


def test_prefill_hides_no_record_of_the_first_two_gigabytes(queue, tmp_path):
    """Pre-fill has the largest size there is; who trusts it takes all the rest for repeats."""
    put(queue, 5, 1)
    assert queue.max_physical_offset == 600
    truncated = reopen(tmp_path).find(KEY)
    truncated.truncate(500)
    assert bounds(truncated) == (5, 5, -1)
    put(truncated, 5, 2)
    assert offsets(truncated) == [500, 600]


def test_prefill_that_a_crash_cut_short_is_completed(queue, tmp_path):
    """The reference would append at the end of what is there, at the wrong place."""
    put(queue, 15, 1)
    path = next((tmp_path / "consumequeue/T/0").iterdir())
    path.write_bytes(PREFILL * 2 + bytes(160))
    recovered = reopen(tmp_path, 0).find(KEY)
    assert bounds(recovered) == (12, 12, -1)
    put(recovered, 15, 2)
    assert bounds(recovered) == (15, 17, 1700)
    assert files(tmp_path)[200] == PREFILL * 5 + encoded(15, 2) + bytes(60)


@pytest.mark.parametrize("number", [0, 3, 9, 14, 20, 35])
def test_queue_that_lost_all_units_begins_where_its_next_one_says(queue, tmp_path, number):
    put(queue, 12, 1)
    path = next((tmp_path / "consumequeue/T/0").iterdir())
    path.write_bytes(bytes(200))
    recovered = reopen(tmp_path, 0).find(KEY)
    assert bounds(recovered) == (10, 10, -1)
    put(recovered, number, 2)
    assert bounds(recovered) == (number, number + 2, (number + 2) * SIZE)
    assert offsets(recovered) == [number * SIZE, number * SIZE + SIZE]
    base = number // 10 * 10
    want = PREFILL * (number - base) + encoded(number, 2)
    assert b"".join(files(tmp_path).values())[: len(want)] == want


# --- full disk -----------------------------------------------------------------------------------


def test_full_disk_is_told_and_a_repeat_goes_on(tmp_path):
    """The second file cannot be made: what the first one took stays, nothing is twice."""
    ops = CountingOps()
    queue = open_set(tmp_path, ops).get_or_create(KEY)
    ops.room = 1
    with pytest.raises(DiskFullError):
        put(queue, 0, 15)
    assert bounds(queue) == (0, 10, 1000)
    with pytest.raises(DiskFullError):
        put(queue, 0, 15)
    ops.room = 9
    put(queue, 0, 15)
    assert offsets(queue) == list(range(0, 1500, 100))


def test_file_that_cannot_grow_takes_nothing(tmp_path):
    ops = CountingOps()
    queue = open_set(tmp_path, ops, file_size=20 * 10_000).get_or_create(KEY)
    put(queue, 0, 3000)
    ops.is_full = True
    put(queue, 3000, 276)  # space is taken in steps of 64 KiB
    with pytest.raises(DiskFullError):
        put(queue, 3276, 1)
    assert queue.max_offset == 3276
    ops.is_full = False
    put(queue, 3276, 1)
    assert queue.max_offset == 3277


def test_prefill_without_space_is_done_at_the_next_try(tmp_path):
    ops = CountingOps()
    queue = open_set(tmp_path, ops).get_or_create(KEY)
    ops.is_full = True
    with pytest.raises(DiskFullError):
        put(queue, 15, 1)
    assert (queue.max_offset, queue.slice(10)) == (0, None)
    ops.is_full = False
    put(queue, 15, 1)
    assert bounds(queue) == (15, 16, 1600)
    assert offsets(queue) == [1500]


# --- reading -------------------------------------------------------------------------------------


def test_slices_reach_to_the_end_of_their_file(queue):
    put(queue, 0, 25)
    for first, last in ((0, 9), (9, 9), (10, 19), (20, 24), (24, 24)):
        with queue.slice(first) as found:
            assert found.start_offset == first * 20
            assert bytes(found.view) == encoded(first, last - first + 1)


@pytest.mark.parametrize("number", [-1, -10, 25, 26, 100])
def test_nothing_lies_outside(queue, number):
    put(queue, 0, 25)
    assert queue.slice(number) is None
    assert len(queue.units(number, 5)) == 0


def test_units_are_copies_and_do_not_cross_a_file(queue):
    put(queue, 0, 25)
    assert queue.units(8, 5)["physical_offset"].tolist() == [800, 900]
    assert queue.units(20, 50)["tags_code"].tolist() == [20, 21, 22, 23, 24]
    assert len(queue.units(3, 0)) == 0


def test_next_file_begins_at_whole_files(queue):
    assert [queue.roll_next(number) for number in (0, 9, 10, 24)] == [10, 10, 20, 30]


def test_readers_meet_whole_units_only(queue):
    """One puts, one reads up to the end it sees: never a zero, never a unit too few."""
    wrong = []
    done = threading.Event()

    def read():
        while not done.is_set():
            end = queue.max_offset
            if end:
                unit = queue.units(end - 1, 1)
                if unit["physical_offset"].tolist() != [(end - 1) * SIZE] or unit["size"] != SIZE:
                    wrong.append((end, unit))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(2000):
        put(queue, number, 1)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_queue_file_of_broken_units_is_refused(tmp_path):
    with pytest.raises(ValueError, match="201 bytes does not hold whole units of 20"):
        open_set(tmp_path, file_size=201).get_or_create(KEY)


# --- flush ---------------------------------------------------------------------------------------


def test_flush_waits_for_pages_and_covers_all_files(tmp_path):
    queue = open_set(tmp_path, file_size=20 * 1000).get_or_create(KEY)
    assert not queue.flush(0)
    put(queue, 0, 204)  # 4,080 bytes: no page is full
    assert not queue.flush(1)
    put(queue, 204, 1)
    assert queue.flush(1)
    assert not queue.flush(0), "nothing is new"
    put(queue, 205, 1)
    assert not queue.flush(2)
    assert queue.flush(0)
    put(queue, 206, 2500)
    assert queue.flush(0), "two rolled files and the last one"
    assert not queue.flush(0)


def test_full_file_is_flushed_however_few_pages_are_new(queue):
    put(queue, 0, 9)
    assert not queue.flush(2)
    put(queue, 9, 1)
    assert queue.flush(2)


def test_flush_of_a_prefilled_queue(queue):
    put(queue, 25, 2)
    assert queue.flush(0)
    assert not queue.flush(0)


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 10])
def test_closed_queue_reads_and_takes_nothing(queue, tmp_path, count):
    put(queue, 0, count)
    queue.close()
    assert queue.slice(0) is None
    assert len(queue.units(0, 3)) == 0
    with pytest.raises(StoreClosedError):
        put(queue, count, 1)
    assert files(tmp_path) == {0: encoded(0, count) + bytes((10 - count) * 20)}


def test_destroyed_queue_is_empty_and_can_be_used_again(queue, tmp_path):
    put(queue, 0, 25)
    held = queue.slice(3)
    queue.destroy()
    assert bounds(queue) == (0, 0, -1)
    assert not (tmp_path / "consumequeue/T/0").exists()
    assert bytes(held.view) == encoded(3, 7), "who holds a file keeps its bytes"
    held.close()
    put(queue, 0, 2)
    assert offsets(queue) == [0, 100]
