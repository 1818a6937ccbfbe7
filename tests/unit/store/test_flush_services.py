"""Group commit, periodic flush, write buffers: who is answered when, and what a failure does."""

import threading

import pytest

from rocketlake.clock import SystemClock
from rocketlake.errors import FlushFailedError, StorePoisonedError
from rocketlake.store.api import PutStatus
from rocketlake.store.put.flush import (
    BlockedPut,
    BufferCommit,
    FlushSchedule,
    FlushWait,
    FlushWatcher,
    GroupCommit,
    PeriodicFlush,
    Poison,
)
from rocketlake.store.put.queue_flush import QueueFlush, Reached
from support.manual_clock import ManualClock

WAIT_S = 10.0
RHYTHM = FlushSchedule(0.5, 10.0, 4)


class FakeFiles:
    """A queue of files: what was appended, committed and flushed, and how flushing ends."""

    def __init__(self, wrote=0, file_ends=()):
        self.wrote_where = wrote
        self.committed_where = 0
        self.flushed_where = 0
        self.store_timestamp = 0
        self.file_ends = list(file_ends)
        self.calls = []
        self.error = None

    def _next(self, where):
        return min(
            [end for end in (*self.file_ends, self.wrote_where) if end > where], default=where
        )

    def commit(self, least_pages):
        self.calls.append(("commit", least_pages))
        before, self.committed_where = self.committed_where, self._next(self.committed_where)
        return self.committed_where != before

    def flush(self, least_pages):
        self.calls.append(("flush", least_pages))
        if self.error is not None:
            raise self.error
        before, self.flushed_where = self.flushed_where, self._next(self.flushed_where)
        self.store_timestamp = self.flushed_where
        return self.flushed_where != before


class TestGroupCommit:
    def test_one_flush_serves_all_that_wait(self):
        files = FakeFiles(wrote=300)
        commit = GroupCommit(files, Poison(), lambda _: None, SystemClock())
        waits = [BlockedPut(end) for end in (100, 200, 300)]
        for wait in waits:
            commit.ask(wait)
        commit.run_once()
        assert [wait.status for wait in waits] == [PutStatus.PUT_OK] * 3
        assert files.calls.count(("flush", 0)) == 1

    def test_record_in_the_next_file_needs_both_flushed(self):
        files = FakeFiles(wrote=300, file_ends=[100, 200])
        commit = GroupCommit(files, Poison(), lambda _: None, SystemClock())
        wait = BlockedPut(300)
        commit.ask(wait)
        commit.run_once()
        assert wait.status is PutStatus.PUT_OK
        assert files.flushed_where == 300

    def test_flush_that_covers_too_little_is_a_timeout(self):
        files = FakeFiles(wrote=100)
        commit = GroupCommit(files, Poison(), lambda _: None, SystemClock())
        wait = BlockedPut(101)
        commit.ask(wait)
        commit.run_once()
        assert wait.wait(WAIT_S) is PutStatus.FLUSH_DISK_TIMEOUT

    def test_store_time_that_is_covered_is_told(self):
        told = []
        commit = GroupCommit(FakeFiles(wrote=7), Poison(), told.append, SystemClock())
        commit.run_once()
        assert told == [7]

    def test_thread_answers_who_waits(self):
        files = FakeFiles(wrote=10)
        commit = GroupCommit(files, Poison(), lambda _: None, SystemClock())
        commit.start()
        try:
            for _ in range(20):
                files.wrote_where += 10
                wait = BlockedPut(files.wrote_where)
                commit.ask(wait)
                assert wait.wait(WAIT_S) is PutStatus.PUT_OK
        finally:
            commit.close()

    def test_failed_flush_poisons_and_tells_who_waits(self):
        files = FakeFiles(wrote=10)
        files.error = FlushFailedError("log", "EIO")
        poison = Poison()
        commit = GroupCommit(files, poison, lambda _: None, SystemClock())
        wait = BlockedPut(10)
        commit.ask(wait)
        commit.run_once()
        with pytest.raises(StorePoisonedError, match="EIO"):
            wait.wait(WAIT_S)
        assert poison.error is files.error
        files.error = None
        late = BlockedPut(10)
        commit.ask(late)
        with pytest.raises(StorePoisonedError):
            late.wait(WAIT_S)
        assert files.flushed_where == 0

    def test_poison_that_comes_later_leaves_what_was_flushed_good(self):
        files = FakeFiles(wrote=10)
        commit = GroupCommit(files, Poison(), lambda _: None, SystemClock())
        commit.run_once()
        files.error = FlushFailedError("log", "EIO")
        files.wrote_where = 20
        waits = [BlockedPut(10), BlockedPut(20)]
        for wait in waits:
            commit.ask(wait)
        commit.run_once()
        assert waits[0].status is PutStatus.PUT_OK
        assert waits[1].error is not None

    def test_close_answers_everybody(self):
        files = FakeFiles(wrote=10)
        commit = GroupCommit(files, Poison(), lambda _: None, SystemClock())
        waits = [BlockedPut(10), BlockedPut(99)]
        for wait in waits:
            commit.ask(wait)
        commit.close()
        assert [wait.status for wait in waits] == [
            PutStatus.PUT_OK,
            PutStatus.FLUSH_DISK_TIMEOUT,
        ]
        late = BlockedPut(10)
        commit.ask(late)
        assert late.status is PutStatus.PUT_OK

    def test_write_buffers_are_committed_before_the_flush(self):
        files = FakeFiles(wrote=10)
        commit = GroupCommit(files, Poison(), lambda _: None, SystemClock())
        commit.flush_all()
        assert files.calls[0] == ("commit", 0)
        assert files.flushed_where == 10


class TestFlushWait:
    def test_wait_ends_at_its_timeout(self):
        assert BlockedPut(1).wait(0.001) is PutStatus.FLUSH_DISK_TIMEOUT

    def test_second_answer_is_not_heard(self):
        wait = Told(1, 0.0)
        wait.finish(PutStatus.PUT_OK)
        wait.finish(PutStatus.FLUSH_DISK_TIMEOUT)
        assert wait.told == [PutStatus.PUT_OK]


class Told(FlushWait):
    def __init__(self, end_offset, deadline_s):
        super().__init__(end_offset, deadline_s)
        self.told = []

    def tell(self, status, error):
        self.told.append(error or status)


class TestWatcher:
    def test_waits_end_at_their_deadline_in_order(self):
        clock = ManualClock()
        watcher = FlushWatcher(clock)
        now = clock.monotonic_s()
        first, answered, second = (Told(1, now + s) for s in (1.0, 1.0, 2.0))
        for wait in (first, answered, second):
            watcher.watch(wait)
        answered.finish(PutStatus.PUT_OK)
        watcher.run_once()
        assert first.status is None
        clock.advance_ms(1000)
        watcher.run_once()
        assert [w.status for w in (first, answered, second)] == [
            PutStatus.FLUSH_DISK_TIMEOUT,
            PutStatus.PUT_OK,
            None,
        ]
        watcher.run_last()
        assert second.status is PutStatus.FLUSH_DISK_TIMEOUT

    def test_idle_watcher_does_not_wake_up(self):
        watcher = FlushWatcher(ManualClock())
        assert watcher.pause_s() is None
        watcher.watch(Told(1, 0.0))
        assert watcher.pause_s() is not None


class TestPeriodicFlush:
    def make(self, files, poison=None, note=lambda _: None):
        clock = ManualClock()
        return clock, PeriodicFlush(files, poison or Poison(), note, schedule=RHYTHM, clock=clock)

    @pytest.mark.parametrize(("is_timed", "runs"), [(True, False), (False, True)])
    def test_timed_flush_cannot_be_woken(self, is_timed, runs):
        flush = PeriodicFlush(
            FakeFiles(wrote=1),
            Poison(),
            lambda _: None,
            schedule=RHYTHM,
            clock=ManualClock(),
            is_timed=is_timed,
        )
        flush.wakeup()
        assert flush._wake._silence.locked() is not runs

    def test_first_round_is_thorough_and_then_one_in_ten_seconds(self):
        files = FakeFiles(wrote=1)
        clock, flush = self.make(files)
        pages = []
        for _ in range(3):
            files.calls.clear()
            flush.run_once()
            pages.append(files.calls[0][1])
            clock.advance_ms(5000)
        assert pages == [0, 4, 0]

    def test_all_files_are_flushed(self):
        files = FakeFiles(wrote=300, file_ends=[100, 200])
        _, flush = self.make(files)
        flush.run_once()
        assert files.flushed_where == 300

    def test_failure_poisons_and_ends_flushing(self):
        files = FakeFiles(wrote=1)
        files.error = FlushFailedError("log", "EIO")
        taken = []
        poison = Poison(on_taken=lambda: taken.append(1))
        _, flush = self.make(files, poison)
        flush.run_once()
        files.error = None
        flush.run_once()
        flush.run_last()
        assert taken == [1]
        assert files.flushed_where == 0
        with pytest.raises(StorePoisonedError):
            flush.flush_all()

    def test_end_flushes_what_is_left(self):
        files = FakeFiles(wrote=5)
        _, flush = self.make(files)
        flush.close()
        assert files.flushed_where == 5


def test_buffers_are_committed_and_the_flush_woken():
    files = FakeFiles(wrote=5)
    woken = threading.Event()
    commit = BufferCommit(files, woken.set, schedule=RHYTHM, clock=ManualClock())
    commit.run_once()
    assert files.committed_where == 5
    assert woken.is_set()
    woken.clear()
    commit.run_once()
    assert not woken.is_set()
    files.wrote_where = 9
    commit.run_last()
    assert files.committed_where == 9


class FakeQueues:
    def __init__(self):
        self.pages = []

    def flush(self, least_pages):
        self.pages.append(least_pages)
        return True


def test_queues_are_flushed_thoroughly_before_the_checkpoint_speaks_of_it():
    clock, queues, saved = ManualClock(), FakeQueues(), []
    reached = iter([Reached(100, 10), Reached(200, 20)])

    def save(units):
        saved.append((units.timestamp, units.physical_offset, len(queues.pages)))

    flush = QueueFlush(
        queues, lambda: next(reached), save, schedule=FlushSchedule(1.0, 60.0, 2), clock=clock
    )
    flush.run_once()
    assert (queues.pages, saved) == ([2], [])
    clock.advance_ms(60_000)
    flush.run_once()
    assert (queues.pages, saved) == ([2, 0], [(100, 10, 2)])
    flush.close()
    assert saved[-1] == (200, 20, 3)


@pytest.mark.parametrize("took_ms", [0, 100])
def test_queues_are_flushed_thoroughly_when_the_log_has_begun_a_few_files(took_ms):
    """And then not before twenty times as long as that took."""
    clock, queues = ManualClock(), FakeQueues()
    flush = QueueFlush(
        *(queues, lambda: Reached(1), lambda _: clock.advance_ms(took_ms)),
        schedule=FlushSchedule(1.0, 60.0, 2),
        clock=clock,
    )
    for _ in range(3):
        flush.note_roll()
    flush.run_once()
    assert queues.pages == [2]
    flush.note_roll()
    flush.run_once()
    assert queues.pages == [2, 0]
    flush.run_once()
    assert queues.pages == [2, 0, 2], "files are counted anew"
    for _ in range(4):
        flush.note_roll()
    if took_ms:
        clock.advance_ms(20 * took_ms - 5)
        flush.run_once()
        assert queues.pages[3:] == [2]
        clock.advance_ms(10)
    flush.run_once()
    assert queues.pages[-1] == 0
