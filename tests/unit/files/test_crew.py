"""Work that several threads share: all of it is done, once, and failures are told."""

import threading

import pytest

from rocketlake.files.thread_pool import for_each


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_each_item_has_its_turn_and_results_keep_their_order(threads, count):
    seen = []
    found = for_each(
        lambda n: (seen.append(n), n * n)[1], range(count), threads=threads, name="crew"
    )
    assert found == [n * n for n in range(count)]
    assert sorted(seen) == list(range(count))


def test_threads_work_at_the_same_time():
    meeting = threading.Barrier(3, timeout=10)
    assert for_each(lambda _: meeting.wait() >= 0, range(3), threads=3, name="crew") == [True] * 3


def test_first_failure_is_raised_when_all_is_done():
    done = []

    def work(number):
        if number in {2, 5}:
            raise ValueError(str(number))
        done.append(number)

    with pytest.raises(ValueError, match="2"):
        for_each(work, range(8), threads=1, name="crew")
    assert done == [0, 1, 3, 4, 6, 7]


def test_caller_does_it_alone_where_there_are_no_threads(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert for_each(str, range(3), threads=4, name="crew") == ["0", "1", "2"]
