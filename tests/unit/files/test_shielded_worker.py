"""ShieldedWorker: calls that are done to their end, whatever becomes of the thread that waits."""

import gc
import threading

import pytest

from rocketlake.files.shielded_worker import ShieldedWorker

WAIT_S = 10.0
NAME = "shielded worker of a test"


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def threads_of_the_worker():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


class Interrupted:
    """A worker that was told to end in the middle of a call, as by an interrupted `close()`."""

    def __init__(self):
        self.worker = ShieldedWorker(NAME)
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        self.done = []
        self._threads = [in_thread(lambda: self.worker.run(self._first))]
        assert self.has_begun.wait(WAIT_S)
        self._threads.append(in_thread(self.worker.end))
        self._await(lambda: self.worker._server is None)

    def _await(self, is_true):
        while not is_true():
            threading.Event().wait(0.001)

    def _first(self):
        self.has_begun.set()
        assert self.may_go_on.wait(WAIT_S)
        self.done.append("first")
        self.worker.run(lambda: self.done.append("nested"))
        self.done.append("end of first")

    def call_again(self, call):
        self._threads.append(in_thread(lambda: self.worker.run(call)))
        self._await(lambda: len(threads_of_the_worker()) > 1)

    def join(self):
        self.may_go_on.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "the calls wait for each other"


def test_call_inside_a_call_is_done_at_once_when_the_worker_was_ended_meanwhile():
    """The two waited for each other: the second close() of a store hung, and the first with it."""
    interrupted = Interrupted()
    interrupted.call_again(lambda: interrupted.done.append("second"))
    interrupted.join()
    interrupted.worker.end()
    assert interrupted.done == ["first", "nested", "end of first", "second"]


def test_end_waits_for_every_thread():
    interrupted = Interrupted()
    interrupted.call_again(lambda: None)
    interrupted.may_go_on.set()
    interrupted.worker.end()
    interrupted.worker.end()
    interrupted.join()
    assert not threads_of_the_worker()


@pytest.mark.parametrize("is_current", [True, False])
def test_work_for_a_thread_that_has_ended_is_done_by_another(is_current):
    """An exception inside `end` may leave the thread that was told to end in its place."""
    worker = ShieldedWorker(NAME)
    worker.run(lambda: None)
    server = worker._server
    worker.end()
    worker._server = server if is_current else None
    assert worker.run(lambda: 7) == 7
    worker.end()
    assert not threads_of_the_worker()


def test_value_and_error_of_a_call_are_handed_on():
    worker = ShieldedWorker(NAME)
    assert worker.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda: 1 // 0)
    worker.end()
    assert worker.run(lambda: 8) == 8
    worker.end()
    assert not threads_of_the_worker()


class InterruptedOnceError(BaseException):
    """As a signal handler may raise it."""


@pytest.mark.parametrize("name", ["_start", "_await"])
def test_call_is_made_although_its_caller_is_interrupted_on_the_way(monkeypatch, name):
    """An exception in the first instructions of `close()` left the store open and locked."""
    worker, made = ShieldedWorker(NAME), []
    original, interrupts = getattr(worker, name), []

    def interrupted(*arguments):
        if not interrupts:
            interrupts.append(name)
            raise InterruptedOnceError
        return original(*arguments)

    monkeypatch.setattr(worker, name, interrupted)
    with pytest.raises(InterruptedOnceError):
        worker.run(lambda: made.append(threading.current_thread().name))
    worker.end()
    assert made == [NAME], "once, and in the thread of the worker"
    assert threads_of_the_worker() == []


def test_interrupt_inside_the_start_of_the_thread_is_not_taken_for_the_end_of_the_program(
    monkeypatch,
):
    """It came out of a Condition as a RuntimeError; the call was then made without a shield."""
    start, broken = threading.Thread.start, []

    def start_interrupted(thread):
        start(thread)
        if thread.name == NAME and not broken:
            broken.append(thread)
            error = RuntimeError("release unlocked lock")
            error.__context__ = InterruptedOnceError()
            raise error

    monkeypatch.setattr(threading.Thread, "start", start_interrupted)
    worker, made = ShieldedWorker(NAME), []
    with pytest.raises(InterruptedOnceError):
        worker.run(lambda: made.append(threading.current_thread().name))
    worker.end()
    assert made == [NAME]
    assert threads_of_the_worker() == []


def test_thread_of_a_worker_that_nobody_holds_ends():
    worker = ShieldedWorker(NAME)
    worker.run([worker].copy)  # what was done must not keep it
    (thread,) = threads_of_the_worker()
    del worker
    gc.collect()
    thread.join(WAIT_S)
    assert not thread.is_alive()
