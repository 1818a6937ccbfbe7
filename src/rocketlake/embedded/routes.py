"""Route: selects the queue of a topic for a message."""

from functools import lru_cache
from itertools import cycle

from rocketlake.model.hashes import java_hash
from rocketlake.model.topics import TopicConfig

_hash = lru_cache(maxsize=8192)(java_hash)


class Route:
    """The queues of one topic that may be written; replaced when the topic changes.

    Thread-safety: any thread may call `turn`; each call returns the next queue.
    """

    __slots__ = ("count", "is_batch", "turn")

    def __init__(self, config: TopicConfig) -> None:
        self.count = config.write_queue_count
        self.is_batch = config.is_batch
        self.turn = cycle(range(self.count)).__next__
        """Returns the queues in turn: 0, 1, 2 … and again."""

    def queue_of(self, ordering_key: str) -> int:
        """Return the queue of an ordering key: the Java hash, without its sign, modulo the count.

        Compat: what SelectMessageQueueByHash of the Java client chooses for the same text.
        """
        return abs(_hash(ordering_key)) % self.count

    def check(self, topic: str, queue_id: object) -> int:
        """Return a queue id of the topic.

        Raises:
            TypeError, ValueError: the topic has no such queue; the message has their number.
        """
        if isinstance(queue_id, bool) or not isinstance(queue_id, int):
            raise TypeError(f"queue_id = {queue_id!r} is {type(queue_id).__name__}; wanted int")
        if not 0 <= queue_id < self.count:
            raise ValueError(
                f"queue_id = {queue_id}: topic {topic!r} has {self.count} queues, 0 to"
                f" {self.count - 1}; update_topic({topic!r}, queues=...) adds some"
            )
        return queue_id
