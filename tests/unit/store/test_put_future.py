"""PutFuture: a plain future to everybody, whoever comes first."""

import asyncio
import concurrent.futures
import threading

import pytest

from rocketlake.store.api import PutReceipt, PutStatus
from rocketlake.store.put.future import PutFuture, callback_thread

RECEIPT = PutReceipt(PutStatus.PUT_OK)


def test_answered_before_anybody_looks():
    future = PutFuture()
    future.answer(RECEIPT)
    assert future.result(0) is RECEIPT
    assert future.done()
    assert future.exception(0) is None


def test_answered_while_somebody_waits():
    future = PutFuture()
    found = []
    waiting = threading.Thread(target=lambda: found.append(future.result(10)))
    waiting.start()
    future.answer(RECEIPT)
    waiting.join(10)
    assert found == [RECEIPT]


def test_answers_and_waits_of_many_threads_meet():
    futures = [PutFuture() for _ in range(5000)]
    found = []
    gate = threading.Barrier(2)

    def wait():
        gate.wait()
        found.extend(future.result(10) for future in futures)

    waiting = threading.Thread(target=wait)
    waiting.start()
    gate.wait()
    for future in futures:
        future.answer(RECEIPT)
    waiting.join(20)
    assert len(found) == len(futures)


def test_callbacks_are_called_before_and_after():
    told = []
    future = PutFuture()
    future.add_done_callback(told.append)
    future.answer(RECEIPT)
    callback_thread.wait_idle(10)
    future.add_done_callback(told.append)
    assert told == [future, future]


def test_callbacks_run_in_order_on_a_thread_that_answers_nothing():
    """A callback that puts and waits would wait for its own thread."""
    futures, told = [PutFuture() for _ in range(100)], []
    for number, future in enumerate(futures):
        future.add_done_callback(
            lambda _, number=number: told.append((number, threading.current_thread().name))
        )
    for future in futures:
        future.answer(RECEIPT)
    callback_thread.wait_idle(10)
    assert told == [(number, "rocketlake-callbacks") for number in range(100)]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_callback_that_raises_ends_no_other_one(error, caplog):
    first, second, told = PutFuture(), PutFuture(), []

    def fail(_):
        raise error("on purpose")

    first.add_done_callback(fail)
    second.add_done_callback(told.append)
    first.answer(RECEIPT)
    second.answer(RECEIPT)
    callback_thread.wait_idle(10)
    assert told == [second]
    assert "callback of a put failed" in caplog.text


def test_lock_that_an_interrupted_wait_left_taken_holds_up_no_answer():
    """Every put of the store timed out then, and close() took a minute."""
    leaked, other, told = PutFuture(), PutFuture(), []
    in_thread = threading.Thread(target=leaked._condition.acquire)
    in_thread.start()
    in_thread.join()
    other.add_done_callback(told.append)
    leaked.answer(RECEIPT)
    other.answer(RECEIPT)
    assert leaked.result(0) is RECEIPT
    callback_thread.wait_idle(10)
    assert told == [other]


def test_only_the_first_of_two_answers_is_heard():
    future = PutFuture()
    future.answer(RECEIPT)
    future.answer(PutReceipt(PutStatus.FLUSH_DISK_TIMEOUT))
    assert future.result(0) is RECEIPT
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(RECEIPT)


@pytest.mark.parametrize("when", ["FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"])
def test_waits_of_the_library_and_answers_meet_at_every_moment(when):
    for round_ in range(200):
        futures = [PutFuture() for _ in range(5)]
        answering = threading.Thread(target=lambda f=futures: [one.answer(RECEIPT) for one in f])
        answering.start()
        done, pending = concurrent.futures.wait(futures, 10, when)
        assert done, round_
        assert when == "FIRST_COMPLETED" or not pending
        answering.join()
        assert all(future.done() for future in futures)


def test_wait_and_as_completed_know_it():
    futures = [PutFuture() for _ in range(3)]
    futures[1].answer(RECEIPT)
    done, pending = concurrent.futures.wait(futures, 0)
    assert (done, len(pending)) == ({futures[1]}, 2)
    for future in pending:
        future.answer(RECEIPT)
    assert set(concurrent.futures.as_completed(futures, 10)) == set(futures)


def test_asyncio_wraps_it():
    async def run():
        future = PutFuture()
        wrapped = asyncio.wrap_future(future)
        threading.Thread(target=future.answer, args=(RECEIPT,)).start()
        return await wrapped

    assert asyncio.run(run()) is RECEIPT


def test_exception_is_raised_again():
    future = PutFuture()
    future.set_exception(OSError("no"))
    with pytest.raises(OSError, match="no"):
        future.result(0)


def test_nobody_can_take_a_put_back():
    future = PutFuture()
    assert not future.cancel()
    assert not future.cancelled()
    future.answer(RECEIPT)
    assert future.result(0) is RECEIPT


def test_unanswered_wait_ends_with_a_timeout():
    with pytest.raises(concurrent.futures.TimeoutError):
        PutFuture().result(0.001)
