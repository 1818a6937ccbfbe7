"""Ports: what the layers above provide: replication, listeners, topics, hooks, dispatchers.

1. A port is called from the thread named in its docstring, never under the append lock.
2. An error of a port ends where its caller says, never in the caller of a put.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from msgspec import Struct

from rocketlake.format.record import RecordColumns
from rocketlake.store.api import AppendRequest, PutReceipt, PutStatus, ReplicaAnswer


class Replicator(Protocol):
    """Answers for replicas. Called by the thread that puts, so it never blocks.

    Asked only for puts that wait. What it raises becomes UNKNOWN_ERROR: refused before the append,
    stored behind it.
    """

    def check(self, end_offset: int) -> PutStatus | ReplicaAnswer:
        """Tell, before the append, whether enough replicas follow a log that ends here.

        PUT_OK lets the put go on; IN_SYNC_REPLICAS_NOT_ENOUGH refuses it.
        """
        ...

    def ask(
        self, end_offset: int, *, timeout_ms: int
    ) -> PutStatus | ReplicaAnswer | Future[PutStatus] | Future[ReplicaAnswer]:
        """Ask, behind the append and beside the flush, that replicas have the log up to an offset.

        Answers PUT_OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE or IN_SYNC_REPLICAS_NOT_ENOUGH;
        a future is completed by the replicator, at the timeout too. A ReplicaAnswer has words for
        the receipt beside the status.
        """
        ...


class AppendListener(Protocol):
    """Notified that the log has grown, before records are flushed, confirmed or dispatched.

    For what follows the log itself, as replication does. The end is `log.wrote_where`. An
    exception that a signal raises in the thread that puts may keep a call from being made: a
    follower also looks by itself from time to time.
    """

    def appended(self) -> None:
        """Called by the thread that appended, outside the append lock; must not block."""
        ...


class RoleListener(Protocol):
    """Notified of a store's new role. Called by the thread that changes it."""

    def role_changed(self, *, is_replica: bool) -> None:
        """Called when a store accepts puts again, or refuses them from now on."""
        ...


class Arrival(Struct, frozen=True, kw_only=True):
    """A message that readers of a queue can now get."""

    topic: str
    queue_id: int
    next_offset: int
    """The queue offset behind the message."""
    tags_code: int
    store_timestamp: int
    bitmap: bytes | None
    """Bits of the subscriptions that may want the message, where they are computed."""
    properties: Mapping[str, str]


class ArrivalListener(Protocol):
    """Wakes readers that wait for messages. Called by the dispatch thread.

    An optional attribute `is_awaited` says whether a few milliseconds matter now.
    """

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Called with messages in the order of the log; each is made when it is read."""
        ...


class TopicCatalog(Protocol):
    """Knows the topics of a store. Called by any thread, so it locks or reads one reference."""

    def is_batch_queue(self, topic: str) -> bool:
        """Tell whether the queues of a topic are batch consume queues."""
        ...

    def read_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be read; 0 if there is no such topic."""
        ...

    def write_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be written; 0 if there is no such topic."""
        ...


class PutHook(Protocol):
    """Sees a message before it is put (PutMessageHook). Called by the thread that puts.

    Hooks that have `before_put_batch(batch)` get a batch as a whole, and answer as `before_put`
    does, with another BatchRequest in place of another AppendRequest. The put raises what a hook
    raises.
    """

    @property
    def name(self) -> str:
        """The hook's name in logs."""
        ...

    def before_put(self, request: AppendRequest) -> AppendRequest | PutReceipt | None:
        """Continue the put (None), continue with another request, or end it with a receipt."""
        ...


class DispatchSlice:
    """Records of the log that are being dispatched.

    `bitmaps` has the filter bits of rows, by their index in `columns`; a dispatcher that runs
    before the consume queues fills it. Owned by the dispatch thread.
    """

    __slots__ = ("bitmaps", "columns")

    def __init__(self, columns: RecordColumns, bitmaps: dict[int, bytes]) -> None:
        self.columns = columns
        self.bitmaps = bitmaps


class CustomDispatcher(Protocol):
    """Builds something from the log (CommitLogDispatcher). Called by the dispatch thread.

    After a crash it gets some records again. An error stops dispatch: the same records are
    dispatched again, to every dispatcher, until none raises.
    """

    def dispatch(self, records: DispatchSlice) -> None:
        """Process records, in the order of the log; they are invalid when it returns."""
        ...


def require_methods(argument: str, part: object, *methods: str) -> None:
    """Refuse an object that does not implement a port.

    Raises:
        TypeError: it lacks one of the methods.
    """
    for method in methods:
        if not callable(getattr(part, method, None)):
            raise TypeError(f"{argument} = {part!r}: it has no method {method}")
