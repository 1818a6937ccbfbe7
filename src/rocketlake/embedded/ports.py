"""What an embedded store is built on: an engine that stores messages, or one that only reads."""

from concurrent.futures import Future
from typing import Protocol

from rocketlake.clock import Clock
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
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.times import Boundary
from rocketlake.store.retention.service import Deleted


class ReadEngine(Protocol):
    """Reads a store: an `Engine`, or the read-only view. Called by any thread."""

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None, /) -> GetResult:
        """Return messages of a queue from an offset on."""
        ...

    def queue_bounds(self, key: QueueKey, /) -> tuple[int, int]:
        """Return the offset of a queue's first message, and the one after its last."""
        ...

    def offset_by_time(self, key: QueueKey, timestamp: int, boundary: Boundary, /) -> int:
        """Return the queue offset for a store time."""
        ...

    def catch_up(self) -> None:
        """Make everything that was put so far visible."""
        ...

    def query(self, query: KeyQuery, /) -> QueryResult:
        """Return messages by key."""
        ...

    def message_at(self, physical_offset: int, /) -> StoredMessage | None:
        """Return the message whose record begins at an offset of the log."""
        ...

    def columns(self, request: GetRequest, /) -> ColumnsResult:
        """Return messages of a queue from an offset on, as columns."""
        ...


class Engine(ReadEngine, Protocol):
    """Stores messages: a MessageStore, or a plug-in around one. Called by any thread."""

    @property
    def options(self) -> StoreOptions:
        """Every setting."""
        ...

    @property
    def clock(self) -> Clock:
        """The source of the time."""
        ...

    def put_plain(self, message: Message, queue_id: int, /) -> PutReceipt:
        """Put a message born here and now."""
        ...

    def put_plain_async(self, message: Message, queue_id: int, /) -> Future[PutReceipt]:
        """Put a message born here and now; the future is done when `put_plain` would return."""
        ...

    def put(self, request: AppendRequest, /) -> PutReceipt:
        """Put a message."""
        ...

    def put_async(self, request: AppendRequest, /) -> Future[PutReceipt]:
        """Put a message; the future is done when `put` would return."""
        ...

    def put_batch(self, batch: BatchRequest, /) -> PutReceipt:
        """Put messages of one topic into one queue, all of them or none."""
        ...

    def put_batch_async(self, batch: BatchRequest, /) -> Future[PutReceipt]:
        """Put a batch; the future is done when `put_batch` would return."""
        ...

    def drop_topic(self, topic: str, /) -> int:
        """Remove the queues of a topic; return how many it had."""
        ...

    def delete_expired(self, *, reserved_ms: int | None = None, force: bool = False) -> Deleted:
        """Delete log files that are old enough, with their queue and index entries."""
        ...

    def runtime_info(self) -> dict[str, str]:
        """Return counters and gauges by the reference's names."""
        ...

    def flush(self) -> None:
        """Bring everything that was put so far to disk."""
        ...

    def close(self) -> None:
        """Bring everything to disk and close."""
        ...
