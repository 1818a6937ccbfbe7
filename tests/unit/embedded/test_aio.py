"""The asyncio face: awaited puts, reads off the loop, consumers that are woken and cancelled."""

import asyncio
import concurrent.futures
import threading
from contextlib import suppress

import pytest
from embedded_fakes import WAIT_S, MemoryEngine, bodies, open_memory_store

import rocketlake
from rocketlake.embedded.aio import AsyncOpening, AsyncStore
from rocketlake.errors import StoreClosedError, StorePoisonedError
from rocketlake.model.message import Message


def order(**fields) -> Message:
    return Message(**{"topic": "orders", "body": b"x", **fields})


@pytest.fixture
def engine():
    return MemoryEngine()


@pytest.fixture
def store(tmp_path, engine):
    with open_memory_store(tmp_path, engine) as opened:
        opened.create_topic("orders", queues=1)
        yield AsyncStore(opened)


def run(test) -> None:
    async def limited() -> None:
        async with asyncio.timeout(WAIT_S):
            await test()

    asyncio.run(limited())


async def until(is_so) -> None:
    while not is_so():  # noqa: ASYNC110 - what is waited for knows no loop
        await asyncio.sleep(0)


def test_put_get_query_and_the_rest(store):
    async def test() -> None:
        receipt = await store.put(order(body=b"1", keys=["k"]))
        await store.put_batch([order(body=b"2"), order(body=b"3")])
        await store.put(order(topic="new", body=b"4"))
        result = await store.get("orders", 0, 0)
        assert bodies(result.messages) == ["1", "2", "3"]
        assert bodies(await store.query("orders", "k")) == ["1"]
        assert (await store.message(receipt.msg_id)).body == b"1"
        assert await store.offset_by_time("orders", 0, 0) == 0
        await store.flush()
        assert store.store.topic("new") is not None
        assert repr(store).startswith("<AsyncStore ")

    run(test)


def test_put_waits_for_the_disk_without_stopping_the_loop(store, engine):
    async def test() -> None:
        engine.is_slow = True
        puts = [asyncio.create_task(store.put(order())) for _ in range(3)]
        await until(lambda: len(engine.pending) == 3)
        assert not any(put.done() for put in puts)
        threading.Thread(target=engine.settle).start()
        receipts = await asyncio.gather(*puts)
        assert sorted(receipt.queue_offset for receipt in receipts) == [0, 1, 2]

    run(test)


def test_cancelled_put_leaves_the_engines_future_alone(store, engine):
    async def test() -> None:
        engine.is_slow = True
        put = asyncio.create_task(store.put(order()))
        await until(lambda: engine.pending)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        assert not engine.pending[0][0].cancelled()
        engine.settle()

    run(test)


def test_put_errors_reach_the_caller(store, engine):
    async def test() -> None:
        with pytest.raises(TypeError, match="body = 'text' is str"):
            await store.put(order(body="text"))
        with pytest.raises(TypeError, match="wanted a Message"):
            await store.put("text")
        with pytest.raises(ValueError, match="messages is empty"):
            await store.put_batch([])
        engine.error = StorePoisonedError("flush failed")
        with pytest.raises(StorePoisonedError):
            await store.put(order())

    run(test)


# --- consumers ------------------------------------------------------------------------------------


def test_iteration_hands_out_commits_and_ends_at_the_timeout(store):
    async def test() -> None:
        for number in range(40):
            await store.put(order(body=str(number).encode()))
        seen = [m async for m in store.consumer("g", "orders", timeout=0.01)]
        assert bodies(seen) == [str(number) for number in range(40)]
        assert store.store.lag("g") == 0

    run(test)


def test_iteration_waits_for_arrivals_from_any_thread(store):
    async def test() -> None:
        consumer = store.consumer("g", "orders")
        task = asyncio.create_task(anext(consumer))
        assignment = store.store._groups.assignment("g", "orders")
        await until(lambda: assignment.is_awaited)
        threading.Thread(target=lambda: store.store.put(order(body=b"late"))).start()
        assert (await task).body == b"late"
        await consumer.close()

    run(test)


def test_iteration_that_is_cancelled_while_it_waits_loses_nothing(store):
    async def test() -> None:
        consumer = store.consumer("g", "orders")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.01)
        await store.put(order(body=b"1"))
        assert (await anext(consumer)).body == b"1"

    run(test)


def test_cancelled_while_it_reads_the_look_is_taken_up(store, engine):
    async def test() -> None:
        gate, inside = threading.Event(), threading.Event()

        def wait() -> None:
            inside.set()
            gate.wait(WAIT_S)

        await store.put(order(body=b"1"))
        consumer = store.consumer("g", "orders")
        engine.before_get = wait
        task = asyncio.create_task(anext(consumer))
        await until(inside.is_set)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        again = asyncio.create_task(anext(consumer))
        await asyncio.sleep(0)
        gate.set()
        assert (await again).body == b"1"
        assert engine.gets == 1

    run(test)


def test_break_hands_out_the_message_again(store):
    async def test() -> None:
        await store.put_batch([order(body=b"1"), order(body=b"2")])
        async with store.consumer("g", "orders", timeout=0) as consumer:
            async for _ in consumer:
                break
            assert bodies([m async for m in consumer]) == ["1", "2"]
            assert repr(consumer).startswith("<AsyncConsumer group='g'")
        assert consumer.consumer.is_closed

    run(test)


def test_poll_commit_and_lag(store):
    async def test() -> None:
        await store.put_batch([order(body=str(n).encode()) for n in range(5)])
        consumer = store.consumer("g", "orders")
        assert bodies(await consumer.poll(2)) == ["0", "1"]
        assert await consumer.lag() == 3
        await consumer.commit()
        assert bodies(await consumer.poll()) == ["2", "3", "4"]
        assert await consumer.poll(timeout=0.001) == []
        with pytest.raises(ValueError, match="max_messages = 0"):
            await consumer.poll(0)
        await consumer.close()
        with pytest.raises(StoreClosedError):
            await consumer.poll()
        assert bodies(await store.consumer("g", "orders").poll()) == ["2", "3", "4"]

    run(test)


def test_close_ends_loops(store, engine):
    async def test() -> None:
        async def consume() -> int:
            return len([m async for m in store.consumer("g", "orders")])

        task = asyncio.create_task(consume())
        await store.put(order())
        await until(lambda: store.store.progress("g") and not store.store.lag("g"))
        await store.close()
        assert await task == 1
        assert engine.is_closed

    run(test)


def test_many_tasks_share_a_group(store):
    async def test() -> None:
        store.store.update_topic("orders", queues=4)
        seen: list[str] = []

        async def consume() -> None:
            async for message in store.consumer("g", "orders", timeout=0.2):
                seen.append(message.body.decode())
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(consume())
            for number in range(200):
                await store.put(order(body=str(number).encode()))
        assert sorted(seen, key=int) == [str(number) for number in range(200)]

    run(test)


def test_opening_awaits_the_store_and_closes_it(tmp_path):
    async def test() -> None:
        engine = MemoryEngine()
        async with AsyncOpening(lambda: open_memory_store(tmp_path, engine)) as store:
            await store.put(order())
        assert engine.is_closed
        store = await AsyncOpening(lambda: open_memory_store(tmp_path, MemoryEngine()))
        assert store.store.is_open
        await store.close()

    run(test)


def test_cancelled_opening_leaves_no_store_open(tmp_path):
    """The store stayed locked until the process ended."""

    async def use():
        async with rocketlake.open_store_async(tmp_path):
            await asyncio.sleep(60)

    async def main():
        for steps in range(12):
            task = asyncio.create_task(use())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            rocketlake.open_store(tmp_path).close()

    asyncio.run(main())


@pytest.mark.parametrize("times", [1, 2])
def test_cancelled_closing_closes_although_the_executor_is_busy(tmp_path, times):
    async def main():
        loop, gate = asyncio.get_running_loop(), threading.Event()
        store = await rocketlake.open_store_async(tmp_path)
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            loop.set_default_executor(executor)
            busy = loop.run_in_executor(None, gate.wait, 60)

            async def leave():
                async with store:
                    pass

            task = asyncio.create_task(leave())
            for _ in range(times):
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: not store.store.is_open)
            gate.set()
            await busy

    asyncio.run(main())
