"""TopicRoutes: the topics of staged records, each with the queues that its records may go to."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.files.mapped_file import MappedFile
from rocketlake.format.bulk import BulkStop
from rocketlake.store.log.queue_offsets import QueueSlot

_FIRST, _COUNT, _TURN, _BYTES = range(4)
# Why: small enough to stay in the processor's cache between sealing and writing.
_WINDOW: Final = 512 << 10
BY_HAND: Final = 0
"""How many queues a route has whose records are put one by one."""


class TopicRoute(Struct, frozen=True):
    """The queues of one topic; without slots its records are put one by one."""

    topic: str
    queue_count: int
    turn: int
    """The queue of the next record that asks for none."""
    slots: Sequence[QueueSlot]


class Appended(Struct, frozen=True):
    """How an append of staged records ended."""

    stop: BulkStop
    count: int
    position: int
    """Where the next record begins."""
    reason: str = ""
    """Why nothing more can be appended."""


class TopicRoutes:
    """The routes of an append, as the kernel takes them.

    Thread-safety: under the append lock.
    """

    def __init__(self, routes: Sequence[TopicRoute]) -> None:
        self.routes = routes
        self._slots = [slot for route in routes for slot in route.slots]
        self.offsets: npt.NDArray[np.int64] = np.zeros(max(len(self._slots), 1), np.int64)
        self.table: npt.NDArray[np.int64] = np.zeros((len(routes), 4), np.int64)
        self._route_of: list[int] = []
        self._counts = [0] * len(routes)
        self._window = memoryview(bytearray(_WINDOW))
        first = 0
        for number, route in enumerate(routes):
            self.table[number] = (first, len(route.slots), route.turn, 0)
            self._route_of += [number] * len(route.slots)
            first += len(route.slots)

    def window(self, file: MappedFile) -> memoryview:
        """Return memory for the next records of a file, at most as much as the file has room.

        Why: a system call writes them from there. Through the map, the first touch of each page
        would fill it with zeros first, which costs several times as much.
        """
        return self._window[: file.append_room]

    def load(self) -> None:
        """Load the next queue offsets of all queues."""
        for number, slot in enumerate(self._slots):
            self.offsets[number] = slot.next_offset

    def moves(self) -> list[tuple[object, str, object]]:
        """Return the changes of queue offsets that the append made, for `set_together`."""
        counts = self._counts.copy()
        found: list[tuple[object, str, object]] = []
        for number, slot in enumerate(self._slots):
            offset = int(self.offsets[number])
            counts[self._route_of[number]] += offset - slot.next_offset
            found.append((slot, "next_offset", offset))
        return [*found, (self, "_counts", counts)]

    def take_shares(self) -> list[tuple[str, int, int]]:
        """Return topic, records and bytes appended since the last call."""
        sizes = self.table[:, _BYTES].tolist()
        found = [
            (route.topic, count, size)
            for route, count, size in zip(self.routes, self._counts, sizes, strict=True)
            if count
        ]
        self._counts = [0] * len(self.routes)
        self.table[:, _BYTES] = 0
        return found

    @property
    def turns(self) -> list[int]:
        """The next queue of each route."""
        found: list[int] = self.table[:, _TURN].tolist()
        return found

    def turn(self, route: int, count: int) -> int:
        """Return the next queue of a route of `count` queues, and advance it.

        For records that are put one by one.
        """
        turn = int(self.table[route, _TURN]) % count
        self.table[route, _TURN] = (turn + 1) % count
        return turn
