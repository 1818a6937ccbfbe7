"""PutFuture: a plain future to everybody, whoever comes first."""

import asyncio
import concurrent.futures
import threading

import pytest

from rocketlake.store.api import PutReceipt, PutStatus
from rocketlake.store.put_future import PutFuture

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
    future.add_done_callback(told.append)
    assert told == [future, future]


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
