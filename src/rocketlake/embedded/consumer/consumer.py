"""Consumer: messages of a topic for one member of a group.

1. A message is committed when the loop asks for the next one. A loop that ends by `break` or by an
   exception leaves the message in hand uncommitted: it comes again, in the next loop or after a
   restart. `commit()` inside the loop commits it at once.
2. Order within a queue is kept; queues take turns.
3. A consumer that must wait sleeps on the division's bell, which arrivals ring; nothing is polled.
4. A loop ends when the consumer or its store is closed, at whatever moment; every other method
   raises StoreClosedError then.
5. A call that an exception ends (Ctrl-C) has handed out nothing: what it took is taken back by the
   next call.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Self

from rocketlake.clock import Clock
from rocketlake.closing import Closing
from rocketlake.embedded.consumer.cursor import Cursor, Place
from rocketlake.embedded.consumer.group_assignment import Division
from rocketlake.embedded.consumer.plan import ConsumerPlan
from rocketlake.embedded.consumer.prefetcher import Intake, Missed
from rocketlake.embedded.ports import Progress, QueueReader
from rocketlake.embedded.timestamps import Moment, to_ms
from rocketlake.errors import StoreClosedError
from rocketlake.format.record import StoredMessage
from rocketlake.store.api import CorruptUnit


class _Process:
    """How often this process was forked from one that had imported this module."""

    def __init__(self) -> None:
        self.forks = 0

    def note_fork(self) -> None:
        self.forks += 1


# Why not `os.getpid`: this is looked at for each message.
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
        division: Division,
        reader: QueueReader,
        progress: Progress,
        *,
        clock: Clock,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_left` is told when the consumer has left its group."""
        self._plan = plan
        self._on_left = on_left
        self._division = division
        self._reader = reader
        self._clock = clock
        self._lock = threading.RLock()
        self._in_hand: tuple[Cursor, Place] | None = None
        self._taking: tuple[tuple[Cursor, Place], ...] | None = None
        """Where cursors stood before the call that is handing out; None once it has returned."""
        self._auto_commits = plan.auto_commit
        self._is_closed = False
        self._forks = _process.forks
        # Why: the intake alone keeps the member. A consumer that the program no longer holds, or
        # that an exception kept from coming into being, does not keep queues from the others.
        self._intake = Intake(plan, division, reader, progress)
        with self._lock:
            self._intake.settle()

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
            self._division.leave(self._intake.member)
        self._on_left()

    @property
    def is_closed(self) -> bool:
        """Whether this consumer, or its store, was closed."""
        return self._is_closed or self._division.is_closed

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
        """Messages deleted before the group came to them; the newest 1,000 cases."""
        self._require_parent()
        with self._lock:
            return list(self._intake.missed)

    @property
    def corrupt(self) -> Sequence[CorruptUnit]:
        """Records stepped over because their bytes are bad; the newest 1,000."""
        self._require_parent()
        with self._lock:
            return list(self._intake.corrupt)

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
                self._intake.put_back([self._in_hand])
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
            self._look_at_division()
            self._in_hand = None
            for cursor in self._intake.cursors.values():
                self._intake.commit(cursor)
            if self._intake.has_leaving:
                self._intake.settle()

    # --- where it stands -----------------------------------------------------------------------

    @property
    def assigned(self) -> list[int]:
        """The queues that are this consumer's now."""
        self._require_parent()
        with self._lock:
            return sorted(self._intake.cursors)

    def position(self, queue_id: int) -> int:
        """Return the queue offset of the next message of a queue.

        Raises:
            ValueError: the queue is not this consumer's.
            StoreClosedError: the consumer, or its store, was closed.
        """
        self._require_open()
        with self._lock:
            return self._cursor(queue_id).handed

    def lag(self) -> int:
        """Return how many messages of its queues were not handed out yet, wanted or not.

        Raises:
            StoreClosedError: the consumer, or its store, was closed.
        """
        self._require_open()
        self._reader.catch_up()
        with self._lock:
            self._take_back()
            self._look_at_division()
            return sum(
                max(self._intake.bounds(queue)[1] - cursor.handed, 0)
                for queue, cursor in self._intake.cursors.items()
            )

    def seek(self, queue_id: int, offset: int) -> None:
        """Go on at another offset of a queue; the next commit makes it the group's progress.

        Raises:
            ValueError: the queue is not this consumer's, or the offset is negative.
            StoreClosedError: the consumer, or its store, was closed.
        """
        if offset < 0:
            raise ValueError(f"offset = {offset}: wanted 0 or more")
        self._require_open()
        with self._lock:
            self._intake.jump(self._cursor(queue_id), offset)
            self._forget_in_hand()

    def seek_to_time(self, moment: Moment) -> None:
        """Go on, in every queue it has, with the first message not stored before a moment.

        Raises:
            TypeError, ValueError: it is no moment.
            StoreClosedError: the consumer, or its store, was closed.
        """
        timestamp = to_ms(moment, "moment")
        self._require_open()
        self._reader.catch_up()
        with self._lock:
            self._take_back()
            self._look_at_division()
            for queue, cursor in self._intake.cursors.items():
                self._intake.jump(cursor, self._intake.offset_by_time(queue, timestamp))
            self._forget_in_hand()

    def _cursor(self, queue_id: int) -> Cursor:
        self._take_back()
        self._look_at_division()
        cursor = self._intake.cursors.get(queue_id)
        if cursor is None:
            raise ValueError(
                f"queue {queue_id} of {self._plan.topic} is not assigned to this consumer;"
                f" it has {sorted(self._intake.cursors)}"
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
        """Commit the message in hand; return the next one that was read ahead, if there is one."""
        try:
            return self._take_next()
        except StoreClosedError:
            if self.is_closed:
                return None  # closed since: what is in hand was not committed
            raise

    def _take_next(self) -> StoredMessage | None:
        intake = self._intake
        if self._forks != _process.forks:
            self._require_parent()
        with self._lock:
            self._take_back()
            # Whatever happens to the group, or to the consumer, changes the version.
            if self._division.version != intake.version:
                self._look_at_division()
            if self._in_hand is not None:
                intake.commit(self._in_hand[0])
                self._in_hand = None
                if intake.has_leaving:
                    intake.settle()
            if not intake.has_ready:
                return None
            cursor = intake.ready[0]
            taken = (cursor, cursor.place)
            self._taking = (taken,)
            message = intake.hand_out()
            if self._auto_commits:
                self._in_hand = taken
        # Order: the last thing done; no exception comes between it and the return.
        self._taking = None
        return message

    def _take_back(self) -> None:
        """Undo what a call handed out that did not return."""
        if self._taking is not None:
            self._intake.put_back(self._taking)
            self._in_hand = None
            self._taking = None

    def look(self, *, is_last: bool = False) -> bool:
        """Read ahead; tell whether there is something to take.

        The last look sees everything that was put before, even where dispatch has not come to it.
        The others leave that to the dispatcher, whose arrivals ring.
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
        """Return messages that were read ahead; none if a look is needed first.

        Raises:
            StoreClosedError: the consumer, or its store, was closed.
        """
        if limit < 1:
            raise ValueError(f"max_messages = {limit!r}: wanted at least 1")
        self._require_open()
        return self._take(limit, may_read=False)

    def listening_with(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Have a function called, from any thread, whenever a look may find something new."""
        return self._division.listening_with(callback)

    def _take(self, limit: int, *, may_read: bool = True) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        with self._lock:
            self._take_back()
            self._look_at_division()
            intake = self._intake
            taking: dict[int, tuple[Cursor, Place]] = {}
            while len(found) < limit and (intake.has_ready or (may_read and self._refill())):
                cursor = intake.ready[0]
                if cursor.queue_id not in taking:
                    taking[cursor.queue_id] = (cursor, cursor.place)
                    self._taking = tuple(taking.values())
                found.append(intake.hand_out())
        # Order: the last thing done; no exception comes between it and the return.
        self._taking = None
        return found

    def _await_ready(self, timeout_s: float | None) -> bool:
        """Wait until messages were read ahead; False when time ran out or all was closed."""
        deadline = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while not self.is_closed:
            # Order: first listen, then look, then sleep; an arrival in between ends the sleep.
            with self._division.listening() as gate:
                if self.look():
                    return True
                left = None if deadline is None else deadline - self._clock.monotonic_s()
                if left is not None and left <= 0:
                    return self.look(is_last=True)
                self._division.wait(gate, left)
        return False

    def _refill(self) -> bool:
        with self._lock:
            self._look_at_division()
            while not self._intake.has_ready and not self.is_closed:
                if not self._intake.refill():
                    break
            return self._intake.has_ready

    def _look_at_division(self) -> None:
        intake = self._intake
        if self._division.version != intake.version:
            if self.is_closed:
                # Why: to settle may ask the store where queues begin, and that is closed.
                self._in_hand = None
                intake.drop()
                return
            intake.settle()
            self._forget_in_hand()

    def _forget_in_hand(self) -> None:
        """Do not commit a message in hand whose queue went on elsewhere."""
        if self._in_hand is not None and not self._in_hand[0].in_flight:
            self._in_hand = None
