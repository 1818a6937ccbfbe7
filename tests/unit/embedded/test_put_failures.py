"""A put that does not keep its promise raises, whatever way it comes, and says what to do."""

import asyncio
import pickle

import pytest
from embedded_fakes import WAIT_S, MemoryEngine, open_memory_store

import rocketlake
from rocketlake import Message, PutFailedError, PutReceipt, PutStatus, StoreClosedError
from rocketlake.embedded.aio import AsyncStore
from rocketlake.embedded.put_failure import put_failure
from rocketlake.errors import StorePoisonedError
from rocketlake.store.put.future import PutFuture

REFUSED = [status for status in PutStatus if status is not PutStatus.PUT_OK]


def order(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


def too_large() -> Message:
    return order(body=bytes(2000))


@pytest.fixture(params=[True, False], ids=["known-topic", "new-topic"])
def store(request, tmp_path):
    with rocketlake.open_store(tmp_path, max_message_size=1000, timer_wheel_enable=False) as opened:
        if request.param:
            opened.create_topic("orders")
        yield opened


WAYS = {
    "put": lambda store, message: store.put(message),
    "put_async": lambda store, message: store.put_async(message).result(WAIT_S),
    "put_batch": lambda store, message: store.put_batch([message]),
    "put_batch_async": lambda store, message: store.put_batch_async([message]).result(WAIT_S),
    "asyncio put": lambda store, message: asyncio.run(AsyncStore(store).put(message)),
    "asyncio put_batch": lambda store, message: asyncio.run(AsyncStore(store).put_batch([message])),
}


@pytest.mark.parametrize("way", WAYS)
def test_message_over_the_limit_raises_with_all_there_is_to_know(store, way):
    with pytest.raises(PutFailedError) as raised:
        WAYS[way](store, too_large())
    error = raised.value
    assert error.status is PutStatus.MESSAGE_ILLEGAL
    assert error.receipt.status is error.status
    assert "1000" in error.reason
    assert (error.may_be_stored, error.retriable) == (False, False)
    for part in (str(store.path), "MESSAGE_ILLEGAL", error.reason, "nothing was stored", "Way out"):
        assert part in str(error)
    assert WAYS[way](store, order()).is_ok


@pytest.mark.parametrize("way", WAYS)
def test_store_that_gives_statuses_gives_them_every_way(tmp_path, way):
    options = {"max_message_size": 1000, "raise_on_failure": False}
    with rocketlake.open_store(tmp_path, **options) as store:
        assert WAYS[way](store, too_large()).status is PutStatus.MESSAGE_ILLEGAL
        assert WAYS[way](store, order()).status is PutStatus.PUT_OK
    receipt = WAYS[way](store, order())
    assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "is closed" in receipt.reason


def test_asyncio_store_can_be_opened_with_statuses(tmp_path):
    async def put() -> PutStatus:
        options = {"max_message_size": 1000, "raise_on_failure": False}
        async with rocketlake.open_store_async(tmp_path, **options) as store:
            return (await store.put(too_large())).status

    assert asyncio.run(put()) is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("way", WAYS)
def test_put_into_a_closed_store_raises_that_it_is_closed(store, way):
    store.close()
    with pytest.raises(StoreClosedError, match="is closed"):
        WAYS[way](store, order())


def test_full_disk_raises_with_the_words_of_retention(tmp_path):
    with rocketlake.open_store(tmp_path, disk_free_refuse_bytes=1 << 60) as store:
        with pytest.raises(PutFailedError, match="puts are refused with less than") as raised:
            store.put(order())
        assert raised.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert (raised.value.may_be_stored, raised.value.retriable) == (False, True)
        future = store.put_async(order())
    # The store was closed since; the future tells what happened to its put.
    assert isinstance(future.exception(), PutFailedError)


def test_message_that_is_stored_but_not_safe_says_so(tmp_path):
    engine = MemoryEngine()
    engine.late_status = PutStatus.FLUSH_DISK_TIMEOUT
    with open_memory_store(tmp_path, engine) as store:
        for put in WAYS.values():
            with pytest.raises(PutFailedError, match="store it twice") as raised:
                put(store, order())
            assert (raised.value.may_be_stored, raised.value.retriable) == (True, False)
            assert raised.value.receipt.queue_offset >= 0
        assert store.topic("orders") is not None
        engine.late_status = PutStatus.PUT_OK
        assert sum(store.max_offset("orders", queue) for queue in range(4)) == len(WAYS)


def test_send_back_and_put_again_raise_too(tmp_path):
    engine = MemoryEngine()
    with open_memory_store(tmp_path, engine) as store:
        store.put(order(), queue_id=0)
        stored = store.get("orders", 0, 0).messages[0]
        engine.answer = PutStatus.OS_PAGE_CACHE_BUSY
        with pytest.raises(PutFailedError, match="OS_PAGE_CACHE_BUSY"):
            store.put_again(stored)
        with pytest.raises(PutFailedError, match="OS_PAGE_CACHE_BUSY"):
            store.send_back("g", stored.physical_offset)
        assert store.max_offset("orders", 0) == 1


@pytest.mark.parametrize("status", REFUSED)
def test_every_status_has_a_way_out(tmp_path, status):
    error = put_failure(PutReceipt(status, reason="because"), tmp_path, "orders")
    assert "'orders'" in str(error)
    assert "because" in str(error)
    assert str(error).split("Way out: ")[1]
    assert not error.may_be_stored
    stored = put_failure(PutReceipt(status, queue_offset=1, physical_offset=7), tmp_path)
    assert stored.may_be_stored
    assert not stored.retriable
    assert "offset 7" in str(stored)


def test_error_travels_between_processes(tmp_path):
    error = put_failure(PutReceipt(PutStatus.OS_PAGE_CACHE_BUSY, reason="slow"), tmp_path, "T")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, PutFailedError)
    assert (str(copy), copy.status, copy.retriable) == (str(error), error.status, True)


# --- futures --------------------------------------------------------------------------------------


def failing(receipt: PutReceipt) -> PutFuture:
    future = PutFuture()
    future.on_failure = lambda answer: ValueError(answer.status)
    future.answer(receipt)
    return future


def test_future_raises_what_the_hook_makes_of_a_failure():
    future = failing(PutReceipt(PutStatus.MESSAGE_ILLEGAL))
    assert future.done()
    with pytest.raises(ValueError, match="MESSAGE_ILLEGAL"):
        future.result()
    assert isinstance(future.exception(), ValueError)
    seen = []
    future.add_done_callback(lambda done: seen.append(done.exception()))
    assert isinstance(seen[0], ValueError)


def test_future_of_a_good_put_asks_nobody():
    future = failing(PutReceipt(PutStatus.PUT_OK, 0, 0))
    assert future.result().status is PutStatus.PUT_OK
    assert future.exception() is None


def test_future_that_raised_keeps_its_error(tmp_path):
    engine = MemoryEngine()
    engine.error = StorePoisonedError("flush failed")
    with open_memory_store(tmp_path, engine) as store:
        assert isinstance(store.put_async(order()).exception(), StorePoisonedError)
        with pytest.raises(StorePoisonedError):
            store.put_async(order()).result()
