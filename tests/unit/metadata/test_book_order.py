"""A table that speaks of the log is written after the records that it speaks of are on the disk."""

import pytest
from msgspec import structs

from rocketlake.errors import StorePoisonedError
from rocketlake.metadata.groups import GroupBook, SubscriptionGroup
from rocketlake.metadata.offsets import DelayOffsets, LightOffsetBook, OffsetBook
from rocketlake.metadata.timer_metrics import TimerMetrics
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import TopicConfig


class Log:
    """Counts flushes, and does something while one runs."""

    def __init__(self):
        self.flushes = 0
        self.during = lambda: None

    def flush(self):
        self.flushes += 1
        self.during()


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def place(place, log):
    return structs.replace(place, flush_log=log.flush)


def set_group(book, offset):
    book.commit("T", "g", 0, offset)


def get_group(book):
    return book.get("T", "g", 0)


def set_level(book, offset):
    book.set(1, offset)


def get_level(book):
    return book.get(1)


BOOKS = pytest.mark.parametrize(
    ("kind", "change", "look"),
    [
        (OffsetBook, set_group, get_group),
        (LightOffsetBook, set_group, get_group),
        (DelayOffsets, set_level, get_level),
    ],
    ids=["groups", "light queues", "delay levels"],
)


@BOOKS
def test_table_is_written_behind_the_flush(place, log, kind, change, look):
    book = kind.load(place)
    change(book, 5)
    seen = []
    log.during = lambda: seen.append(book.path.exists())
    assert book.persist()
    assert seen == [False]
    assert look(kind.load(place)) == 5


@BOOKS
def test_table_has_nothing_that_came_while_the_log_was_flushed(place, log, kind, change, look):
    """That is a position of a record which the flush may not have covered."""
    book = kind.load(place)
    change(book, 5)
    log.during = lambda: change(book, 9)
    book.persist()
    assert look(kind.load(place)) == 5
    assert book.is_dirty
    log.during = lambda: None
    book.persist()
    assert look(kind.load(place)) == 9


@BOOKS
def test_flush_that_fails_leaves_the_old_table(place, log, kind, change, look):
    book = kind.load(place)
    change(book, 5)
    book.persist()
    change(book, 9)

    def fail():
        raise StorePoisonedError("a flush failed")

    log.during = fail
    with pytest.raises(StorePoisonedError):
        book.persist()
    assert look(kind.load(place)) == 5
    assert book.is_dirty


@BOOKS
def test_table_that_did_not_change_costs_no_flush(place, log, kind, change, look):
    book = kind.load(place)
    change(book, 5)
    assert book.persist()
    assert not book.persist()
    assert look(book) == 5
    assert log.flushes == 1


def test_tables_that_do_not_speak_of_the_log_do_not_wait_for_it(place, log):
    topics, groups, metrics = (kind.load(place) for kind in (TopicBook, GroupBook, TimerMetrics))
    topics.create(TopicConfig(name="T"))
    groups.create(SubscriptionGroup(name="g"))
    metrics.add("T", 1)
    assert [book.persist() for book in (topics, groups, metrics)] == [True] * 3
    assert log.flushes == 0


# --- progress beyond the end ----------------------------------------------------------------------


def test_progress_beyond_the_end_is_brought_back(place):
    book = OffsetBook.load(place)
    book.reset("T", "g", {0: 120, 1: 7})
    book.reset("Gone", "g", {3: 9, 4: 0})
    ends = {QueueKey("T", 0): 100, QueueKey("T", 1): 7}
    found = book.cap_progress(lambda key: ends.get(key, 0))
    assert [(one.group, str(one.key), one.offset, one.end) for one in found] == [
        ("g", "T/0", 120, 100),
        ("g", "Gone/3", 9, 0),
    ]
    assert str(found[0]) == "group g was at 120 of T/0, which ends at 100: it goes on at 100"
    assert book.offsets("T", "g") == {0: 100, 1: 7}
    assert book.offsets("Gone", "g") == {3: 0, 4: 0}
    assert book.persist()
    assert book.cap_progress(lambda key: ends.get(key, 0)) == []
    assert not book.is_dirty


def test_group_of_a_light_queue_is_measured_by_that_queue(place):
    book = LightOffsetBook.load(place)
    book.commit("Parent", "%LMQ%one", 0, 5)
    book.commit("%LMQ%two", "g", 0, 5)
    ends = {QueueKey("%LMQ%one", 0): 5, QueueKey("%LMQ%two", 0): 4}
    found = book.cap_progress(lambda key: ends.get(key, 0))
    assert [(str(one.key), one.end) for one in found] == [("%LMQ%two/0", 4)]


def test_progress_of_levels_beyond_the_end_is_brought_back(place):
    book = DelayOffsets.load(place)
    book.set(1, 5)
    book.set(2, 5)
    assert book.cap_progress(lambda level: {1: 5, 2: 3}[level]) == {2: (5, 3)}
    assert book.snapshot() == {1: 5, 2: 3}
    assert book.cap_progress(lambda level: 5) == {}
