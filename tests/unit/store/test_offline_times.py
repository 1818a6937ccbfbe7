"""Queue offsets by time on made queues: 5.x's bounds, 4.x's nearest message."""

import os

import pytest

from rocketlake.format.queue_unit import PREFILL
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import Boundary, OfflineStore
from support.store_builder import StoreBuilder

T = QueueKey("T", 0)
T1, T2, T3 = 1_700_000_001_000, 1_700_000_002_000, 1_700_000_003_000


def queue(tmp_path, times, **shape):
    builder = StoreBuilder(tmp_path, **({"log_file_size": 4000} | shape))
    for time in times:
        builder.record(stored=time)
    return builder


def both(store, time):
    return store.offset_by_time(T, time), store.offset_by_time(T, time, Boundary.UPPER)


def test_example_of_the_reference(tmp_path):
    """Times t1,t1,t1,t3,t3 at 1..5, asked for t2: lower 4, upper 3."""
    builder = queue(tmp_path, [T1 - 1000, T1, T1, T1, T3, T3])
    with OfflineStore(builder.write()) as store:
        assert both(store, T2) == (4, 3)
        assert both(store, T1) == (1, 3)
        assert both(store, T3) == (4, 5)
        assert both(store, T1 - 1) == (1, 0)
        assert both(store, T1 + 1) == (4, 3)


def test_before_the_first_and_behind_the_last(tmp_path):
    with OfflineStore(queue(tmp_path, [T1, T2, T3]).write()) as store:
        assert both(store, T1 - 1) == (0, 0)
        assert both(store, 0) == (0, 0)
        assert both(store, -1) == (0, 0)
        assert both(store, T3 + 1) == (3, 2)
        assert both(store, 1 << 62) == (3, 2)


def test_one_message(tmp_path):
    with OfflineStore(queue(tmp_path, [T2]).write()) as store:
        assert both(store, T1) == (0, 0)
        assert both(store, T2) == (0, 0)
        assert both(store, T3) == (1, 0)


def test_rolled_queue_files(tmp_path):
    """Three units a file; every bound of 12 messages, two of each time."""
    times = [T1 + number // 2 * 10 for number in range(12)]
    with OfflineStore(queue(tmp_path, times, queue_file_units=3).write()) as store:
        for number in range(6):
            time = T1 + number * 10
            lower, upper = both(store, time)
            # Where two equal times lie in two files, a bound stays in the file it looks at.
            assert times[lower] == times[upper] == time
            assert lower == 2 * number
            assert upper == 2 * number + 1
            assert both(store, time + 5) == (2 * number + 2, 2 * number + 1)


def test_expired_head_is_not_found(tmp_path):
    """Ten records a file; the first two log files are gone."""
    builder = queue(tmp_path, [T1 + n * 10 for n in range(30)], log_file_size=1000)
    first = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 2000)
    with OfflineStore(builder.expire(2).write()) as store:
        assert store.queues[T].min_offset == first
        assert both(store, T1) == (first, first)
        assert both(store, T1 + first * 10) == (first, first)
        assert both(store, T1 + first * 10 + 5) == (first + 1, first)
        assert both(store, T1 + 290) == (29, 29)


def test_wholly_expired_queue_answers_its_end(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000).record(stored=T1).record(stored=T2)
    with OfflineStore(builder.roll().record("U", stored=T3).expire(1).write()) as store:
        assert both(store, T1) == (2, 2)
        assert both(store, T3) == (2, 2)


def test_units_not_yet_dispatched_are_found_too(tmp_path):
    builder = queue(tmp_path, [T1, T2]).record(stored=T3, dispatched=False).unclean()
    with OfflineStore(builder.write()) as store:
        assert both(store, T3) == (2, 2)
        assert both(store, T2 + 1) == (2, 1)
        assert store.time_bounds(T) == (T1, T3)


def test_prefilled_queue(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=4000)
    for number in range(7):
        builder.unit("T", 0, number, PREFILL)
    builder.record(queue_offset=7, stored=T1).record(queue_offset=8, stored=T2)
    with OfflineStore(builder.write()) as store:
        assert both(store, T1 - 1) == (7, 7)
        assert both(store, T2) == (8, 8)
        assert store.time_bounds(T) == (T1, T2)


def test_times_that_run_backwards_end(tmp_path):
    """A clock that was set back: any answer within the bounds, and no endless search."""
    times = [T3, T1, T2, T1, T3, T1, T2, T2]
    with OfflineStore(queue(tmp_path, times, queue_file_units=3).write()) as store:
        for time in (T1 - 1, T1, T2, T2 + 1, T3, T3 + 1):
            assert all(0 <= offset <= 8 for offset in both(store, time))
            assert 0 <= store.nearest_offset_by_time(T, time) <= 8


def test_no_such_queue(tmp_path):
    with OfflineStore(queue(tmp_path, [T1]).write()) as store:
        for look_up in (store.offset_by_time, store.nearest_offset_by_time):
            with pytest.raises(KeyError):
                look_up(QueueKey("None", 0), T1)


def test_time_bounds(tmp_path):
    with OfflineStore(queue(tmp_path, [T1, T2, T3]).write()) as store:
        assert store.time_bounds(T) == (T1, T3)
        assert store.last_timestamp() == T3


# --- batch queues ----------------------------------------------------------------------------


def test_batch_queue_answers_with_first_offsets(tmp_path):
    """Batches of 3, 2 and 4 messages; the answer is the offset a batch begins with."""
    builder = StoreBuilder(tmp_path, log_file_size=4000)
    for count in (3, 2, 4):
        builder.inner_batch(count)
    times = [place.store_timestamp for place in builder.placed]
    key = QueueKey("B", 0)
    with OfflineStore(builder.write()) as store:
        assert [store.offset_by_time(key, time) for time in times] == [0, 3, 5]
        upper = [store.offset_by_time(key, time, Boundary.UPPER) for time in times]
        assert upper == [0, 3, 5]
        assert store.offset_by_time(key, times[-1] + 1) == 5
        assert store.offset_by_time(key, times[0] - 1) == 0


# --- 4.x -------------------------------------------------------------------------------------


def nearest(store, time):
    return store.nearest_offset_by_time(T, time)


def test_nearest_message_and_the_earlier_of_two(tmp_path):
    with OfflineStore(queue(tmp_path, [T1, T2, T3], is_5x=False).write()) as store:
        assert [nearest(store, time) for time in (T1, T2, T3)] == [0, 1, 2]
        assert nearest(store, T1 + 499) == 0
        assert nearest(store, T1 + 500) == 0, "left wins ties"
        assert nearest(store, T1 + 501) == 1
        assert nearest(store, 0) == 0
        assert nearest(store, T3 + 10_000) == 2


def test_file_is_chosen_by_its_modification_time(tmp_path):
    """Three units a file: the first file not older than the time is searched, no other."""
    times = [T1 + number * 1000 for number in range(9)]
    builder = queue(tmp_path, times, queue_file_units=3, is_5x=False)
    root = builder.write()
    for number, time in ((0, times[2]), (3, times[5]), (6, times[8])):
        os.utime(builder.queue_path("T", 0, number), ns=(time * 10**6, time * 10**6))
    with OfflineStore(root) as store:
        assert [nearest(store, time) for time in times] == list(range(9))
        assert nearest(store, times[2] + 1) == 3, "the second file, though 2 is nearer"
        assert nearest(store, times[8] + 5000) == 8
    # A copy that did not keep the times: the first file is taken for everything.
    for number in (0, 3, 6):
        os.utime(builder.queue_path("T", 0, number), ns=(2**62, 2**62))
    with OfflineStore(root) as store:
        assert nearest(store, times[8]) == 2


def test_expired_units_count_as_too_old(tmp_path):
    times = [T1 + number * 10 for number in range(30)]
    builder = queue(tmp_path, times, log_file_size=1000, queue_file_units=40, is_5x=False)
    first = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 1000)
    with OfflineStore(builder.expire(1).write()) as store:
        assert nearest(store, 0) == first
        assert nearest(store, times[first]) == first
        assert nearest(store, times[29]) == 29


def test_wholly_expired_queue_in_4x(tmp_path):
    """All units of the chosen file are too old: the one before the file, 0 for the first."""
    builder = StoreBuilder(tmp_path, log_file_size=1000, is_5x=False)
    builder.record(stored=T1).record(stored=T2).roll().record("U", stored=T3).expire(1)
    with OfflineStore(builder.write()) as store:
        assert nearest(store, T2) == 0
