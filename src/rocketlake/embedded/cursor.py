"""Cursor: where one consumer stands in one queue."""

from collections import deque
from collections.abc import Iterable

from rocketlake.format.record import StoredMessage


class Cursor:
    """Messages of a queue that were read ahead, and how far they were handed out and committed.

    Below `committed` the group is done, below `handed` somebody works on it, below `position` it
    was read.

    Invariants: handed == position while the buffer is empty.

    Thread-safety: none; its consumer owns it.
    """

    __slots__ = (
        *("buffer", "committed", "handed", "in_flight", "is_leaving", "position", "queue_id"),
    )

    def __init__(self, queue_id: int, offset: int) -> None:
        self.queue_id = queue_id
        self.buffer: deque[tuple[StoredMessage, int]] = deque()
        """Messages, each with the offset to go on at when it is done."""
        self.in_flight = 0
        """Messages handed out since the last commit."""
        self.is_leaving = False
        self.position = self.handed = self.committed = offset

    def fill(self, messages: Iterable[StoredMessage], next_offset: int) -> None:
        """Take what was read; what was left out before a message is done together with it."""
        self.buffer.extend((message, message.queue_offset + 1) for message in messages)
        if self.buffer:
            self.buffer[-1] = (self.buffer[-1][0], max(next_offset, self.buffer[-1][1]))
        else:
            self.handed = next_offset
        self.position = next_offset

    def hand_out(self) -> StoredMessage:
        """Return the next message."""
        message, self.handed = self.buffer.popleft()
        self.in_flight += 1
        return message

    def take_back(self, message: StoredMessage, before: int) -> None:
        """Undo the last `hand_out`: the message comes again; `before` is what was handed then."""
        self.buffer.appendleft((message, self.handed))
        self.handed = before
        self.in_flight -= 1

    def jump(self, offset: int) -> None:
        """Go on at another offset; what was handed out is no longer to be committed."""
        self.buffer.clear()
        self.in_flight = 0
        self.position = self.handed = offset
