"""Cursor: the position of one consumer in one queue."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rocketlake.format.record import StoredMessage


class CursorState(Struct, frozen=True):
    """Messages that were read ahead, and how many of them were handed out.

    Messages below `handed` were handed out, those below `position` were read.
    """

    buffer: Sequence[tuple[StoredMessage, int]]
    """Messages, each with the offset to commit after it."""
    index: int
    """The next one to hand out."""
    handed: int
    position: int
    in_flight: int
    """Messages handed out since the last commit."""
    jumps: int = 0
    """How often the cursor jumped; a state from before a jump is not restored."""


class Cursor:
    """The state of one consumer in a queue, and the offset it has committed.

    Invariants: handed == position while nothing is read ahead. The state changes by one assignment:
    an exception that ends a call leaves the old one or the new one.

    Thread-safety: none; its consumer owns it.
    """

    __slots__ = ("committed", "is_leaving", "queue_id", "reset_serial", "state")

    def __init__(self, queue_id: int, offset: int, reset_serial: int = 0) -> None:
        self.queue_id = queue_id
        self.state = CursorState((), 0, offset, offset, 0)
        self.committed = offset
        self.is_leaving = False
        self.reset_serial = reset_serial
        """That of the last reset that was applied."""

    @property
    def has_more(self) -> bool:
        """Whether messages that were read ahead are left."""
        state = self.state
        return state.index < len(state.buffer)

    @property
    def handed(self) -> int:
        """The queue offset behind what was handed out."""
        return self.state.handed

    @property
    def position(self) -> int:
        """The queue offset behind what was read."""
        return self.state.position

    @property
    def in_flight(self) -> int:
        """How many messages were handed out since the last commit."""
        return self.state.in_flight

    def fill(self, messages: Iterable[StoredMessage], next_offset: int) -> None:
        """Keep messages that were read; offsets skipped by a filter count to the next message."""
        buffer = [(message, message.queue_offset + 1) for message in messages]
        handed = self.handed
        if buffer:
            buffer[-1] = (buffer[-1][0], max(next_offset, buffer[-1][1]))
        else:
            handed = next_offset
        self.state = CursorState(buffer, 0, handed, next_offset, self.in_flight, self.state.jumps)

    def hand_out(self) -> StoredMessage:
        """Return the next message."""
        state = self.state
        buffer, index = state.buffer, state.index
        message, handed = buffer[index]
        self.state = CursorState(
            buffer, index + 1, handed, state.position, state.in_flight + 1, state.jumps
        )
        return message

    def restore(self, state: CursorState) -> None:
        """Restore a state, unless the cursor has jumped since."""
        if state.jumps == self.state.jumps:
            self.state = state

    def jump(self, offset: int) -> None:
        """Continue at another offset; what was handed out will not be committed."""
        self.state = CursorState((), 0, offset, offset, 0, self.state.jumps + 1)

    def drop_unread(self) -> None:
        """Drop what was read ahead and not handed out."""
        state = self.state
        self.state = CursorState((), 0, state.handed, state.handed, state.in_flight, state.jumps)

    def note_commit(self, handed: int) -> None:
        """Record that what was handed out is committed."""
        self.committed = handed
        state = self.state
        self.state = CursorState(
            state.buffer, state.index, state.handed, state.position, 0, state.jumps
        )
