"""ReadableStore: reads a store, whether it is open for writing or read-only."""

from abc import ABC, abstractmethod
from typing import Literal

from msgspec import structs

from rocketlake.embedded.consumer.progress import QueueProgress, group_names, progress_of
from rocketlake.embedded.offline_engine import OfflineEngine
from rocketlake.embedded.plug_ins import Engine
from rocketlake.embedded.selection import parse_selection
from rocketlake.format.record import StoredMessage
from rocketlake.metadata.offsets import OffsetTable
from rocketlake.model.ids import OffsetMessageId
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import TopicConfig
from rocketlake.model.unix_time import Timestamp, to_unix_ms
from rocketlake.store.api import ColumnsResult, GetRequest, GetResult
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.queue.times import Boundary


class ReadableStore(ABC):
    """Reads a store. Thread-safety: any thread may call anything."""

    def __init__(self, reader: Engine | OfflineEngine, *, query_max: int) -> None:
        self._reader = reader
        self._query_max = query_max  # messages of a query without a limit

    @abstractmethod
    def require_open(self) -> None:
        """Raise unless the store is open.

        Raises:
            StoreClosedError: it is closed.
        """

    # --- reading -------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        *,
        tags: str | None = None,
        sql: str | None = None,
        group: str = "",
    ) -> GetResult:
        """Return messages of a queue from an offset on, and the offset to continue at.

        Every message that this process has put is visible. `tags` is an expression such as `paid ||
        refunded`, `sql` one of SQL92 such as `region = 'EU' AND amount > 100`. A record whose bytes
        are bad is skipped and listed in `corrupt`.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        request = GetRequest(
            topic=topic, queue_id=queue_id, offset=offset, max_messages=max_messages, group=group
        )
        if tags is None and sql is None:
            return self._reader.get(request)
        return self._reader.get(request, parse_selection(tags, sql).message_filter)

    def columns(
        self, topic: str, queue_id: int, offset: int, max_messages: int = 1024
    ) -> ColumnsResult:
        """Return messages of a queue as columns, several times faster than `get`.

        `columns["queue_offset"]` is an array, `columns.messages()` gives the messages. There may be
        fewer than asked for although there are more: continue at `next_offset`.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        request = GetRequest(
            topic=topic, queue_id=queue_id, offset=offset, max_messages=max_messages
        )
        return self._reader.columns(request)

    def query(
        self,
        topic: str,
        key: str | None = None,
        max_messages: int | None = None,
        *,
        tag: str | None = None,
        begin: Timestamp | None = None,
        end: Timestamp | None = None,
    ) -> list[StoredMessage]:
        """Return the newest messages that have a key, in the order in which they were put.

        With `tag` instead of a key, those with this tag, as far as the index has tags: messages
        indexed by RocketMQ 5.5 or with `compatVersion` 5.5 do.

        The default of `max_messages` is the option `maxMsgsNumBatch`, 64 unless set. `begin` and
        `end` limit the store time, both included.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        limit = self._query_max if max_messages is None else max_messages
        return list(
            self._reader.query(
                make_query(topic, key, limit, tag=tag, begin=begin, end=end)
            ).messages
        )

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the message whose record begins at a log offset; None without a valid record.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return self._reader.message_at(physical_offset)

    def message(self, msg_id: str) -> StoredMessage | None:
        """Return the message with an id, as in receipts; None if it was deleted.

        Raises:
            ValueError: it is not a message id.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        found = self._reader.message_at(OffsetMessageId.parse(msg_id).physical_offset)
        return found if found is not None and found.msg_id == msg_id.upper() else None

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: Timestamp,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the queue offset of the first message not stored before a time.

        With `boundary="upper"`: that of the last message not stored after it.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
            StoreClosedError: the store is closed.
        """
        self.require_open()
        timestamp_ms = to_unix_ms(timestamp, "timestamp")
        key = QueueKey(topic, queue_id)
        return self._reader.offset_by_time(key, timestamp_ms, parse_boundary(boundary))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's first message.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return max(self._reader.queue_bounds(QueueKey(topic, queue_id))[0], 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue will have.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return max(self._reader.queue_bounds(QueueKey(topic, queue_id))[1], 0)

    # --- topics and groups ---------------------------------------------------------------------

    @abstractmethod
    def topics(self) -> list[TopicConfig]:
        """Return the topics, by name."""

    @abstractmethod
    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic; None if there is none of that name."""

    @abstractmethod
    def _offset_table(self) -> OffsetTable:
        """Return how far groups have come."""

    def _read_queue_count(self, topic: str) -> int:
        config = self.topic(topic)
        return 0 if config is None else config.read_queue_count

    def groups(self) -> list[str]:
        """Return the consumer groups that have committed offsets.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return group_names(self._offset_table())

    def progress(self, group: str) -> list[QueueProgress]:
        """Return the progress of a group in each queue of the topics that it consumes.

        Raises:
            StoreClosedError: the store is closed.
        """
        self.require_open()
        return list(
            progress_of(
                self._offset_table(),
                group,
                queue_count=self._read_queue_count,
                bounds=self._reader.queue_bounds,
            )
        )

    def lag(self, group: str) -> int:
        """Return how many messages a group has not consumed yet.

        Raises:
            StoreClosedError: the store is closed.
        """
        return sum(queue.lag for queue in self.progress(group))


def make_query(
    topic: str,
    key: str | None,
    limit: int,
    *,
    tag: str | None = None,
    begin: Timestamp | None = None,
    end: Timestamp | None = None,
) -> KeyQuery:
    """Return a query by key or by tag.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
    """
    if key is not None and tag is not None:
        raise TypeError(f"key = {key!r} and tag = {tag!r}: wanted one of the two")
    if key is None and tag is None:
        raise TypeError(
            f'no key and no tag: query({topic!r}, key="o-1001") finds messages by key,'
            f' query({topic!r}, tag="paid") by tag; get() and consumer() read whole queues'
        )
    query = KeyQuery(
        topic=topic,
        key=_checked_key(key) if tag is None else _checked_tag(tag),
        is_tag=tag is not None,
        limit=limit,
    )
    return structs.replace(
        query,
        begin=query.begin if begin is None else to_unix_ms(begin, "begin"),
        end=query.end if end is None else to_unix_ms(end, "end"),
    )


def _checked_key(key: str | None) -> str:
    if not isinstance(key, str):
        raise TypeError(f"key = {key!r} is {type(key).__name__}; wanted str")
    if not key or " " in key:
        raise ValueError(f"key = {key!r}: a key is not empty and has no blank in it")
    return key


def _checked_tag(tag: str) -> str:
    if not isinstance(tag, str):
        raise TypeError(f"tag = {tag!r} is {type(tag).__name__}; wanted str")
    if not tag:
        raise ValueError("tag = '': a tag is not empty")
    return tag


def parse_boundary(boundary: str) -> Boundary:
    """Return the boundary of a name.

    Raises:
        ValueError: it is neither 'lower' nor 'upper'.
    """
    try:
        return Boundary(boundary)
    except ValueError:
        raise ValueError(f"boundary = {boundary!r}: wanted 'lower' or 'upper'") from None
