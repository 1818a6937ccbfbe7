"""Plug-ins: wrappers around the engine of a store, named in its options by dotted paths.

`messageStorePlugIn = package.module.Outer,package.module.Inner`: the first is outermost and sees a
message before the others. A class takes the engine it wraps:

    class Noisy(PluginMessageStore):
        def put(self, request: AppendRequest) -> PutReceipt:
            log.debug("put topic=%s queue=%d", request.message.topic, request.queue_id)
            return super().put(request)
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.dotted_path import find_object
from rocketlake.errors import ConfigError
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format.record import StoredMessage
from rocketlake.model.message import Message
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import (
    AppendRequest,
    BatchRequest,
    ColumnsResult,
    GetRequest,
    GetResult,
    PutReceipt,
    QueryResult,
)
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.message_store import MessageStore
from rocketlake.store.options import StoreOptions
from rocketlake.store.ports import ArrivalListener
from rocketlake.store.queue.times import Boundary
from rocketlake.store.retention.service import Deleted
from rocketlake.store.stats.store_stats import StoreStats


class PlugInContext(Struct, frozen=True):
    """What a plug-in may use of the store that it is part of [MessageStorePluginContext]."""

    path: Path
    """The directory of the store."""
    options: StoreOptions
    """Every setting, defaults included."""
    clock: Clock
    """The source of the time."""
    stats: StoreStats
    """The counters of the store; a plug-in adds what the engine does not see."""
    arrival_listener: ArrivalListener
    """Forwards arrivals to the listeners of the store, for messages that a plug-in stores."""


class EngineWrapper:
    """An engine that forwards every call to the one it wraps.

    Thread-safety: any thread calls the methods.
    """

    def __init__(self, inner: "MessageStore | EngineWrapper") -> None:
        self.inner = inner
        self._born_host = inner.options.store_endpoint

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the engine
        return getattr(self.inner, name)

    def put_plain(self, message: Message, queue_id: int) -> PutReceipt:
        """Put a message born here and now, through `put`, which a plug-in overrides."""
        return self.put(self._request(message, queue_id))

    def put_plain_async(self, message: Message, queue_id: int) -> Future[PutReceipt]:
        """Put a message born here and now, through `put_async`."""
        return self.put_async(self._request(message, queue_id))

    def put(self, request: AppendRequest) -> PutReceipt:
        """Put a message."""
        return self.inner.put(request)

    def put_async(self, request: AppendRequest) -> Future[PutReceipt]:
        """Put a message; the future is done when `put` would return."""
        return self.inner.put_async(request)

    def put_batch(self, batch: BatchRequest) -> PutReceipt:
        """Put messages of one topic into one queue, all of them or none."""
        return self.inner.put_batch(batch)

    def put_batch_async(self, batch: BatchRequest) -> Future[PutReceipt]:
        """Put a batch; the future is done when `put_batch` would return."""
        return self.inner.put_batch_async(batch)

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None) -> GetResult:
        """Return messages of a queue from an offset on."""
        return self.inner.get(request, message_filter)

    def columns(self, request: GetRequest) -> ColumnsResult:
        """Return messages of a queue from an offset on, as columns."""
        return self.inner.columns(request)

    def query(self, query: KeyQuery) -> QueryResult:
        """Return messages by key."""
        return self.inner.query(query)

    def offset_by_time(
        self, key: QueueKey, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset for a store time."""
        return self.inner.offset_by_time(key, timestamp, boundary)

    def queue_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the bounds of a queue."""
        return self.inner.queue_bounds(key)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the message whose record begins at an offset of the log."""
        return self.inner.message_at(physical_offset)

    def catch_up(self) -> None:
        """Make everything that was put so far visible."""
        self.inner.catch_up()

    def drop_topic(self, topic: str) -> int:
        """Remove the queues of a topic; return how many it had."""
        return self.inner.drop_topic(topic)

    def delete_expired(self, *, reserved_ms: int | None = None, force: bool = False) -> Deleted:
        """Delete files of the log that are old enough."""
        return self.inner.delete_expired(reserved_ms=reserved_ms, force=force)

    def runtime_info(self) -> dict[str, str]:
        """Return counters and gauges by the reference's names."""
        return self.inner.runtime_info()

    def flush(self) -> None:
        """Bring everything that was put so far to disk."""
        self.inner.flush()

    def close(self) -> None:
        """Close the engine."""
        self.inner.close()

    def _request(self, message: Message, queue_id: int) -> AppendRequest:
        return AppendRequest(
            message=message,
            queue_id=queue_id,
            born_timestamp=self.inner.clock.now_ms(),
            born_host=self._born_host,
        )


Engine: TypeAlias = MessageStore | EngineWrapper
"""Stores messages: the store itself, or plug-ins around it. Any thread may call it."""


class PluginMessageStore(EngineWrapper):
    """A plug-in that changes nothing; override methods to change them.

    Compat: AbstractPluginMessageStore.
    """

    def __init__(self, inner: Engine, context: PlugInContext) -> None:
        super().__init__(inner)
        self.context = context


Factory = Callable[[Engine, PlugInContext], Engine]


def find_plug_ins(paths: Sequence[str]) -> list[tuple[str, Factory]]:
    """Import the classes of dotted paths.

    Raises:
        ConfigError: one cannot be loaded; the message has its name.
    """
    return [(path, _find(path)) for path in paths]


def wrap(engine: Engine, plug_ins: Sequence[tuple[str, Factory]], context: PlugInContext) -> Engine:
    """Wrap an engine in plug-ins, the first outermost.

    Raises:
        ConfigError: one cannot be made; the message has its name.
    """
    for path, factory in reversed(plug_ins):
        try:
            engine = factory(engine, context)
        except Exception as error:  # any error of a plug-in stops the start
            raise _refuse(f"{path} cannot be made: {error!r}") from error
    return engine


def _find(path: str) -> Factory:
    try:
        found = find_object(path)
    except ConfigError as error:
        raise _refuse(str(error)) from error.__cause__
    if not callable(found):
        raise _refuse(f"{path} is {type(found).__name__}, not a class that takes an engine")
    factory: Factory = found
    return factory


def _refuse(reason: str) -> ConfigError:
    return ConfigError(f"messageStorePlugIn: {reason}")
