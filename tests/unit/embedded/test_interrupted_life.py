"""OpenSettings and closing that exceptions of signal handlers meet at their very beginning."""

import threading
import time

import pytest

import rocketlake
from rocketlake import Message
from rocketlake.errors import StoreClosedError, StoreError, StoreLockedError
from rocketlake.files import background_service as service
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.store import exit_hook
from rocketlake.store.dispatch import dispatcher as dispatch
from support import forks

WAIT_S = 20.0


class InterruptError(BaseException):
    """As a signal handler may raise it."""


def interrupt(monkeypatch, method, times):
    """Have the next calls of a worker's method raise before they do anything."""
    original, left = getattr(ShieldedWorker, method), [None] * times

    def interrupted(self, *arguments):
        if left:
            left.pop()
            raise InterruptError
        return original(self, *arguments)

    monkeypatch.setattr(ShieldedWorker, method, interrupted)


@pytest.fixture
def threads():
    """Return the threads of stores that were opened in this test; others may have left some."""
    before = set(threading.enumerate())

    def find():
        found = set(threading.enumerate()) - before
        return [one.name for one in found if one.name.startswith("rocketlake")]

    return find


def open_when_free(root):
    """Open a store that another call may still be closing."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return rocketlake.open_store(root)
        except StoreLockedError:
            assert time.monotonic() < deadline, "the store stays locked"
            threading.Event().wait(0.01)


@pytest.mark.parametrize("method", ["run", "_hand_over", "_await"])
def test_with_block_whose_close_is_interrupted_at_once_closes(
    tmp_path, monkeypatch, threads, method
):
    store = rocketlake.open_store(tmp_path)
    store.put(Message(topic="T", body=b"x"))
    interrupt(monkeypatch, method, 1)
    with pytest.raises(InterruptError), store:
        pass
    assert not store.is_open
    assert threads() == []
    rocketlake.open_store(tmp_path).close()


def test_open_that_is_interrupted_twice_leaves_nothing_open(tmp_path, monkeypatch, threads):
    interrupt(monkeypatch, "_await", 2)
    with pytest.raises(InterruptError):
        rocketlake.open_store(tmp_path)
    open_when_free(tmp_path).close()
    assert threads() == []


def test_error_of_any_kind_while_a_part_closes_leaves_no_lock(tmp_path, monkeypatch, threads):
    store = rocketlake.open_store(tmp_path)
    keeper = store._parts.services[-1]
    monkeypatch.setattr(keeper, "close", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.close()
    monkeypatch.undo()
    keeper.close()  # its thread
    assert threads() == []
    rocketlake.open_store(tmp_path).close()


def test_ctrl_c_at_the_end_of_a_program_closes_the_other_stores_too(tmp_path):
    closed = []

    class Opened:
        def __init__(self, name, error=None):
            self.name, self.error = name, error

        def close(self):
            closed.append(self.name)
            if self.error is not None:
                raise self.error

    for opened in (Opened("first"), Opened("second", KeyboardInterrupt())):
        exit_hook.register(opened)
    with pytest.raises(KeyboardInterrupt):
        exit_hook.close_all()
    assert closed == ["second", "first"]


def test_consumer_in_a_fork_answers_whatever_its_parent_was_doing(tmp_path):
    with rocketlake.open_store(tmp_path) as store:
        store.put(Message(topic="T", body=b"x"))
        consumer = store.consumer("g", "T", timeout=0.0)
        held, done = threading.Event(), threading.Event()

        def hold():
            with consumer._lock:  # as a thread does that is reading
                held.set()
                done.wait(WAIT_S)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(WAIT_S)

        def work(tell):
            for name in ("assigned", "missed", "corrupt"):
                with pytest.raises(StoreClosedError):
                    getattr(consumer, name)
            with pytest.raises(StoreClosedError):
                next(consumer)
            assert "of the parent process" in repr(consumer)
            consumer.close()
            tell("ended")

        try:
            assert forks.run(work).lines == ["ended"]
        finally:
            done.set()
            holder.join()
        assert [message.body for message in consumer] == [b"x"]


def test_read_of_a_store_whose_dispatch_is_stuck_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "_STUCK_LOOK_S", 0.01)
    monkeypatch.setattr(dispatch, "_STUCK_LOOKS_MAX", 2)
    monkeypatch.setattr(service, "_CLOSE_MAX_S", 0.2)
    may_end, is_stuck = threading.Event(), threading.Event()

    class Stuck:
        def arrived(self, arrivals):
            is_stuck.set()
            may_end.wait(WAIT_S)

    store = rocketlake.open_store(tmp_path)
    engine = store._engine
    engine.add_listener(Stuck())
    store.put(Message(topic="T", body=b"x"))
    assert is_stuck.wait(WAIT_S)
    with pytest.raises(StoreError, match="rocketlake-dispatch has not ended"):
        store.close()
    try:
        with pytest.raises(StoreClosedError):
            engine.dispatcher.catch_up(1 << 40)
        assert (tmp_path / "abort").exists()
        with rocketlake.open_store(tmp_path) as again:  # the lock is free
            assert sum(again.max_offset("T", queue) for queue in range(4)) == 1
    finally:
        may_end.set()


def test_inventory_that_is_too_large_is_not_read(tmp_path, caplog):
    with rocketlake.open_store(tmp_path) as store:
        store.put(Message(topic="T", body=b"x"))
    with (tmp_path / "inventory.json").open("r+b") as file:
        file.truncate(1 << 40)
    with rocketlake.open_store(tmp_path) as store:
        assert sum(store.max_offset("T", queue) for queue in range(4)) == 1
    assert "inventory not used" in caplog.text
