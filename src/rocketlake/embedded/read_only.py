"""ReadOnlyStore: reads any store, even one that another process has open, and changes no byte."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from rocketlake.closing import Closing
from rocketlake.embedded.offline_read import read_columns, read_messages
from rocketlake.embedded.readable_store import ReadableStore
from rocketlake.errors import StoreClosedError, StoreError
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format import names
from rocketlake.format.record import StoredMessage
from rocketlake.metadata import offsets as offset_table
from rocketlake.metadata import topics as topic_table
from rocketlake.metadata.offsets import OffsetTable
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import TopicConfig, is_lmq, is_system_topic
from rocketlake.store.api import ColumnsResult, GetRequest, GetResult, QueryResult
from rocketlake.store.offline import KeyQuery, OfflineStore
from rocketlake.store.options import ReadOptions
from rocketlake.store.queue.times import Boundary

T = TypeVar("T")


class ReadOnlyStore(ReadableStore, Closing):
    """A store opened by `rocketlake.open_store(path, read_only=True)`.

    Every call sees what was written before it. The store is shown as recovery would leave it.

    Thread-safety: any thread may call anything; calls are serialized.
    """

    def __init__(
        self,
        path: Path,
        options: ReadOptions | None = None,
        *,
        log_dirs: tuple[Path, ...] = (),
        unused_options: tuple[str, ...] = (),
    ) -> None:
        """Open a store directory.

        Raises:
            StoreNotFoundError: it does not exist, is not a directory or may not be read.
            ConfigError: options contradict the files.
        """
        self._name = path  # as the caller gave it
        path = path.absolute()
        view = OfflineStore(path, log_dirs=log_dirs, options=options)
        self._engine = OfflineEngine(view, path)
        resolved = options or ReadOptions()
        super().__init__(self._engine, query_max=resolved.max_msgs_num_batch)
        self.path = path
        self.unused_options = unused_options

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<ReadOnlyStore {str(self.path)!r} {state}>"

    def close(self) -> None:
        """Close all files."""
        self._engine.close()

    @property
    def is_open(self) -> bool:
        """Whether the store was not closed."""
        return self._engine.is_open

    def require_open(self) -> None:
        """Raise unless the store is open.

        Raises:
            StoreClosedError: it is closed.
        """
        self._engine.require_open()

    def topics(self) -> list[TopicConfig]:
        """Return the topics by name, including topics that have queues but no entry.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return sorted(self._topic_table().values(), key=lambda config: config.name)

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic; None if it does not exist.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return self._topic_table().get(name)

    def _topic_table(self) -> dict[str, TopicConfig]:
        found = dict(topic_table.load(self.path / names.CONFIG).topics)
        for topic, count in self._engine.queue_counts().items():
            if topic not in found and not is_lmq(topic):
                found[topic] = TopicConfig(
                    name=topic, read_queue_count=count, write_queue_count=count
                )
        return {name: config for name, config in found.items() if not is_system_topic(name)}

    def _offset_table(self) -> OffsetTable:
        return offset_table.load(self.path / names.CONFIG)

    def put(self, *_: object, **__: object) -> NoReturn:
        """Raise: the store is read-only.

        Raises:
            StoreError: always.
        """
        raise StoreError(
            f"{self._name} was opened read-only;"
            f" open_store({str(self._name)!r}) opens it for writing"
        )

    put_batch = put_async = put_batch_async = put_again = put
    create_topic = update_topic = delete_topic = reset_offsets = consumer = put
    send_back = join_group = put


class OfflineEngine:
    """Reads a store through the read-only view, which it refreshes at each call.

    Thread-safety: `_lock` guards the view.
    """

    def __init__(self, view: OfflineStore, path: Path) -> None:
        self._view = view
        self._path = path
        self._lock = threading.Lock()
        self.is_open = True

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self.is_open = False
            self._view.close()

    def require_open(self) -> None:
        """Raise if closed.

        Raises:
            StoreClosedError: it was closed.
        """
        if not self.is_open:
            raise StoreClosedError(f"the store {self._path} is closed")

    def catch_up(self) -> None:
        """Do nothing: every call refreshes the view."""

    def queue_counts(self) -> dict[str, int]:
        """Return how many queues each topic has."""
        counts: dict[str, int] = {}
        for key in self._ask(lambda view: list(view.queues)):
            counts[key.topic] = max(counts.get(key.topic, 0), key.queue_id + 1)
        return counts

    def queue_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the bounds of a queue; (0, 0) without the queue."""

        def bounds(view: OfflineStore) -> tuple[int, int]:
            queue = view.queues.get(key)
            return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

        return self._ask(bounds)

    def offset_by_time(self, key: QueueKey, timestamp: int, boundary: Boundary) -> int:
        """Return the queue offset for a store time; 0 without the queue."""

        def offset(view: OfflineStore) -> int:
            return view.offset_by_time(key, timestamp, boundary) if key in view.queues else 0

        return self._ask(offset)

    def query(self, query: KeyQuery) -> QueryResult:
        """Return the newest messages by key, in the order of the log."""
        return QueryResult(messages=self._ask(lambda view: view.find(query)))

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the message whose record begins at an offset of the log."""
        return self._ask(lambda view: view.message_at(physical_offset))

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None) -> GetResult:
        """Return messages of a queue from an offset on, and the offset to continue at."""
        return self._ask(lambda view: read_messages(view, request, message_filter))

    def columns(self, request: GetRequest) -> ColumnsResult:
        """Return messages of a queue from an offset on, as columns."""
        return self._ask(lambda view: read_columns(view, request))

    def _ask(self, question: Callable[[OfflineStore], T]) -> T:
        with self._lock:
            self.require_open()
            self._view.refresh()
            return question(self._view)
