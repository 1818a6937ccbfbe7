"""AsyncStore: a store for asyncio, whose waits are awaited.

    async with open_store_async("data/store") as store:
        await store.put(Message(topic="orders", body=b"..."))
        async for message in store.consumer("billing", "orders"):
            ...

1. Puts run on the loop, since they only copy into memory; the flush is awaited.
2. Reads may touch the disk, so they run in the executor of the loop.
3. A consumer without messages awaits an event that arrivals set; no thread waits for it.
4. A cancelled task loses no message: messages read ahead are kept, and messages handed out but not
   committed are delivered again. A cancelled put may be stored all the same.
"""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from rocketlake.clock import Clock
from rocketlake.config import Source
from rocketlake.embedded.consumer.consumer import Consumer
from rocketlake.embedded.consumer.plan import Start
from rocketlake.embedded.open_store import AnyPath, open_store
from rocketlake.embedded.store import Store
from rocketlake.errors import StoreClosedError
from rocketlake.files.handed_call import HandedCall
from rocketlake.format.record import StoredMessage
from rocketlake.model.message import Message
from rocketlake.model.unix_time import Timestamp
from rocketlake.store.api import GetResult, PutReceipt
from rocketlake.store.lifecycle import Progress
from rocketlake.store.ports import ArrivalListener, CustomDispatcher, PutHook
from rocketlake.store.put.future import PutFuture
from rocketlake.store.retention.service import Deleted

P = ParamSpec("P")
T = TypeVar("T")


class _AsyncClosing:
    """Gives `async with` to a class that has `close`."""

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncStore(_AsyncClosing):
    """A store for one event loop; `store` is the same store with its synchronous methods.

    Thread-safety: the thread of the loop only; other threads use `store`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"<Async{repr(self.store)[1:]}"

    async def close(self) -> None:
        """End every consumer, write the tables, and bring everything to disk.

        A task cancelled meanwhile ends when the store is closed. Cancelled again, it ends at
        once, and the store is still closed.
        """
        await _finish(_in_thread(self.store.close))

    async def flush(self) -> None:
        """Bring everything that was put to disk, and the progress of groups."""
        await _in_executor(self.store.flush)

    async def delete_expired(self, hours: float | None = None) -> Deleted:
        """Delete old log files now, as `Store.delete_expired` does."""
        return await _in_executor(self.store.delete_expired, hours)

    async def put(self, message: Message, queue_id: int | None = None) -> PutReceipt:
        """Store a message, as `Store.put` does, with the same errors."""
        # Why: creating a topic writes a table. A closed store creates none.
        if self.store.is_open and self.store.topic(getattr(message, "topic", "")) is None:
            return await _await_put(await _in_executor(self.store.put_async, message, queue_id))
        return await _await_put(self.store.put_async(message, queue_id))

    async def put_batch(
        self, messages: Iterable[Message], queue_id: int | None = None
    ) -> PutReceipt:
        """Store messages of one topic in one queue, as `Store.put_batch` does."""
        batch = list(messages)
        return await _await_put(await _in_executor(self.store.put_batch_async, batch, queue_id))

    async def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        *,
        tags: str | None = None,
        sql: str | None = None,
    ) -> GetResult:
        """Return messages of a queue from an offset on, as `Store.get` does."""
        return await _in_executor(
            self.store.get, topic, queue_id, offset, max_messages, tags=tags, sql=sql
        )

    async def query(
        self,
        topic: str,
        key: str | None = None,
        max_messages: int | None = None,
        *,
        tag: str | None = None,
        begin: Timestamp | None = None,
        end: Timestamp | None = None,
    ) -> list[StoredMessage]:
        """Return the newest messages that have a key or a tag, as `Store.query` does."""
        return await _in_executor(
            self.store.query, topic, key, max_messages, tag=tag, begin=begin, end=end
        )

    async def message(self, msg_id: str) -> StoredMessage | None:
        """Return the message with an id, as in receipts; None if it was deleted."""
        return await _in_executor(self.store.message, msg_id)

    async def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: Timestamp,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the queue offset for a store time, as `Store.offset_by_time` does."""
        return await _in_executor(self.store.offset_by_time, topic, queue_id, timestamp, boundary)

    def consumer(  # noqa: PLR0913 - as Store.consumer
        self,
        group: str,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        start: Start = "first",
        timeout: float | None = None,
        auto_commit: bool = True,
        batch: int = 32,
        queues: Collection[int] | None = None,
    ) -> "AsyncConsumer":
        """Join a consumer group, as `Store.consumer` does; iterate with `async for`."""
        consumer = self.store.consumer(
            group,
            topic,
            tags=tags,
            sql=sql,
            start=start,
            timeout=timeout,
            auto_commit=auto_commit,
            batch=batch,
            queues=queues,
        )
        return AsyncConsumer(consumer, timeout_s=timeout, batch=batch)


class AsyncConsumer(_AsyncClosing):
    """One member of a consumer group, for one task.

    A message is committed when the loop asks for the next one; see `Consumer`.
    """

    def __init__(self, consumer: Consumer, *, timeout_s: float | None, batch: int) -> None:
        self.consumer = consumer
        self._timeout_s = timeout_s
        self._batch = batch
        self._looking: asyncio.Future[bool] | None = None

    def __repr__(self) -> str:
        return f"<Async{repr(self.consumer)[1:]}"

    async def close(self) -> None:
        """Leave the group; uncommitted messages are delivered again."""
        await _finish(_in_thread(self.consumer.close))

    def __aiter__(self) -> Self:
        """Start a loop; a message whose loop body did not finish is delivered again."""
        iter(self.consumer)
        return self

    async def __anext__(self) -> StoredMessage:
        """Commit the message in hand and return the next one."""
        consumer = self.consumer
        while not consumer.is_closed:
            await self._finish_look()
            message = consumer.take_next()
            if message is not None:
                return message
            if not await self._await_ready(self._timeout_s):
                break
        raise StopAsyncIteration

    async def poll(
        self,
        max_messages: int | None = None,
        timeout: float | None = 0.0,  # noqa: ASYNC109
    ) -> list[StoredMessage]:
        """Return available messages, or wait for some; the caller commits them."""
        limit = self._batch if max_messages is None else max_messages
        while True:
            await self._finish_look()
            found = self.consumer.take_ready(limit)
            if found or not await self._await_ready(timeout):
                return found

    async def commit(self) -> None:
        """Commit every message handed out so far, the one in hand included."""
        await self._finish_look()
        self.consumer.commit()

    async def lag(self) -> int:
        """Return how many messages of its queues were not handed out yet, filtered ones included.

        Raises:
            StoreClosedError: the consumer, or its store, was closed.
        """
        return await _in_executor(self.consumer.lag)

    async def _await_ready(self, timeout_s: float | None) -> bool:
        """Wait until messages were read ahead; False on timeout or when closed."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(arrived.set)

        deadline = None if timeout_s is None else loop.time() + timeout_s
        with self.consumer.listening_with(notify):
            while not self.consumer.is_closed:
                # Order: clear earlier notifications, then look, then wait for later ones.
                arrived.clear()
                if await self._look():
                    return True
                try:
                    async with asyncio.timeout_at(deadline):
                        await arrived.wait()
                except TimeoutError:
                    return await self._look(is_last=True)
        return False

    async def _look(self, *, is_last: bool = False) -> bool:
        """Read ahead in the executor; resume a look that a cancelled task has left."""
        if self._looking is None:
            loop = asyncio.get_running_loop()
            look = partial(self.consumer.look, is_last=is_last)
            self._looking = loop.run_in_executor(None, look)
        looking = self._looking
        try:
            return await asyncio.shield(looking)
        finally:
            if looking.done():
                self._looking = None

    async def _finish_look(self) -> None:
        # Why: the thread that reads ahead holds the lock of the consumer; the loop must not block.
        if self._looking is not None:
            await self._look()


class AsyncOpening:
    """A store that is being opened: use `async with`, or `await` it and close the store."""

    def __init__(self, opener: Callable[[], Store]) -> None:
        self._opener = opener
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, Any, AsyncStore]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._store is not None, "it was entered"
        await self._store.close()

    async def _open(self) -> AsyncStore:
        opening = _CancellableOpening(self._opener)
        opened = _in_thread(opening.open)
        try:
            return AsyncStore(await asyncio.shield(opened))
        except asyncio.CancelledError:
            await _finish(_in_thread(opening.abandon))
            raise


class _CancellableOpening:
    """A store opened by one thread, and closed by another if its task was cancelled."""

    def __init__(self, opener: Callable[[], Store]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._is_abandoned = False

    def open(self) -> Store:
        """Open the store.

        Raises:
            StoreClosedError: the task was cancelled before.
        """
        with self._lock:
            if self._is_abandoned:
                raise StoreClosedError("the store is not opened: the task was cancelled")
            self._store = self._opener()
            return self._store

    def abandon(self) -> None:
        """Close the store as soon as it is open."""
        with self._lock:
            self._is_abandoned = True
            if self._store is not None:
                self._store.close()


def open_store_async(
    path: AnyPath | None = None,
    conf: Source | None = None,
    *,
    clock: Clock | None = None,
    on_progress: Progress | None = None,
    hooks: Sequence[PutHook] = (),
    arrival_listeners: Sequence[ArrivalListener] = (),
    dispatchers: Sequence[CustomDispatcher] = (),
    raise_on_failure: bool = True,
    **options: object,
) -> AsyncOpening:
    """Open a store for writing, as `rocketlake.open_store` does; recovery runs in the executor.

    So does `on_progress`. Hooks run on the thread of the loop and must not block; listeners and
    dispatchers run on the dispatch thread of the store.
    """
    opening = partial(
        open_store,
        path,
        conf,
        clock=clock,
        on_progress=on_progress,
        hooks=hooks,
        arrival_listeners=arrival_listeners,
        dispatchers=dispatchers,
        raise_on_failure=raise_on_failure,
        **options,
    )
    return AsyncOpening(opening)


async def _await_put(future: Future[PutReceipt]) -> PutReceipt:
    """Wait for a put; a cancelled task does not cancel the put."""
    inner = _loop_future(future)
    inner.add_done_callback(_retrieve_error)
    return await asyncio.shield(inner)


def _loop_future(future: Future[PutReceipt]) -> asyncio.Future[PutReceipt]:
    """Return a future of the loop with the result of a put.

    Why not `wrap_future`: its callback would run after the callbacks of the program.
    """
    if not isinstance(future, PutFuture):  # made by a plug-in
        return asyncio.wrap_future(future)
    loop = asyncio.get_running_loop()
    inner: asyncio.Future[PutReceipt] = loop.create_future()

    def copy() -> None:
        if inner.done():
            return
        error = future.exception()
        if error is None:
            inner.set_result(future.result())
        else:
            inner.set_exception(error)

    def schedule() -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(copy)

    future.call_at_answer(schedule)
    return inner


def _in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Make a call in a thread of its own, even if the waiting task is cancelled.

    Why not the executor of the loop: it may be busy, and drops calls of cancelled tasks.
    """
    loop = asyncio.get_running_loop()
    inner: asyncio.Future[T] = loop.create_future()
    inner.add_done_callback(_retrieve_error)

    def run() -> None:
        made = HandedCall(call)
        made.run()
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_copy_outcome, made, inner)

    threading.Thread(target=run, name="rocketlake-asyncio").start()
    return inner


def _copy_outcome(made: HandedCall[T], inner: asyncio.Future[T]) -> None:
    try:
        inner.set_result(made.result())
    except BaseException as error:  # noqa: BLE001 - raised in the waiting task
        inner.set_exception(error)


async def _finish(inner: asyncio.Future[T]) -> T:
    """Return the result of a call; a cancelled task waits for its end first."""
    try:
        return await asyncio.shield(inner)
    except asyncio.CancelledError:
        await asyncio.wait([inner])
        raise


def _retrieve_error(future: asyncio.Future[Any]) -> None:
    """Retrieve the error, so that asyncio does not log it as unretrieved."""
    if not future.cancelled():
        future.exception()


async def _in_executor(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, partial(call, *args, **kwargs))
