"""Queue offsets by time in queues that are in use; the rules are tested on those only read."""

import os

import numpy as np
import pytest
from queue_makers import KEY, SIZE, TimesOfRecords, columns, open_set, put

from rocketlake.model.queues import QueueKey
from rocketlake.store.queue.times import Boundary

T1, T2, T3 = 1_700_000_001_000, 1_700_000_002_000, 1_700_000_003_000


@pytest.fixture
def queue_of(tmp_path):
    made = []

    def queue_of(times, first=0, log_min=0, **shape):
        made.append(open_set(tmp_path, **shape))
        queue = made[-1].get_or_create(KEY)
        put(queue, first, len(times))
        log = TimesOfRecords({(first + n) * SIZE: t for n, t in enumerate(times)}, log_min)
        queue.correct_min(log_min)
        return queue, log

    yield queue_of
    for queues in made:
        queues.close()


def both(queue, log, time):
    return tuple(queue.offset_by_time(log, time, boundary) for boundary in Boundary)


def test_example_of_the_reference(queue_of):
    found = queue_of([T1 - 1000, T1, T1, T1, T3, T3])
    assert both(*found, T2) == (4, 3)
    assert both(*found, T1) == (1, 3)
    assert both(*found, T3) == (4, 5)
    assert both(*found, T3 + 1) == (6, 5)
    assert both(*found, 0) == (0, 0)


def test_files_are_chosen_by_the_times_of_their_records(queue_of):
    times = [T1 + number // 2 * 10 for number in range(35)]
    found = queue_of(times)
    for number in range(17):
        assert both(*found, T1 + 10 * number) == (2 * number, 2 * number + 1)
        assert both(*found, T1 + 10 * number + 5) == (2 * number + 2, 2 * number + 1)


def test_answers_stay_within_the_bounds(queue_of):
    found = queue_of([T1 + 10 * number for number in range(25)], log_min=1200)
    assert both(*found, T1) == (12, 12)
    assert both(*found, T1 + 120) == (12, 12)
    assert both(*found, T1 + 999) == (25, 24)


def test_prefilled_places_are_not_looked_at(queue_of):
    found = queue_of([T1, T2, T3], first=7)
    assert both(*found, T1 - 1) == (7, 7)
    assert both(*found, T2) == (8, 8)


def test_empty_and_expired_queues_answer_their_end(queue_of, tmp_path):
    empty = open_set(tmp_path).get_or_create(QueueKey("E", 0))
    assert both(empty, TimesOfRecords({}), T1) == (0, 0)
    assert both(*queue_of([T1, T2], log_min=5000), T1) == (2, 2)


def test_4x_answers_with_the_nearest(queue_of):
    found = queue_of([T1, T2, T3], is_4x=True)
    assert both(*found, T1 + 500) == (0, 0), "left wins ties"
    assert both(*found, T1 + 501) == (1, 1)
    assert both(*found, T3 + 99_999) == (2, 2)


def test_4x_chooses_files_by_their_modification_time(queue_of, tmp_path):
    times = [T1 + number * 1000 for number in range(25)]
    found = queue_of(times, is_4x=True)
    for number in (0, 10, 20):
        time = times[min(number + 9, 24)]
        path = tmp_path / "consumequeue/T/0" / f"{number * 20:020d}"
        os.utime(path, ns=(time * 10**6, time * 10**6))
    assert [found[0].offset_by_time(found[1], time) for time in times] == list(range(25))
    assert found[0].offset_by_time(found[1], times[9] + 1) == 10, (
        "the second file, though 9 is nearer"
    )


def test_record_that_cannot_be_read_answers_the_lowest(queue_of):
    queue, log = queue_of([T1 + 10 * number for number in range(9)])
    del log.times[4 * SIZE]
    assert queue.offset_by_time(log, T1 + 35) == 0


def test_batch_queue_goes_by_the_times_of_its_units(tmp_path):
    """The log is not asked: it may no longer hold the record."""
    queue = open_set(tmp_path).get_or_create(KEY, is_batch=True)
    units = columns((0,), (100,), (200,))
    queue.put(units, np.array([0, 3, 5]), np.array([T1, T2, T3]), np.array([3, 2, 4]))
    log = TimesOfRecords({})
    assert [queue.offset_by_time(log, time) for time in (T1, T2, T3, T3 + 1)] == [0, 3, 5, 5]
    assert both(queue, log, T1 - 1) == (0, 0)
    assert both(queue, log, T1 + 1) == (3, 0), "as the reference answers"
