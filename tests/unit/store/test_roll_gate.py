"""The log begins no file while the queues lack more than its last few."""

import threading
from types import SimpleNamespace

import pytest

from rocketlake.model.queues import QueueKey
from rocketlake.store.api import PutStatus
from rocketlake.store.dispatch.roll_gate import OWED_FILES_MAX, RollGate
from support.engine import open_engine, request

SIZE = 1000
LIMIT = (OWED_FILES_MAX + 3) * SIZE


class FakeDispatcher:
    def __init__(self):
        self.dispatched_where = 0
        self.is_exclusive = self.is_closing = self.is_own_thread = False
        self.is_running = True
        self.error = None
        self.on_moved = None
        self.woken = 0

    def wakeup(self):
        self.woken += 1


@pytest.fixture
def made():
    log = SimpleNamespace(files=SimpleNamespace(file_size=SIZE), confirm_offset=LIMIT, min_offset=0)
    preallocator = SimpleNamespace(holder=None, woken=0)
    preallocator.wakeup = lambda: setattr(preallocator, "woken", preallocator.woken + 1)
    dispatcher = FakeDispatcher()
    gate = RollGate(log, dispatcher, preallocator)
    assert preallocator.holder is gate
    return SimpleNamespace(
        log=log, dispatcher=dispatcher, preallocator=preallocator, gate=gate, hold=gate.hold
    )


def test_file_is_held_back_until_dispatch_is_near(made):
    base = (OWED_FILES_MAX + 1) * SIZE
    assert made.hold(OWED_FILES_MAX * SIZE, for_holder=False) is None
    held = made.hold(base, for_holder=False)
    assert held.reason == f"queues lack the last {base} bytes of the log"
    assert not held.is_stuck
    assert made.dispatcher.woken == 1, "its rest between two rounds would be waited for"
    made.dispatcher.dispatched_where = SIZE
    assert made.hold(base, for_holder=False) is None


def test_dispatch_wakes_the_preallocator_while_a_file_is_held_back(made):
    made.dispatcher.on_moved()
    assert made.preallocator.woken == 0
    made.hold(LIMIT, for_holder=False)
    made.dispatcher.on_moved()
    assert made.preallocator.woken == 1
    made.dispatcher.dispatched_where = LIMIT
    made.hold(LIMIT, for_holder=False)
    made.dispatcher.on_moved()
    assert made.preallocator.woken == 1


def test_dispatch_that_fails_is_not_waited_for(made):
    made.dispatcher.error = "no space"
    held = made.hold(LIMIT, for_holder=False)
    assert (held.is_stuck, held.reason.endswith(": no space")) == (True, True)


@pytest.mark.parametrize("change", [{"is_running": False}, {"is_closing": True}])
def test_dispatch_that_does_not_run_holds_nothing_back(made, change):
    vars(made.dispatcher).update(change)
    assert made.hold(LIMIT, for_holder=False) is None


def test_what_is_not_confirmed_is_not_waited_for(made):
    made.log.confirm_offset = made.dispatcher.dispatched_where = SIZE
    assert made.hold(LIMIT, for_holder=False) is None


def test_log_that_lost_its_first_files_owes_nothing_for_them(made):
    made.log.min_offset = LIMIT - SIZE
    assert made.hold(LIMIT, for_holder=False) is None


def test_put_of_the_dispatch_thread_does_not_wait_for_itself(made):
    assert made.hold(LIMIT, for_holder=True) is None


def test_task_that_may_want_the_append_lock_gets_one_file_more(made):
    base = (OWED_FILES_MAX + 1) * SIZE
    made.dispatcher.is_exclusive = True
    assert made.hold(base, for_holder=False) is None
    assert made.hold(base + SIZE, for_holder=False) is not None


# --- in a store --------------------------------------------------------------------------------


class Gated:
    """A dispatcher that lets records pass when it is told to."""

    def __init__(self):
        self.gate = threading.Event()

    def dispatch(self, records):
        del records
        assert self.gate.wait(30)


def test_puts_wait_for_dispatch_and_go_on_with_it(tmp_path):
    """A put that is refused meanwhile says why, and none is refused when dispatch goes on."""
    gated = Gated()
    with open_engine(tmp_path) as store:
        store.parts.log_parts.preallocator._wait_s = 0.5
        store.add_dispatcher(gated, is_first=True)
        stored = 0
        while (receipt := store.put(request(body=bytes(1000)))).is_ok:
            stored += 1
        assert receipt.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert "queues lack the last" in receipt.reason
        file_size = store.options.mapped_file_size_commit_log
        behind = store.log.wrote_where - store.dispatcher.dispatched_where
        assert behind == (OWED_FILES_MAX + 1) * file_size
        store.parts.log_parts.preallocator._wait_s = 30
        gated.gate.set()
        for _ in range(50):
            assert store.put(request(body=bytes(1000))).is_ok
        assert store.queue_bounds(QueueKey("T", 0))[1] == stored + 50


def test_task_of_the_dispatch_thread_and_a_put_that_waits_do_not_wait_for_each_other(tmp_path):
    """The task wants the append lock, which the put holds while it waits for a file."""
    gated, puts = Gated(), []
    with open_engine(tmp_path) as store:
        store.add_dispatcher(gated, is_first=True)
        preallocator = store.parts.log_parts.preallocator
        preallocator._wait_s = 0.5
        while store.put(request(body=bytes(1000))).is_ok:
            pass
        preallocator._wait_s = 30
        waiting = threading.Thread(target=lambda: puts.append(store.put(request())))
        entered = threading.Event()

        def task():
            entered.set()
            with store.log.pause():
                return store.log.wrote_where

        asked = threading.Thread(target=lambda: puts.append(store.dispatcher.exclusively(task)))
        waiting.start()
        asked.start()
        gated.gate.set()
        for thread in (waiting, asked):
            thread.join(20)
            assert not thread.is_alive()
        assert entered.is_set()
        assert len(puts) == 2
