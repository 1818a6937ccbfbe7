"""Next queue offset per topic queue."""

from collections.abc import Iterator, Mapping
from typing import Any

from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq


class QueueSlot:
    """One topic queue as the log's appender sees it.

    Thread-safety: `next_offset` belongs to the holder of the append lock; `frame` may be reset at
    any time.
    """

    __slots__ = ("frame", "next_offset", "puts", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, next_offset: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.frame: Any = None  # what records of this queue share, once one was appended
        self.puts: Any = None  # counters of the topic

    def __repr__(self) -> str:
        return f"QueueSlot({self.topic!r}, {self.queue_id}, next_offset={self.next_offset})"


class QueueOffsets:
    """The slots of a store, made when a queue is first named.

    Thread-safety: look-ups and creation by any thread; numbers are changed under the append lock.
    """

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, QueueSlot]] = {}
        self.light_queues: set[str] = set()  # the light queues that have messages

    def find(self, topic: str, queue_id: int) -> QueueSlot | None:
        """Return the slot of a queue; None if it has none yet."""
        queues = self.topics.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def slot(self, topic: str, queue_id: int) -> QueueSlot:
        """Return the slot of a queue, the same one every time."""
        queues = self.topics.get(topic)
        if queues is None:
            queues = self.topics.setdefault(topic, {})
        slot = queues.get(queue_id)
        return slot or queues.setdefault(queue_id, QueueSlot(topic, queue_id))

    def next_offset(self, key: QueueKey) -> int:
        """Return the queue offset of the next message; 0 if there was none."""
        slot = self.find(key.topic, key.queue_id)
        return slot.next_offset if slot is not None else 0

    def load(self, table: Mapping[QueueKey, int]) -> None:
        """Replace all numbers, as after recovery."""
        self.topics.clear()
        self.light_queues = {key.topic for key in table if is_lmq(key.topic)}
        for key, next_offset in table.items():
            self.slot(key.topic, key.queue_id).next_offset = next_offset

    def renumber(self, table: Mapping[QueueKey, int]) -> None:
        """Set all numbers anew; under the append lock.

        Why not `load`: the slots stay. A put may have found its slot before, and appends behind
        this call.
        """
        for topic, queues in list(self.topics.items()):
            for queue_id, slot in list(queues.items()):
                slot.next_offset = table.get(QueueKey(topic, queue_id), 0)
                slot.frame = None  # made again: the queue may be of the other kind
        for key, next_offset in table.items():
            self.slot(key.topic, key.queue_id).next_offset = next_offset
        self.light_queues = {key.topic for key in table if is_lmq(key.topic)}

    def restart(self, topic: str) -> None:
        """Restart the queues of a topic at 0; under the append lock.

        Why: the slots stay. A put may have found its slot before and append after this call; with
        a slot of its own it would go on from the numbers of the topic's earlier life.
        """
        self.light_queues.discard(topic)
        for slot in list(self.topics.get(topic, {}).values()):
            slot.next_offset = 0
            slot.frame = None  # made again: the next life may have queues of the other kind

    def items(self) -> Iterator[tuple[QueueKey, int]]:
        """Yield every queue and its next offset."""
        for topic, queues in list(self.topics.items()):
            for queue_id, slot in list(queues.items()):
                yield QueueKey(topic, queue_id), slot.next_offset
