"""Division: which consumer of a group has which queue of a topic, and who waits for messages.

1. `wanted` is the fair division; `held` is who really has a queue. A queue goes from one consumer
   to another only through nobody's hands: its holder lets go at a moment of its own choice,
   between messages and after it committed, and only then may another take it.
2. Consumers look at `version` between messages, one comparison; only when it changed they ask.
3. A consumer that waits first listens, then looks once more, then sleeps: no arrival is missed.
4. Every call may be ended by an exception at any moment (Ctrl-C), and can be made again then: what
   it tells a consumer is the whole state, not what changed since the last call.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

from msgspec import Struct

from rocketlake.embedded.consumer.assignment import divide

_numbers = count(1)


class Member:
    """One consumer of a group; it is out of the group once nothing refers to it any more."""

    __slots__ = ("__weakref__", "number", "queues")

    def __init__(self, queues: Collection[int] | None) -> None:
        """It may have some queues, or (None) any."""
        self.number = next(_numbers)
        self.queues = None if queues is None else frozenset(queues)


class Move(Struct, frozen=True):
    """Where a group has to go on in a queue: it was reset."""

    serial: int
    """Grows with every reset; what was done already is not done again."""
    offset: int


class Change(Struct, frozen=True):
    """Which queues a consumer has."""

    version: int
    held: frozenset[int]
    leaving: frozenset[int]
    """Those that it must let go once their messages are committed."""
    moves: Mapping[int, Move]
    """The last reset of each of its queues."""


class Division:
    """The members of one group that consume one topic.

    Thread-safety: any thread; all state belongs to `_lock`, which is reentrant because the garbage
    collector may end a consumer in the middle of anything. Ringing takes no lock.
    """

    def __init__(self, group: str, topic: str, queue_count: Callable[[str], int]) -> None:
        self.group = group
        self.topic = topic
        self.version = 0
        """Another one after every change; read without the lock."""
        self.is_closed = False
        self._queue_count = queue_count
        # Why not a Condition: its methods are Python code, and an exception inside them would
        # leave the lock taken, for the dispatcher too.
        self._lock = threading.RLock()
        self._gates: deque[threading.Lock] = deque()
        self._listeners: dict[int, Callable[[], None]] = {}
        self._members: dict[int, weakref.ref[Member]] = {}
        self._wanted: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._moves: dict[int, Move] = {}

    # --- members -------------------------------------------------------------------------------

    @property
    def member_count(self) -> int:
        """How many consumers there are."""
        with self._lock:
            self._reap()
            return len(self._members)

    def join(self, member: Member) -> None:
        """Add a consumer."""
        with self._lock:
            self._reap()
            self._members[member.number] = weakref.ref(member, self._note_end)
            self._divide()

    def leave(self, member: Member) -> None:
        """Take a consumer out; its queues are free at once."""
        with self._lock:
            self._changed()  # Order: before the change, so that no exception leaves it untold
            self._members.pop(member.number, None)
            self._reap()

    def change(self) -> None:
        """Divide anew: the topic has other queues."""
        with self._lock:
            self._reap()
            self._divide()

    def settle(self, member: Member, busy: Collection[int]) -> Change:
        """Let go of queues that others are to have, unless `busy`, and take those that are free."""
        with self._lock:
            self._reap()
            number = member.number
            own = {queue for queue, holder in self._held.items() if holder == number}
            strange = {queue for queue in own if self._wanted.get(queue) != number}
            lost = strange.difference(busy)
            if lost:
                self._changed()  # Order: before the change, so that no exception leaves it untold
            for queue in lost:
                del self._held[queue]
            for queue, owner in self._wanted.items():
                if owner == number and queue not in self._held:
                    self._held[queue] = number
            held = frozenset(q for q, holder in self._held.items() if holder == number)
            moves = {queue: move for queue, move in self._moves.items() if queue in held}
            return Change(self.version, held, frozenset(strange - lost), moves)

    def move(self, offsets: Mapping[int, int]) -> None:
        """Have the holders of queues go on at other offsets."""
        with self._lock:
            self._reap()
            serial = next(_numbers)
            moves = {queue: Move(serial, at) for queue, at in offsets.items()}
            self._moves = {**self._moves, **moves}
            self._changed()

    def restart(self) -> None:
        """Have the holders of all queues go on at 0: the topic was deleted."""
        with self._lock:
            self.move(dict.fromkeys(self._held, 0))

    def close(self) -> None:
        """Wake all that wait; there is nothing more to wait for."""
        with self._lock:
            self.is_closed = True
            self._changed()

    # --- waiting -------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Tell whether a consumer waits for messages.

        Why: read without the lock. A consumer that waits is known before it looks at the queues
        for the last time, and the dispatcher asks after it wrote the queues.
        """
        return bool(self._gates or self._listeners)

    @property
    def waiting_count(self) -> int:
        """How many consumers wait for messages."""
        return len(self._gates) + len(self._listeners)

    @contextmanager
    def listening(self) -> Iterator[threading.Lock]:
        """Count as waiting; gives the gate for `wait`."""
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        try:
            yield gate
        finally:
            with suppress(ValueError):  # it was opened
                self._gates.remove(gate)

    def wait(self, gate: threading.Lock, timeout_s: float | None) -> bool:
        """Sleep until the bell rang since the gate was given; False if the time ran out."""
        if self.is_closed:
            return True
        return gate.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0.0))

    @contextmanager
    def listening_with(self, callback: Callable[[], None]) -> Iterator[None]:
        """Have a function called at every ring, from any thread; it must not block or raise."""
        number = next(_numbers)
        self._listeners[number] = callback
        try:
            yield
        finally:
            self._listeners.pop(number, None)

    def ring(self) -> None:
        """Wake all that wait."""
        with suppress(IndexError):  # another thread rings, too
            # Why not until none is left: a consumer that finds nothing waits again at once, and
            # the two would keep each other busy. A gate that comes later needs no ring: its
            # consumer looks after it listens.
            for _ in range(len(self._gates)):
                self._gates.popleft().release()
        for callback in tuple(self._listeners.values()):
            callback()

    # --- under the lock ------------------------------------------------------------------------

    def _note_end(self, _: object) -> None:
        """Note that a consumer is no more; for the garbage collector.

        Order: nothing is changed here but the version, since the thread that collects may be in
        the middle of another method. The next call of any consumer does the rest.
        """
        self._changed()

    def _reap(self) -> None:
        """Take out the consumers that are no more, and free the queues of all that left."""
        gone = [number for number, member in self._members.items() if member() is None]
        for number in gone:
            del self._members[number]
        if gone or any(number not in self._members for number in self._wanted.values()):
            self._divide()
        for queue in [queue for queue, holder in self._held.items() if holder not in self._members]:
            del self._held[queue]

    def _divide(self) -> None:
        queues = range(self._queue_count(self.topic))
        found = {number: ref() for number, ref in self._members.items()}
        members = {number: m.queues for number, m in found.items() if m is not None}
        self._changed()  # Order: before the change, so that no exception leaves it untold
        self._wanted = divide(queues, members, self._wanted)

    def _changed(self) -> None:
        self.version = next(_numbers)  # by one call, for no lock is held in `_note_end`
        self.ring()
