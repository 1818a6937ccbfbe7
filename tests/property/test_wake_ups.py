"""No order of steps leaves a message undispatched, or a consumer asleep beside a message.

The real parts of a store run under `schedule_explorer`, which switches between them at every line
that moves an end, says that it is idle, looks, sleeps or wakes. Waits with a limit of 0.25 s or
more never end by themselves, so that no second look hides a wake-up that is lost.

`ROCKETLAKE_SCHEDULES=5000` takes so many random schedules in each case, `ROCKETLAKE_SEED=…` others.
"""

import itertools
import os
from contextlib import ExitStack

import pytest
from schedule_explorer import Scheduler, codes_of, explore, explore_at_random

from rocketlake import Message
from rocketlake.clock import SystemClock
from rocketlake.embedded.consumer import consumer as consumer_module
from rocketlake.embedded.consumer import group_assignment as division_module
from rocketlake.embedded.consumer.consumer import Consumer
from rocketlake.embedded.consumer.group_assignment import GroupAssignment
from rocketlake.embedded.consumer.groups import Groups
from rocketlake.embedded.consumer.plan import ConsumerPlan
from rocketlake.embedded.selection import parse_selection
from rocketlake.files import background_service as service
from rocketlake.files import mapped_file_queue
from rocketlake.files.background_service import BackgroundService, _Bell
from rocketlake.files.descriptor import PosixWriter
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.preallocator import Preallocator
from rocketlake.store.dispatch import dispatcher as dispatch
from rocketlake.store.dispatch.dispatcher import Dispatcher
from rocketlake.store.log import commit_log
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.put import flush
from rocketlake.store.put.durability import Durability
from rocketlake.store.put.flush import BlockedPut, BufferCommit, GroupCommit
from rocketlake.store.put.putter import Putter
from support.engine import open_engine

SEED = int(os.environ.get("ROCKETLAKE_SEED", "12"))
RANDOM = int(os.environ.get("ROCKETLAKE_SCHEDULES", "6"))
LARGE = {
    "mapped_file_size_commit_log": 64 << 20,
    "mapped_file_size_consume_queue": 20 * 100_000,
    "message_index_enable": False,
}
TRACED = (
    *(
        Dispatcher.wake_if_idle,
        Dispatcher.wake_and_yield,
        Dispatcher.pause_s,
        Dispatcher.run_once,
        Dispatcher.catch_up,
    ),
    *(
        Dispatcher._ends,
        Dispatcher._run_round,
        Dispatcher._release,
        Dispatcher.dispatch_range,
        Dispatcher._notify,
    ),
    *(_Bell.set, _Bell.wait, _Bell.clear),
    *(BackgroundService.wakeup, BackgroundService._run, BackgroundService._run_guarded),
    *(GroupCommit.flush_for, GroupCommit.ask, GroupCommit.run_once, BufferCommit.run_once),
    *(GroupCommit._flush_for_waiting, GroupCommit._flush_to, GroupCommit._answer),
    *(BlockedPut.wait, BlockedPut.tell),
    *(MappedFileQueue.commit, MappedFileQueue.flush, MappedFileQueue._note_advance),
    *(CommitLog.note_readable, CommitLog.set_confirm_offset, CommitLog.confirm_offset),
    *(Durability.wake, Durability.wait_durable, Durability.complete_when_durable),
    *(Putter.put_plain, Putter.put_plain_async),
    *(
        GroupAssignment.listening,
        GroupAssignment.wait,
        GroupAssignment.notify,
        GroupAssignment.is_awaited,
        Groups.arrived,
    ),
    *(Consumer._await_ready, Consumer.look, Consumer.poll),
)
MODES = {
    "async": {},
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "sync 4.9": {"flush_disk_type": "SYNC_FLUSH", "compat_version": "4.9"},
    "write buffers": {
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 1,
        "commit_commit_log_least_pages": 0,
    },
    "confirmed": {"duplication_enable": True},
}


SAMPLE = 40
WHOLE = {
    *("async, put", "sync, put_async"),
    *("write buffers, put", "confirmed, put", "confirmed by halves"),
}
"""Of these cases every schedule with one deviation is run, of the others as many as SAMPLE."""


class Progress:
    """What a group has consumed, in a dictionary."""

    def __init__(self):
        self._offsets = {}

    def get(self, topic, group, queue_id):
        return self._offsets.get(queue_id)

    def offsets(self, topic, group):
        return dict(self._offsets)

    def commit(self, topic, group, queue_id, offset):
        self._offsets[queue_id] = offset


class Lab:
    """A store whose threads are actors; it lives through many schedules."""

    def __init__(self, path, mode, extra_traced=()):
        self._undo = ExitStack()
        patch = self._undo.enter_context(pytest.MonkeyPatch.context())
        self.scheduler = Scheduler(codes_of(*TRACED, *extra_traced))
        made_real = service.threading
        modules = (service, dispatch, flush, commit_log, mapped_file_queue)
        for module in (*modules, division_module, consumer_module):
            patch.setattr(module, "threading", self.scheduler.threading)
        start = BackgroundService.start

        def start_some(one):
            if isinstance(one, Preallocator):  # files are made as ever
                with pytest.MonkeyPatch.context() as inner:
                    inner.setattr(service, "threading", made_real)
                    one._wake, one._life = _Bell(), made_real.Lock()
                start(one)

        patch.setattr(BackgroundService, "start", start_some)
        patch.setattr(flush, "_SLOW_S", float("inf"))  # what is done does not depend on the disk
        patch.setattr(PosixWriter, "sync", lambda _: None)  # thousands of schedules, no power cut
        self.engine = open_engine(path, SystemClock(), **{**LARGE, **MODES[mode]})
        self._undo.callback(self.engine.close)
        parts = self.engine.parts
        services = (parts.dispatcher, parts.log_parts.group_commit, parts.log_parts.commit)
        self.services = {one.name: one for one in services if one is not None}
        self.log = self.engine.log
        self.dispatcher = self.engine.dispatcher
        groups = Groups(lambda _: 1)
        self.engine.add_listener(groups)
        plan = ConsumerPlan(
            group="g", topic="T", selection=parse_selection(None, None), timeout_s=None
        )
        assignment = groups.assignment("g", "T")
        self.consumer = Consumer(plan, assignment, self.engine, Progress(), clock=SystemClock())
        self.put_count = 0
        self.seen = []
        self._futures = []
        self.put_many()  # the first ones make files, and have pages made ready
        self.confirm()
        self.engine.catch_up()
        self.seen += self.consumer.poll()

    def close(self):
        self._undo.close()

    # --- what actors do -----------------------------------------------------------------------

    def put(self):
        assert self.engine.put_plain(self._message(), 0).is_ok

    def put_twice(self):
        self.put()
        self.put()

    def put_later(self):
        self._futures.append(self.engine.put_plain_async(self._message(), 0))

    def put_many(self):
        for _ in range(4):
            self.put()

    def confirm(self):
        if self.engine.options.duplication_enable:
            self.log.set_confirm_offset(self.log.max_offset)

    def put_and_confirm(self):
        self.put()
        self.confirm()

    def put_and_confirm_by_halves(self):
        self.put()
        self.log.set_confirm_offset(self.log.max_offset - 5)
        self.confirm()

    def put_and_confirm_half(self):
        """What is confirmed ends inside a record; the next one confirms it."""
        self.put()
        self.log.set_confirm_offset(self.log.max_offset - 5)

    def read(self):
        """See what was put before, as every reading method does."""
        end = self.log.wrote_where
        self.engine.catch_up()
        assert self.engine.dispatcher.dispatched_where >= end, "a read does not see what was put"

    def put_and_await_dispatch(self):
        self.put()
        end = self.log.confirm_offset
        self.engine.dispatcher.catch_up(end)
        assert self.engine.dispatcher.dispatched_where >= end, "a read does not see what was put"

    def _message(self):
        self.put_count += 1
        return Message(topic="T", body=b"%d" % self.put_count)

    def _consume(self):
        while True:
            self.seen += self.consumer.poll(timeout=None)

    # --- schedules ----------------------------------------------------------------------------

    def run(self, calls, deviations, is_eager):
        """Run one schedule and look what it left; return what else could have been done."""
        actors = {"consumer": self._consume}
        for name, one in self.services.items():
            actors[name] = one._run
        actors |= calls
        threads = self.scheduler.prepare(actors)
        for name, one in self.services.items():
            one._thread, one._is_running = threads[name], True
        self._reset()
        try:
            self.scheduler.run(deviations, is_eager=is_eager)
            self._check(calls)
            return list(self.scheduler.decisions)
        except AssertionError as error:
            raise type(error)(f"{error} in schedule {deviations}, {is_eager=}") from None
        finally:
            self._finish()

    def _reset(self):
        """Let every schedule begin in the same state."""
        self.engine.dispatcher.is_idle = False  # its thread has not come to rest yet
        self.engine.dispatcher._rate = 0.0
        self.engine.dispatcher.has_reads = False
        self.engine.parts.offsets.find("T", 0).puts.count = 1  # some puts are timed, by their count
        for one in self.engine._life._services():
            one._wake.set()  # those that are no actors are woken all the time, to no effect
        for one in self.services.values():
            one._wake.clear()
        if self.engine.parts.log_parts.group_commit is not None:
            self.engine.parts.log_parts.group_commit._crowd = 0

    def _check(self, calls):
        state = self.scheduler.state()
        for actor in self.scheduler.actors:
            assert actor.is_done or actor.name not in calls, f"{actor.name} waits for ever: {state}"
        assert all(future.done() for future in self._futures), f"a future waits for ever: {state}"
        behind = self.engine.dispatcher.behind_bytes
        assert not behind, f"{behind} readable bytes are not dispatched: {state}"
        assert len(self.seen) == self.put_count, f"the consumer sleeps beside a message: {state}"

    def _finish(self):
        self.scheduler.end()
        for one in self.services.values():
            one._thread, one._is_running = None, False
        self.confirm()
        self.engine.flush()
        self.engine.catch_up()
        self.seen += self.consumer.poll()
        self._futures.clear()
        assert len(self.seen) == self.put_count


@pytest.fixture
def make_lab(tmp_path, monkeypatch):
    labs = []
    # A round takes a second: no rate makes the thread rest, and end that rest by itself.
    monkeypatch.setattr(dispatch, "perf_counter", itertools.count().__next__)

    def make(mode, *extra_traced):
        labs.append(Lab(tmp_path / "store", mode, extra_traced))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


CASES = {
    "async, put": ("async", {"put": Lab.put}),
    "async, two puts": ("async", {"put": Lab.put_twice}),
    "async, two threads put": ("async", {"put": Lab.put, "put too": Lab.put}),
    "async, many puts": ("async", {"put": Lab.put_many}),
    "async, put and read": ("async", {"put": Lab.put, "read": Lab.read}),
    "async, put and wait for dispatch": (
        "async",
        {"put": Lab.put, "put and wait": Lab.put_and_await_dispatch},
    ),
    "sync, put and wait for dispatch": (
        "sync",
        {"put": Lab.put, "put and wait": Lab.put_and_await_dispatch},
    ),
    "sync, put": ("sync", {"put": Lab.put}),
    "sync, two threads put": ("sync", {"put": Lab.put, "put too": Lab.put}),
    "sync, put_async": ("sync", {"put": Lab.put_later}),
    "sync, two put_async": ("sync", {"put": Lab.put_later, "put too": Lab.put_later}),
    "sync, put_async and put": ("sync", {"put": Lab.put_later, "put too": Lab.put}),
    "sync, put and read": ("sync", {"put": Lab.put, "read": Lab.read}),
    "sync 4.9, put_async": ("sync 4.9", {"put": Lab.put_later}),
    "write buffers, put": ("write buffers", {"put": Lab.put}),
    "write buffers, put and read": ("write buffers", {"put": Lab.put, "read": Lab.read}),
    "confirmed by halves": ("confirmed", {"put": Lab.put_and_confirm_by_halves}),
    "confirmed, put": ("confirmed", {"put": Lab.put_and_confirm}),
}


@pytest.mark.parametrize("case", CASES)
def test_no_schedule_leaves_a_message_waiting(make_lab, case):
    mode, calls = CASES[case]
    lab = make_lab(mode)

    def run(deviations, is_eager):
        bound = {name: call.__get__(lab) for name, call in calls.items()}
        return lab.run(bound, deviations, is_eager)

    assert explore(run, SEED, None if case in WHOLE else max(RANDOM, SAMPLE)) > 50
    explore_at_random(run, SEED, RANDOM)


def test_dispatch_rests_while_a_record_is_confirmed_in_part(make_lab):
    """It cannot go on, and does not try again and again until it can."""
    lab = make_lab("confirmed")
    lab.scheduler.prepare({"dispatch": lab.dispatcher._run, "put": lab.put_and_confirm_half})
    try:
        lab.scheduler.run()
        assert lab.dispatcher.behind_bytes
    finally:
        lab.scheduler.end()


# --- orders that are wrong ----------------------------------------------------------------------


def look_before_it_says_so(self):
    has_more = self.behind_bytes
    self.is_idle = True
    return 0.0 if has_more else dispatch._IDLE_LOOK_S


def run_before_it_is_cleared(self):
    while not self._closing.is_set():
        self._wake.wait(self.pause_s())
        self._run_guarded()
        self._wake.clear()


def look_before_it_listens(self, timeout_s):
    while not self.is_closed:
        if self.look() or timeout_s == 0:
            return self._prefetcher.has_ready
        with self._assignment.listening() as gate:
            self._assignment.wait(gate, timeout_s)
    return False


def commit_that_wakes_first(self, least_pages):
    self._note_advance(has_moved=self.committed_where != self.wrote_where)
    with self._committing:
        file = self._file_from(self.committed_where)
        before = self.committed_where
        self.committed_where = file.base_offset + file.commit(least_pages)
        return self.committed_where != before


def flush_that_wakes_first(self, least_pages):
    self._note_advance(has_moved=self.flushed_where != self.wrote_where)
    with self._flushing:
        file = self._file_from(self.flushed_where)
        before = self.flushed_where
        self.flushed_where = file.base_offset + file.flush(least_pages)
        return self.flushed_where != before


def confirm_that_wakes_first(self, offset):
    self.note_readable()
    self.replicated_where = offset


def flush_and_say_nothing(self, *, has_moved):
    return None


def ask_that_wakes_first(self, wait):
    self.wakeup()
    self._waiting.append(wait)


def round_that_knows_its_end_first(self, limit=None):
    end = self._log.confirm_offset
    waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
    if self.dispatched_where < end:
        self.dispatch_range(self.dispatched_where, end, lambda: None)
    for wait in waiting:
        wait.gate.release()


WRONG = {
    "a round knows its end, then the reads that wait": (
        *(Dispatcher, "_run_round", round_that_knows_its_end_first),
        "async, put and wait for dispatch",
    ),
    "dispatch looks, then says that it is idle": (
        *(Dispatcher, "pause_s", look_before_it_says_so, "async, put"),
    ),
    "a service clears its bell behind the run": (
        *(BackgroundService, "_run", run_before_it_is_cleared, "sync, two put_async"),
    ),
    "a consumer looks, then listens": (
        *(Consumer, "_await_ready", look_before_it_listens, "async, put"),
    ),
    "a commit wakes dispatch, then moves the end": (
        *(MappedFileQueue, "commit", commit_that_wakes_first, "write buffers, put"),
    ),
    "a flush wakes dispatch, then moves the end": (
        *(MappedFileQueue, "flush", flush_that_wakes_first, "sync, put_async"),
    ),
    "who confirms wakes dispatch, then moves the end": (
        *(CommitLog, "set_confirm_offset", confirm_that_wakes_first, "confirmed, put"),
    ),
    "nothing wakes dispatch when the end moves": (
        *(MappedFileQueue, "_note_advance", flush_and_say_nothing, "sync, put_async"),
    ),
    "a put wakes the flush, then hands in its wait": (
        *(GroupCommit, "ask", ask_that_wakes_first, "sync, put_async"),
    ),
}


@pytest.mark.parametrize("order", WRONG)
def test_explorer_finds_orders_that_are_wrong(make_lab, monkeypatch, order):
    """The tests above can fail: with two lines swapped, there is a schedule that they object to."""
    owner, name, wrong, case = WRONG[order]
    mode, calls = CASES[case]
    lab = make_lab(mode, wrong)
    monkeypatch.setattr(owner, name, wrong)

    def run(deviations, is_eager):
        bound = {name: call.__get__(lab) for name, call in calls.items()}
        return lab.run(bound, deviations, is_eager)

    with pytest.raises(AssertionError, match=r"for ever|not dispatched|sleeps beside|does not see"):
        explore(run)
