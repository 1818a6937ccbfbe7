"""Cursor: where one consumer stands in one queue."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rocketlake.format.record import StoredMessage


class Place(Struct, frozen=True):
    """Messages that were read ahead, and how far they were handed out.

    Below `handed` the consumer works on messages or is done with them, below `position` they were
    read.
    """

    buffer: Sequence[tuple[StoredMessage, int]]
    """Messages, each with the offset to go on at when it is done."""
    index: int
    """The next one to hand out."""
    handed: int
    position: int
    in_flight: int
    """Messages handed out since the last commit."""
    jumps: int = 0
    """How often the cursor went on elsewhere; there is no way back to a place before a jump."""


class Cursor:
    """The place of one consumer in a queue, and what of it is committed.

    Invariants: handed == position while nothing is read ahead. The place changes by one assignment:
    an exception that ends a call leaves the old one or the new one.

    Thread-safety: none; its consumer owns it.
    """

    __slots__ = ("committed", "is_leaving", "move_serial", "place", "queue_id")

    def __init__(self, queue_id: int, offset: int, move_serial: int = 0) -> None:
        self.queue_id = queue_id
        self.place = Place((), 0, offset, offset, 0)
        self.committed = offset
        self.is_leaving = False
        self.move_serial = move_serial
        """That of the last reset that was followed."""

    @property
    def has_more(self) -> bool:
        """Whether messages that were read ahead are left."""
        place = self.place
        return place.index < len(place.buffer)

    @property
    def handed(self) -> int:
        """The queue offset behind what was handed out."""
        return self.place.handed

    @property
    def position(self) -> int:
        """The queue offset behind what was read."""
        return self.place.position

    @property
    def in_flight(self) -> int:
        """How many messages were handed out since the last commit."""
        return self.place.in_flight

    def fill(self, messages: Iterable[StoredMessage], next_offset: int) -> None:
        """Take what was read; what was left out before a message is done together with it."""
        buffer = [(message, message.queue_offset + 1) for message in messages]
        handed = self.handed
        if buffer:
            buffer[-1] = (buffer[-1][0], max(next_offset, buffer[-1][1]))
        else:
            handed = next_offset
        self.place = Place(buffer, 0, handed, next_offset, self.in_flight, self.place.jumps)

    def hand_out(self) -> StoredMessage:
        """Return the next message."""
        place = self.place
        buffer, index = place.buffer, place.index
        message, handed = buffer[index]
        self.place = Place(
            buffer, index + 1, handed, place.position, place.in_flight + 1, place.jumps
        )
        return message

    def go_back(self, place: Place) -> None:
        """Stand where the cursor stood before, unless it went on elsewhere since."""
        if place.jumps == self.place.jumps:
            self.place = place

    def jump(self, offset: int) -> None:
        """Go on at another offset; what was handed out is no longer to be committed."""
        self.place = Place((), 0, offset, offset, 0, self.place.jumps + 1)

    def forget_ahead(self) -> None:
        """Forget what was read ahead and not handed out."""
        place = self.place
        self.place = Place((), 0, place.handed, place.handed, place.in_flight, place.jumps)

    def note_commit(self, handed: int) -> None:
        """Take note that what was handed out is committed."""
        self.committed = handed
        place = self.place
        self.place = Place(place.buffer, place.index, place.handed, place.position, 0, place.jumps)
