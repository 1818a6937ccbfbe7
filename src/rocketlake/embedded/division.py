"""Division: which consumer of a group has which queue of a topic, and who waits for messages.

1. `wanted` is the fair division; `held` is who really has a queue. A queue goes from one consumer
   to another only through nobody's hands: its holder lets go at a moment of its own choice,
   between messages and after it committed, and only then may another take it.
2. Consumers look at `version` between messages, one comparison; only when it changed they ask.
3. Who waits first listens, then looks once more, then sleeps: no arrival can be missed.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from rocketlake.embedded.assignment import divide


class Change(Struct, frozen=True):
    """What became of a consumer's queues since it last asked."""

    version: int
    taken: tuple[int, ...]
    """Queues that are now its own."""
    lost: tuple[int, ...]
    """Queues that it no longer has."""
    leaving: frozenset[int]
    """Queues that it still has, and must let go once their messages are committed."""
    moves: Mapping[int, int]
    """Where it has to go on in queues of its own: somebody reset the group."""


class Division:
    """The members of one group that consume one topic.

    Thread-safety: any thread; all state belongs to `_bell`, whose lock is reentrant because the
    garbage collector may end a consumer in the middle of anything (`abandon`).
    """

    def __init__(self, group: str, topic: str, queue_count: Callable[[str], int]) -> None:
        self.group = group
        self.topic = topic
        self.version = 0
        """Grows with every change; read without the lock."""
        self.is_closed = False
        self._queue_count = queue_count
        self._bell = threading.Condition()
        self._rings = 0
        self._waiting = 0
        self._listeners: dict[int, Callable[[], None]] = {}
        self._members: dict[int, frozenset[int] | None] = {}
        self._abandoned: deque[int] = deque()
        self._ids = 0
        self._wanted: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._moves: dict[int, int] = {}

    # --- members -------------------------------------------------------------------------------

    @property
    def member_count(self) -> int:
        """How many consumers there are."""
        with self._bell:
            self._reap()
            return len(self._members)

    def join(self, queues: Collection[int] | None) -> int:
        """Add a consumer, which may have some queues or (None) any; return its number."""
        with self._bell:
            self._reap()
            self._ids += 1
            self._members[self._ids] = None if queues is None else frozenset(queues)
            self._divide()
            return self._ids

    def leave(self, member: int) -> None:
        """Take a consumer out; its queues are free at once."""
        with self._bell:
            self._abandoned.append(member)
            self._reap()

    def abandon(self, member: int) -> None:
        """Note that a consumer is no more; for the garbage collector.

        Order: nothing but the note is changed here, since the thread that collects may be in the
        middle of another method. Whoever wakes does the rest.
        """
        self._abandoned.append(member)
        with self._bell:
            self._changed()

    def change(self) -> None:
        """Divide anew: the topic has other queues."""
        with self._bell:
            self._reap()
            self._divide()

    def settle(self, member: int, busy: Collection[int]) -> Change:
        """Let go of queues that others are to have, unless `busy`, and take those that are free."""
        with self._bell:
            self._reap()
            own = {queue for queue, holder in self._held.items() if holder == member}
            stay = {queue for queue in own if self._wanted.get(queue) == member}
            lost = tuple(sorted(own - stay - set(busy)))
            taken = tuple(
                queue
                for queue, owner in sorted(self._wanted.items())
                if owner == member and queue not in self._held
            )
            for queue in lost:
                del self._held[queue]
                self._moves.pop(queue, None)
            for queue in taken:
                self._held[queue] = member
                self._moves.pop(queue, None)
            moves = {queue: self._moves.pop(queue) for queue in own if queue in self._moves}
            if lost:
                self._changed()
            leaving = frozenset(own - stay).difference(lost)
            return Change(self.version, taken, lost, leaving, moves)

    def move(self, offsets: Mapping[int, int]) -> None:
        """Have the holders of queues go on at other offsets."""
        with self._bell:
            self._reap()
            self._moves |= {queue: at for queue, at in offsets.items() if queue in self._held}
            self._changed()

    def close(self) -> None:
        """Wake everybody; there is nothing more to wait for."""
        with self._bell:
            self.is_closed = True
            self._changed()

    # --- waiting -------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Tell whether somebody waits for messages.

        Why: read without the lock. Who waits raises the number before it looks at the queues for
        the last time, and the dispatcher reads it after it wrote the queues.
        """
        return self._waiting > 0

    @contextmanager
    def listening(self) -> Iterator[int]:
        """Count as waiting; gives the ticket for `wait`."""
        with self._bell:
            self._waiting += 1
            ticket = self._rings
        try:
            yield ticket
        finally:
            with self._bell:
                self._waiting -= 1

    def wait(self, ticket: int, timeout_s: float | None) -> bool:
        """Sleep until the bell rang since the ticket was given; False if the time ran out."""
        with self._bell:
            return self._bell.wait_for(lambda: self._rings != ticket or self.is_closed, timeout_s)

    @contextmanager
    def listening_with(self, callback: Callable[[], None]) -> Iterator[None]:
        """Have a function called at every ring, from any thread; it must not block or raise."""
        with self._bell:
            self._waiting += 1
            self._ids += 1
            number = self._ids
            self._listeners[number] = callback
        try:
            yield
        finally:
            with self._bell:
                self._waiting -= 1
                del self._listeners[number]

    def ring(self) -> None:
        """Wake who waits."""
        with self._bell:
            self._rings += 1
            self._bell.notify_all()
            for callback in tuple(self._listeners.values()):
                callback()

    # --- under the lock ------------------------------------------------------------------------

    def _reap(self) -> None:
        """Take out the consumers that left."""
        is_changed = False
        while self._abandoned:
            member = self._abandoned.popleft()
            if member in self._members:
                del self._members[member]
                is_changed = True
            for queue in [queue for queue, holder in self._held.items() if holder == member]:
                del self._held[queue]
        if is_changed:
            self._divide()

    def _divide(self) -> None:
        queues = range(self._queue_count(self.topic))
        self._wanted = divide(queues, self._members, self._wanted)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.ring()
