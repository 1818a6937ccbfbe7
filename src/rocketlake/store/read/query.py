"""Query: messages by key, by offset and by id; times, totals and estimates of queues.

A hash is not a key: every record that the index names is read and checked before it is returned.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format.record import StoredMessage
from rocketlake.model.ids import OffsetMessageId
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import NO_OFFSET, NO_TIME, QueryResult
from rocketlake.store.disk.index import KeyQuery, is_indexed
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.log.memory_window import memory_window
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.queue_set import AnyQueue, ConsumeQueueSet
from rocketlake.store.read.unit_walk import may_match

_INDEX_STEP_MS: Final = 1000  # the index keeps whole seconds, and leaves the rest out
_UNITS_AT_ONCE: Final = 1024


class Query:
    """Finds messages other than by reading a queue. Thread-safety: any thread.

    Queries by id, times, places in memory and estimates answer a broker's admin requests
    (docs/compat.md lists them); the library itself calls the others.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueSet,
        index: IndexFileSet | None,
        options: StoreOptions,
        *,
        memory_size: int | None = None,
    ) -> None:
        """Without an index nothing is found by key."""
        self._log = log
        self._queues = queues
        self._index = index
        self._scan_max = options.max_consume_queue_scan
        self._sample_max = options.sample_count_threshold
        self._window = memory_window(options.access_message_in_memory_max_ratio, memory_size)

    # --- messages --------------------------------------------------------------------------------

    def query(self, query: KeyQuery) -> QueryResult:
        """Return the newest messages that have a key or tag, in the order of the log.

        Raises:
            ValueError: the query names no topic.
        """
        if query.topic is None:
            raise ValueError("a query by key needs a topic: the index knows no key without one")
        index = self._index
        if index is None:
            return QueryResult()
        found: dict[int, StoredMessage] = {}
        # Why: the index says a message is up to a second older than it is.
        begin = query.begin - _INDEX_STEP_MS + 1
        for offset in index.offsets(query.topic, query.index_key, begin, query.end):
            if len(found) >= query.limit:
                break
            message = self._log.message_at(offset) if offset not in found else None
            if message is not None and is_indexed(message) and query.wants(message):
                found[offset] = message
        return QueryResult(
            messages=[found[offset] for offset in sorted(found)],
            index_timestamp=index.end_timestamp,
            index_physical_offset=index.end_physical_offset,
        )

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Return the message whose good record begins at an offset; None if there is none."""
        return self._log.message_at(physical_offset)

    def message_by_id(self, msg_id: str) -> StoredMessage | None:
        """Return the message that a broker gave this id; its offset decides, not the host in it.

        Raises:
            ValueError: the text is not a message id.
        """
        return self._log.message_at(OffsetMessageId.parse(msg_id).physical_offset)

    # --- places and times ------------------------------------------------------------------------

    def physical_offset(self, key: QueueKey, queue_offset: int) -> int:
        """Return where the record of a queue offset begins; -1 if the queue does not have it."""
        # Compat: getCommitLogOffsetInQueue says 0 there, which is an offset.
        unit = self._unit(key, queue_offset)
        return NO_OFFSET if unit is None else int(unit["physical_offset"][0])

    def store_timestamp(self, key: QueueKey, queue_offset: int) -> int:
        """Return when the message of a queue offset was stored; -1 if that is unknown."""
        physical_offset = self.physical_offset(key, queue_offset)
        return self._log.store_timestamp_at(physical_offset) if physical_offset >= 0 else NO_TIME

    def earliest_time(self, key: QueueKey | None = None) -> int:
        """Return when the first message still in a queue, or in the log, was stored.

        -1 if that is unknown.
        """
        if key is None:
            begin = self._log.min_offset
            return self._log.store_timestamp_at(begin) if begin >= 0 else NO_TIME
        queue = self._queues.find(key)
        return NO_TIME if queue is None else self.store_timestamp(key, queue.min_offset)

    def total(self, key: QueueKey) -> int:
        """Return how many messages a queue has; 0 without the queue."""
        queue = self._queues.find(key)
        return 0 if queue is None else queue.max_offset - queue.min_offset

    # --- where messages are ----------------------------------------------------------------------

    def is_on_disk(self, key: QueueKey, queue_offset: int) -> bool:
        """Tell whether a message counts as no longer in memory [checkInDiskByConsumeOffset]."""
        physical_offset = self.physical_offset(key, queue_offset)
        return physical_offset >= 0 and self._log.max_offset - physical_offset > self._window

    def is_in_memory(self, key: QueueKey, queue_offset: int) -> bool:
        """Tell whether a message and all after it count as being in memory.

        [checkInMemByConsumeOffset] asks the system about pages; here the distance from the end of
        the log decides.
        """
        physical_offset = self.physical_offset(key, queue_offset)
        if not max(self._log.min_offset, 0) <= physical_offset < self._log.max_offset:
            return False
        return self._log.max_offset - physical_offset <= self._window

    def is_in_store(self, key: QueueKey, queue_offset: int) -> bool:
        """Tell whether the log still holds a message [checkInStoreByConsumeOffset]."""
        physical_offset = self.physical_offset(key, queue_offset)
        return physical_offset >= max(self._log.min_offset, 0)

    # --- estimates -------------------------------------------------------------------------------

    def estimate_message_count(
        self, key: QueueKey, begin: int, end: int, message_filter: MessageFilter | None = None
    ) -> int:
        """Return about how many messages between two queue offsets pass a filter.

        Only the queue's units are examined, and of many only the first.
        """
        begin = max(begin, 0)
        if begin >= end:
            return 0
        if message_filter is None:
            return end - begin
        queue = self._queues.find(key)
        if queue is None:
            return 0
        # Compat: as DefaultMessageStore#estimateMessageCount, a range before the queue is moved.
        if begin < queue.min_offset:
            begin, end = queue.min_offset, queue.min_offset + end - begin
        return self._estimate(queue, begin, end, message_filter)

    def _estimate(self, queue: AnyQueue, begin: int, end: int, wanted: MessageFilter) -> int:
        # Compat: as ConsumeQueue#estimateMessageCount and BatchConsumeQueue#estimateMessageCount:
        # units are counted for the limits, messages for the answer.
        units = hits = seen = matching = 0
        for code, size in self._codes(queue, begin, end):
            units += 1
            seen += size
            if may_match(queue, code, wanted):
                hits += 1
                matching += size
            if units >= self._scan_max or hits > self._sample_max:
                return matching * (end - begin) // seen
        return matching if units else end - begin

    def _codes(self, queue: AnyQueue, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield tags code and number of messages of each unit in a range."""
        offset, end = begin, min(end, queue.max_offset)
        while offset < end:
            units = queue.units(offset, min(end - offset, _UNITS_AT_ONCE))
            if not len(units):
                return
            codes = units["tags_code"].tolist()
            if not queue.is_batch:
                yield from ((code, 1) for code in codes)
                offset += len(codes)
                continue
            sizes = np.maximum(units["batch_size"], 1).tolist()
            bases = units["base_queue_offset"].tolist()
            for code, size, base in zip(codes, sizes, bases, strict=True):
                if base < end:
                    yield code, size
            offset = bases[-1] + sizes[-1]

    def _unit(self, key: QueueKey, queue_offset: int) -> npt.NDArray[np.void] | None:
        queue = self._queues.find(key)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        units = queue.units(queue_offset, 1)
        return units if len(units) else None
