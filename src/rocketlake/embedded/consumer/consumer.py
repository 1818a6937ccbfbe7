"""Consumer: messages of a topic for one member of a group.

1. A message is committed when the loop asks for the next one. A loop that ends by `break` or by an
   exception leaves the message in hand uncommitted: it comes again, in the next loop or after a
   restart. `commit()` inside the loop commits it at once.
2. Order within a queue is kept; queues take turns.
3. A consumer that must wait sleeps until an arrival notifies its group assignment; no polling.
4. A loop ends when the consumer or its store is closed; every other method then raises
   StoreClosedError.
5. A call that an exception ends (Ctrl-C) has handed out nothing: the next call restores what it
   took.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Self

from rocketlake.clock import Clock
from rocketlake.closing import Closing
from rocketlake.embedded.consumer.cursor import Cursor, CursorState
from rocketlake.embedded.consumer.group_assignment import GroupAssignment
from rocketlake.embedded.consumer.plan import ConsumerPlan
from rocketlake.embedded.consumer.prefetcher import Missed, Prefetcher
from rocketlake.embedded.plug_ins import Engine
from rocketlake.errors import StoreClosedError
from rocketlake.format.record import StoredMessage
from rocketlake.metadata.offsets import OffsetBook
from rocketlake.model.unix_time import Timestamp, to_unix_ms
from rocketlake.store.api import CorruptUnit


class _Process:
    """How often this process was forked from one that had imported this module."""

    def __init__(self) -> None:
        self.forks = 0

    def note_fork(self) -> None:
        self.forks += 1


# Why not `os.getpid`: this is checked for each message.
_process = _Process()
os.register_at_fork(after_in_child=_process.note_fork)


class Consumer(Closing):
    """One member of a consumer group: iterate over it, or `poll` it.

    Thread-safety: one thread consumes; the rest may be called by any. For more threads open more
    consumers of the group: they share the queues.

    Durability: at least once. Progress is written every `flush_consumer_offset_interval`, and when
    the store is flushed or closed; after a crash, what was committed since comes again.
    """

    def __init__(
        self,
        plan: ConsumerPlan,
        assignment: GroupAssignment,
        reader: Engine,
        offsets: OffsetBook,
        *,
        clock: Clock,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_left` is called when the consumer has left its group."""
        self._plan = plan
        self._on_left = on_left
        self._assignment = assignment
        self._reader = reader
        self._clock = clock
        self._lock = threading.RLock()
        self._in_hand: tuple[Cursor, CursorState] | None = None
        self._taking: tuple[tuple[Cursor, CursorState], ...] | None = None
        """Cursor states before the current call; None once it has returned."""
        self._auto_commits = plan.auto_commit
        self._is_closed = False
        self._forks = _process.forks
        # Why: only the prefetcher refers to the member. A consumer that the program has dropped, or
        # whose constructor an exception ended, keeps no queues from the others.
        self._prefetcher = Prefetcher(plan, assignment, reader, offsets)
        with self._lock:
            self._prefetcher.rebalance()

    def __repr__(self) -> str:
        plan = self._plan
        if self._forks != _process.forks:
            state = "of the parent process"
        else:
            state = "closed" if self.is_closed else f"queues={self.assigned}"
        return f"<Consumer group={plan.group!r} topic={plan.topic!r} {state}>"

    def close(self) -> None:
        """Leave the group and end every wait. Messages that were not committed come again.

        In a fork it does nothing: the consumer is the parent's.
        """
        self._is_closed = True
        if self._forks != _process.forks:
            return
        with self._lock:
            self._assignment.leave(self._prefetcher.member)
        self._on_left()

    @property
    def is_closed(self) -> bool:
        """Whether this consumer, or its store, was closed."""
        return self._is_closed or self._assignment.is_closed

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._plan.group

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._plan.topic

    @property
    def missed(self) -> Sequence[Missed]:
        """Messages deleted before the group consumed them; the newest 1,000 cases."""
        self._require_parent()
        with self._lock:
            return list(self._prefetcher.missed)

    @property
    def corrupt(self) -> Sequence[CorruptUnit]:
        """Records skipped because their bytes are bad; the newest 1,000."""
        self._require_parent()
        with self._lock:
            return list(self._prefetcher.corrupt)

    # --- consuming -----------------------------------------------------------------------------

    def __iter__(self) -> Self:
        """Begin a loop; a message in whose loop body the last one ended comes again.

        The loop over a consumer that was closed has no messages.

        Raises:
            StoreClosedError: the store was opened before this process was forked.
        """
        self._require_parent()
        with self._lock:
            self._take_back()
            if self._in_hand is not None:
                self._prefetcher.put_back([self._in_hand])
                self._in_hand = None
        return self

    def __next__(self) -> StoredMessage:
        """Commit the message in hand and return the next one.

        Raises:
            StopIteration: none came within the timeout, or consumer or store were closed.
        """
        while (message := self.take_next()) is None:
            if not self._await_ready(self._plan.timeout_s):
                raise StopIteration
        return message

    def poll(
        self, max_messages: int | None = None, timeout: float | None = 0.0
    ) -> list[StoredMessage]:
        """Return the messages there are, or wait for some; committing is left to the caller.

        Without `max_messages` at most a batch is returned. A `timeout` of None waits for ever.

        Raises:
            StoreClosedError: the consumer, or its store, was closed.
        """
        limit = self._plan.batch if max_messages is None else max_messages
        if limit < 1:
            raise ValueError(f"max_messages = {max_messages!r}: wanted at least 1")
        self._require_open()
        while True:
            found = self._take(limit)
            if found or not self._await_ready(timeout):
                return found

    def commit(self) -> None:
        """Commit every message handed out so far, the one in hand included.

        Raises:
            StoreClosedError: the consumer, or its store, was closed.
        """
        self._require_open()
        with self._lock:
            self._take_back()
            self._follow_assignment()
            self._in_hand = None
            for cursor in self._prefetcher.cursors.values():
                self._prefetcher.commit(cursor)
            if self._prefetcher.has_leaving:
                self._prefetcher.rebalance()

    # --- position ------------------------------------------------------------------------------

    @property
    def assigned(self) -> list[int]:
        """The queues of this consumer."""
        self._require_parent()
        with self._lock:
            return sorted(self._prefetcher.cursors)

    def position(self, queue_id: int) -> int:
        """Return the queue offset of the next message of a queue.

        Raises:
            ValueError: the queue is not assigned to this consumer.
            StoreClosedError: the consumer, or its store, was closed.
        """
        self._require_open()
        with self._lock:
            return self._cursor(queue_id).handed

    def lag(self) -> int:
        """Return how many messages of its queues were not handed out yet, filtered ones included.

        Raises:
            StoreClosedError: the consumer, or its store, was closed.
        """
        self._require_open()
        self._reader.catch_up()
        with self._lock:
            self._take_back()
            self._follow_assignment()
            return sum(
                max(self._prefetcher.bounds(queue)[1] - cursor.handed, 0)
                for queue, cursor in self._prefetcher.cursors.items()
            )

    def seek(self, queue_id: int, offset: int) -> None:
        """Continue at another offset of a queue; the next commit makes it the group's progress.

        Raises:
            ValueError: the queue is not assigned to this consumer, or the offset is negative.
            StoreClosedError: the consumer, or its store, was closed.
        """
        if offset < 0:
            raise ValueError(f"offset = {offset}: wanted 0 or more")
        self._require_open()
        with self._lock:
            self._prefetcher.jump(self._cursor(queue_id), offset)
            self._forget_in_hand()

    def seek_to_time(self, moment: Timestamp) -> None:
        """Continue, in every queue, with the first message not stored before a time.

        Raises:
            TypeError, ValueError: `moment` is not a time.
            StoreClosedError: the consumer, or its store, was closed.
        """
        timestamp = to_unix_ms(moment, "moment")
        self._require_open()
        self._reader.catch_up()
        with self._lock:
            self._take_back()
            self._follow_assignment()
            for queue, cursor in self._prefetcher.cursors.items():
                self._prefetcher.jump(cursor, self._prefetcher.offset_by_time(queue, timestamp))
            self._forget_in_hand()

    def _cursor(self, queue_id: int) -> Cursor:
        self._take_back()
        self._follow_assignment()
        cursor = self._prefetcher.cursors.get(queue_id)
        if cursor is None:
            raise ValueError(
                f"queue {queue_id} of {self._plan.topic} is not assigned to this consumer;"
                f" it has {sorted(self._prefetcher.cursors)}"
            )
        return cursor

    def _require_parent(self) -> None:
        if self._forks != _process.forks:
            raise StoreClosedError(
                f"the consumer of {self._plan.group!r} belongs to the parent of this process; use"
                " it there, or open the store after the fork"
            )

    def _require_open(self) -> None:
        self._require_parent()
        if self.is_closed:
            raise StoreClosedError(f"{self!r}: make a new one, on a store that is open")

    # --- handing out ---------------------------------------------------------------------------

    def take_next(self) -> StoredMessage | None:
        """Commit the message in hand; return the next one that was read ahead, if any."""
        try:
            return self._take_next()
        except StoreClosedError:
            if self.is_closed:
                return None  # closed meanwhile: the message in hand is not committed
            raise

    def _take_next(self) -> StoredMessage | None:
        prefetcher = self._prefetcher
        if self._forks != _process.forks:
            self._require_parent()
        with self._lock:
            self._take_back()
            # Every change of the group or of the consumer changes the version.
            if self._assignment.version != prefetcher.version:
                self._follow_assignment()
            if self._in_hand is not None:
                prefetcher.commit(self._in_hand[0])
                self._in_hand = None
                if prefetcher.has_leaving:
                    prefetcher.rebalance()
            if not prefetcher.has_ready:
                return None
            cursor = prefetcher.ready[0]
            taken = (cursor, cursor.state)
            self._taking = (taken,)
            message = prefetcher.hand_out()
            if self._auto_commits:
                self._in_hand = taken
        # Order: the last thing done; no exception comes between it and the return.
        self._taking = None
        return message

    def _take_back(self) -> None:
        """Undo a call that was ended by an exception."""
        if self._taking is not None:
            self._prefetcher.put_back(self._taking)
            self._in_hand = None
            self._taking = None

    def look(self, *, is_last: bool = False) -> bool:
        """Read ahead; tell whether a message can be taken.

        With `is_last` it sees every message put before, dispatched or not. Otherwise the arrivals
        of the dispatcher notify.
        """
        try:
            if is_last and not self._refill():
                self._reader.catch_up()
            return self._refill()
        except StoreClosedError:
            if self.is_closed:
                return False
            raise

    def take_ready(self, limit: int) -> list[StoredMessage]:
        """Return messages that were read ahead; none if `look` is needed first.

        Raises:
            StoreClosedError: the consumer, or its store, was closed.
        """
        if limit < 1:
            raise ValueError(f"max_messages = {limit!r}: wanted at least 1")
        self._require_open()
        return self._take(limit, may_read=False)

    def listening_with(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function, from any thread, whenever a look may find a new message."""
        return self._assignment.listening_with(callback)

    def _take(self, limit: int, *, may_read: bool = True) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        with self._lock:
            self._take_back()
            self._follow_assignment()
            prefetcher = self._prefetcher
            taking: dict[int, tuple[Cursor, CursorState]] = {}
            while len(found) < limit and (prefetcher.has_ready or (may_read and self._refill())):
                cursor = prefetcher.ready[0]
                if cursor.queue_id not in taking:
                    taking[cursor.queue_id] = (cursor, cursor.state)
                    self._taking = tuple(taking.values())
                found.append(prefetcher.hand_out())
        # Order: the last thing done; no exception comes between it and the return.
        self._taking = None
        return found

    def _await_ready(self, timeout_s: float | None) -> bool:
        """Wait until messages were read ahead; False on timeout or when closed."""
        deadline = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while not self.is_closed:
            # Order: first listen, then look, then sleep; an arrival in between ends the sleep.
            with self._assignment.listening() as gate:
                if self.look():
                    return True
                left = None if deadline is None else deadline - self._clock.monotonic_s()
                if left is not None and left <= 0:
                    return self.look(is_last=True)
                self._assignment.wait(gate, left)
        return False

    def _refill(self) -> bool:
        with self._lock:
            self._follow_assignment()
            while not self._prefetcher.has_ready and not self.is_closed:
                if not self._prefetcher.refill():
                    break
            return self._prefetcher.has_ready

    def _follow_assignment(self) -> None:
        prefetcher = self._prefetcher
        if self._assignment.version != prefetcher.version:
            if self.is_closed:
                # Why: a rebalance may ask the closed store where queues begin.
                self._in_hand = None
                prefetcher.drop()
                return
            prefetcher.rebalance()
            self._forget_in_hand()

    def _forget_in_hand(self) -> None:
        """Do not commit a message in hand whose queue was reset or released."""
        if self._in_hand is not None and not self._in_hand[0].in_flight:
            self._in_hand = None
