"""GroupAssignment: which consumer of a group has which queue of a topic, and which ones wait.

1. `wanted` is the fair assignment, `held` the actual one. A consumer releases a queue between
   messages, after it has committed; only then may another consumer take the queue.
2. Consumers compare `version` between messages and rebalance only when it has changed.
3. A consumer that waits first listens, then looks once more, then sleeps: no arrival is missed.
4. An exception (Ctrl-C) may end any call at any point, and the call can be made again: it returns
   the whole state, not what changed since the last call.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

from msgspec import Struct

from rocketlake.embedded.consumer.assignment import assign_queues

_numbers = count(1)


class Member:
    """One consumer of a group; it leaves the group when it is garbage collected."""

    __slots__ = ("__weakref__", "number", "queues")

    def __init__(self, queues: Collection[int] | None) -> None:
        """`queues` are those it may have; None: any."""
        self.number = next(_numbers)
        self.queues = None if queues is None else frozenset(queues)


class OffsetReset(Struct, frozen=True):
    """The offset at which a group continues in a queue after a reset."""

    serial: int
    """Grows with every reset; a consumer applies each one once."""
    offset: int


class AssignedQueues(Struct, frozen=True):
    """The queues of a consumer."""

    version: int
    held: frozenset[int]
    leaving: frozenset[int]
    """Queues to release once their messages are committed."""
    resets: Mapping[int, OffsetReset]
    """The last reset of each of its queues."""


class GroupAssignment:
    """The members of one group that consume one topic.

    Thread-safety: any thread; `_lock` guards all state. It is reentrant because the garbage
    collector may end a consumer inside any method. `notify` takes no lock.
    """

    def __init__(self, group: str, topic: str, queue_count: Callable[[str], int]) -> None:
        self.group = group
        self.topic = topic
        self.version = 0
        """Grows with every change; read without the lock."""
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
        self._resets: dict[int, OffsetReset] = {}

    # --- members -------------------------------------------------------------------------------

    @property
    def member_count(self) -> int:
        """How many consumers there are."""
        with self._lock:
            self._remove_gone()
            return len(self._members)

    def join(self, member: Member) -> None:
        """Add a consumer."""
        with self._lock:
            self._remove_gone()
            self._members[member.number] = weakref.ref(member, self._note_end)
            self._assign()

    def leave(self, member: Member) -> None:
        """Remove a consumer; its queues are free at once."""
        with self._lock:
            self._changed()  # Order: before the change, no exception may hide it
            self._members.pop(member.number, None)
            self._remove_gone()

    def reassign(self) -> None:
        """Assign the queues again: the topic has other ones."""
        with self._lock:
            self._remove_gone()
            self._assign()

    def rebalance(self, member: Member, busy: Collection[int]) -> AssignedQueues:
        """Release queues of other members unless they are `busy`; take own queues that are free."""
        with self._lock:
            self._remove_gone()
            number = member.number
            own = {queue for queue, holder in self._held.items() if holder == number}
            misplaced = {queue for queue in own if self._wanted.get(queue) != number}
            lost = misplaced.difference(busy)
            if lost:
                self._changed()  # Order: before the change, no exception may hide it
            for queue in lost:
                del self._held[queue]
            for queue, owner in self._wanted.items():
                if owner == number and queue not in self._held:
                    self._held[queue] = number
            held = frozenset(q for q, holder in self._held.items() if holder == number)
            resets = {queue: reset for queue, reset in self._resets.items() if queue in held}
            return AssignedQueues(self.version, held, frozenset(misplaced - lost), resets)

    def reset_offsets(self, offsets: Mapping[int, int]) -> None:
        """Make the holders of queues continue at other offsets."""
        with self._lock:
            self._remove_gone()
            serial = next(_numbers)
            resets = {queue: OffsetReset(serial, at) for queue, at in offsets.items()}
            self._resets = {**self._resets, **resets}
            self._changed()

    def reset_to_zero(self) -> None:
        """Make the holders of all queues continue at 0: the topic was deleted."""
        with self._lock:
            self.reset_offsets(dict.fromkeys(self._held, 0))

    def close(self) -> None:
        """Wake every waiting consumer for the last time."""
        with self._lock:
            self.is_closed = True
            self._changed()

    # --- waiting -------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Tell whether a consumer waits for messages.

        Why: read without the lock. A consumer registers before it looks at the queues for the last
        time, and the dispatcher asks after it has written the queues.
        """
        return bool(self._gates or self._listeners)

    @property
    def waiting_count(self) -> int:
        """How many consumers wait for messages."""
        return len(self._gates) + len(self._listeners)

    @contextmanager
    def listening(self) -> Iterator[threading.Lock]:
        """Register as waiting; yields the lock to pass to `wait`."""
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        try:
            yield gate
        finally:
            with suppress(ValueError):  # it was notified
                self._gates.remove(gate)

    def wait(self, gate: threading.Lock, timeout_s: float | None) -> bool:
        """Sleep until notified since `listening` began; False on timeout."""
        if self.is_closed:
            return True
        return gate.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0.0))

    @contextmanager
    def listening_with(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call a function at every `notify`, in any thread; it must not block or raise."""
        number = next(_numbers)
        self._listeners[number] = callback
        try:
            yield
        finally:
            self._listeners.pop(number, None)

    def notify(self) -> None:
        """Wake every waiting consumer."""
        with suppress(IndexError):  # another thread notifies, too
            # Why not until none is left: a consumer that finds nothing waits again at once, and
            # the two threads would keep each other busy. A later gate needs no notification: its
            # consumer looks after it has registered.
            for _ in range(len(self._gates)):
                self._gates.popleft().release()
        for callback in tuple(self._listeners.values()):
            callback()

    # --- under the lock ------------------------------------------------------------------------

    def _note_end(self, _: object) -> None:
        """Note that a consumer was collected; called by the garbage collector.

        Order: only the version changes here, since the collecting thread may be inside another
        method. The next call of any consumer does the rest.
        """
        self._changed()

    def _remove_gone(self) -> None:
        """Remove consumers that were collected, and free the queues of all that left."""
        gone = [number for number, member in self._members.items() if member() is None]
        for number in gone:
            del self._members[number]
        if gone or any(number not in self._members for number in self._wanted.values()):
            self._assign()
        for queue in [queue for queue, holder in self._held.items() if holder not in self._members]:
            del self._held[queue]

    def _assign(self) -> None:
        queues = range(self._queue_count(self.topic))
        found = {number: ref() for number, ref in self._members.items()}
        members = {number: m.queues for number, m in found.items() if m is not None}
        self._changed()  # Order: before the change, no exception may hide it
        self._wanted = assign_queues(queues, members, self._wanted)

    def _changed(self) -> None:
        self.version = next(_numbers)  # by one call, for no lock is held in `_note_end`
        self.notify()
