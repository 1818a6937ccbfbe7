"""Loops over a consumer whose store is closed at any moment: they end, and nothing is raised."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_fakes import WAIT_S, MemoryEngine, open_memory_store

import rocketlake
from rocketlake import Consumer, Message, Store
from rocketlake.embedded.aio import AsyncConsumer
from rocketlake.errors import StoreClosedError
from rocketlake.metadata.offsets import OffsetBook

CALLED = ("get", "queue_bounds", "offset_by_time", "catch_up")
MOMENTS_MAX = 200


class Moments:
    """Closes a store at one of the calls that a consumer makes into it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: MemoryEngine, at: int) -> None:
        self.store: Store | None = None
        self.is_armed = False
        self.count = 0
        self._at = at
        self._engine = engine
        for name in CALLED:
            monkeypatch.setattr(engine, name, self._wrap(getattr(engine, name)))
        for name in ("get", "commit"):
            monkeypatch.setattr(OffsetBook, name, self._wrap(getattr(OffsetBook, name)))

    def _wrap(self, call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            if self.is_armed:
                self.count += 1
                if self.count == self._at:
                    assert self.store is not None
                    self.store.close()
                if self._engine.is_closed:
                    raise StoreClosedError("the engine is closed")
            return call(*args, **kwargs)

        return wrapped


def run_loop(path: Path, monkeypatch: pytest.MonkeyPatch, at: int, loop: Callable) -> bool:
    """Run a loop whose store is closed at a moment; tell whether it came to that."""
    engine = MemoryEngine()
    moments = Moments(monkeypatch, engine, at)
    store = moments.store = open_memory_store(path, engine)
    store.create_topic("orders", queues=3)
    for number in range(5):
        store.put(Message(topic="orders", body=b"%d" % number))
    consumer = store.consumer("g", "orders", timeout=0.0, batch=2, start="last")
    store.reset_offsets("g", "orders", "first")
    other = store.consumer("g", "orders", timeout=0.0)
    other.close()  # queues change hands twice
    moments.is_armed = True
    loop(consumer, lambda: change_queues(store, moments))
    moments.is_armed = False
    store.close()
    return moments.count >= at


def change_queues(store: Store, moments: Moments) -> None:
    """Give the topic queues whose beginning its consumers must ask the store for."""
    moments.is_armed = False
    if store.is_open:
        store.update_topic("orders", store.topic("orders").read_queue_count + 1)
    moments.is_armed = True


def loop_plainly(consumer: Consumer, on_message: Callable[[], None]) -> None:
    for _ in consumer:
        on_message()


def loop_with_asyncio(consumer: Consumer, on_message: Callable[[], None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(WAIT_S):
            async for _ in AsyncConsumer(consumer, timeout_s=0.0, batch=2):
                on_message()

    asyncio.run(run())


@pytest.mark.parametrize("loop", [loop_plainly, loop_with_asyncio])
def test_loop_ends_when_its_store_is_closed_at_any_moment(tmp_path, monkeypatch, loop):
    for at in range(1, MOMENTS_MAX):
        path = tmp_path / str(at)
        path.mkdir()
        with monkeypatch.context() as patch:
            if not run_loop(path, patch, at, loop):
                assert at > 10
                return
    raise AssertionError("the loop makes more calls than the test has moments")


def test_loop_that_waits_ends_when_its_store_is_closed(tmp_path):
    store = rocketlake.open_store(tmp_path)
    store.put(Message(topic="orders", body=b"1"))
    seen = threading.Event()
    raised = []

    def consume() -> None:
        try:
            for _ in store.consumer("g", "orders"):
                seen.set()
        except Exception as error:  # noqa: BLE001 - shown by the test
            raised.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    assert seen.wait(WAIT_S)
    store.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert raised == []


def test_asyncio_loop_ends_when_its_store_is_closed(tmp_path):
    async def run() -> int:
        store = await rocketlake.open_store_async(tmp_path)
        await store.put(Message(topic="orders", body=b"1"))
        count = 0
        async for _ in store.consumer("g", "orders"):
            count += 1
            await store.close()
        return count

    assert asyncio.run(asyncio.wait_for(run(), WAIT_S)) == 1
