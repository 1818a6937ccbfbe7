"""Followers: queues and index forget what the log no longer holds."""

from collections.abc import Callable

from rocketlake.files.mapped_file_queue import Waiter
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.queue.queue_set import ConsumeQueueSet


class Followers:
    """What is built from the log [CleanConsumeQueueService].

    Thread-safety: one thread at a time.
    """

    def __init__(
        self, queues: ConsumeQueueSet, index: IndexFileSet | None, *, pause_ms: int
    ) -> None:
        self._queues = queues
        self._index = index
        self._pause_ms = pause_ms
        self._reached = 0  # the log's begin when everything followed it last
        self.queue_files = 0
        """Files of queues deleted so far."""
        self.index_files = 0
        """Files of the index deleted so far."""

    def follow(self, log_min: int, wait: Waiter) -> None:
        """Delete what speaks only of messages below an offset, and correct lowest offsets.

        Nothing is done if that offset is where it was. `wait` can end the round: the next one
        begins anew.

        Raises:
            FileAccessError: a file cannot be removed; it stays in use.
        """
        if log_min <= self._reached:
            return
        # Order: first all lowest offsets, since deleting thousands of files takes its time.
        self._queues.correct_min(log_min)
        noticing = _Noticing(wait)
        self.queue_files += self._queues.delete_expired(
            log_min, noticing.wait, pause_ms=self._pause_ms
        )
        if self._index is not None and not noticing.is_ended:
            self.index_files += self._index.delete_expired(
                log_min, noticing.wait, pause_ms=self._pause_ms
            )
        if not noticing.is_ended:
            self._reached = log_min


class _Noticing:
    """Remembers that a wait has ended a round."""

    def __init__(self, wait: Callable[[float], bool]) -> None:
        self._wait = wait
        self.is_ended = False

    def wait(self, seconds: float) -> bool:
        self.is_ended |= self._wait(seconds)
        return self.is_ended
