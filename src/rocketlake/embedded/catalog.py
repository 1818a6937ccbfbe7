"""CurrentCatalog: the TopicCatalog of an engine whose table is read again under its lock."""

from rocketlake.metadata.topics import TopicBook


class CurrentCatalog:
    """Forwards to the book it has at the moment.

    Thread-safety: one reference is read.
    """

    def __init__(self, book: TopicBook) -> None:
        self.book = book

    def is_batch_queue(self, topic: str) -> bool:
        """Tell whether the queues of a topic are batch consume queues."""
        return self.book.is_batch_queue(topic)

    def read_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be read; 0 if the topic does not exist."""
        return self.book.read_queue_count(topic)

    def write_queue_count(self, topic: str) -> int:
        """Return how many queues of a topic may be written; 0 if the topic does not exist."""
        return self.book.write_queue_count(topic)
