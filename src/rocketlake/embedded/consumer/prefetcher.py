"""Prefetcher: the queues of one consumer, and the messages it has read ahead."""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from rocketlake.embedded import inner_batch
from rocketlake.embedded.consumer.cursor import Cursor, CursorState
from rocketlake.embedded.consumer.group_assignment import AssignedQueues, GroupAssignment, Member
from rocketlake.embedded.consumer.plan import ConsumerPlan
from rocketlake.embedded.plug_ins import Engine
from rocketlake.format.record import StoredMessage
from rocketlake.metadata.offsets import OffsetBook
from rocketlake.model import flags
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import CorruptUnit, GetRequest, GetResult, GetStatus
from rocketlake.store.queue.times import Boundary

log = logging.getLogger(__name__)

_KEPT: Final = 1000


class Missed(Struct, frozen=True):
    """Messages of a queue that were deleted before the group had consumed them."""

    queue_id: int
    first: int
    """Queue offset of the first of them."""
    end: int
    """Queue offset behind the last of them."""

    @property
    def count(self) -> int:
        """How many there were."""
        return self.end - self.first


class Prefetcher:
    """The cursors of one consumer; those in `ready` have messages and take turns.

    Thread-safety: none; the lock of its consumer.
    """

    def __init__(
        self,
        plan: ConsumerPlan,
        assignment: GroupAssignment,
        reader: Engine,
        offsets: OffsetBook,
    ) -> None:
        self._plan = plan
        self._assignment = assignment
        self._reader = reader
        self._offsets = offsets
        self.cursors: dict[int, Cursor] = {}
        self.ready: deque[Cursor] = deque()
        self.missed: deque[Missed] = deque(maxlen=_KEPT)
        self.corrupt: deque[CorruptUnit] = deque(maxlen=_KEPT)
        # Order: kept here before it joins; a member without a reference leaves the group.
        self.member = Member(plan.queues)
        assignment.join(self.member)
        self.has_leaving = False
        """Whether queues are to be released once their messages are committed."""
        self.version = -1
        """That of the assignment at the last rebalance."""
        self._is_new = True

    # --- sharing -------------------------------------------------------------------------------

    def rebalance(self) -> None:
        """Release queues that moved to other consumers, and take those of this consumer."""
        busy = [queue for queue, cursor in self.cursors.items() if cursor.in_flight]
        assigned = self._assignment.rebalance(self.member, busy)
        for queue in set(self.cursors) - assigned.held:
            del self.cursors[queue]
        for queue in sorted(assigned.held - set(self.cursors)):
            reset = assigned.resets.get(queue)
            serial = reset.serial if reset is not None else 0
            self.cursors[queue] = Cursor(queue, self._find_start(queue), serial)
        self._apply(assigned)
        self.ready = deque(cursor for cursor in self.cursors.values() if cursor.has_more)
        self._is_new = False
        self.version = assigned.version  # Order: last, so that an interrupted call runs again

    def _apply(self, assigned: AssignedQueues) -> None:
        for queue, reset in assigned.resets.items():
            cursor = self.cursors[queue]
            if cursor.reset_serial != reset.serial:
                cursor.jump(reset.offset)
                cursor.reset_serial = reset.serial
        for queue, cursor in self.cursors.items():
            cursor.is_leaving = queue in assigned.leaving
            if cursor.is_leaving:
                cursor.drop_unread()
        self.has_leaving = bool(assigned.leaving)

    def _find_start(self, queue: int) -> int:
        """Return the offset of the group in a queue; commit its start if it has none."""
        plan = self._plan
        offset = self._offsets.get(plan.topic, plan.group, queue)
        if offset is None:
            # Why: a queue that was added later is read from its first message on; `last` would skip
            # what arrived before this consumer noticed the queue.
            offset = self._offset_of(plan.start if self._is_new else "first", queue)
            self._offsets.commit(plan.topic, plan.group, queue, offset)
        return offset

    def _offset_of(self, start: str | int, queue: int) -> int:
        if start == "first":
            return self.bounds(queue)[0]
        self._reader.catch_up()
        if start == "last":
            return self.bounds(queue)[1]
        assert isinstance(start, int), "a moment is in milliseconds"
        return self.offset_by_time(queue, start)

    def bounds(self, queue: int) -> tuple[int, int]:
        """Return where a queue begins and ends."""
        low, high = self._reader.queue_bounds(QueueKey(self._plan.topic, queue))
        return max(low, 0), max(high, 0)

    def offset_by_time(self, queue: int, timestamp: int) -> int:
        """Return the offset of the first message of a queue that was not stored before."""
        key = QueueKey(self._plan.topic, queue)
        return self._reader.offset_by_time(key, timestamp, Boundary.LOWER)

    def drop(self) -> None:
        """Drop all queues: nothing more is handed out."""
        self.cursors.clear()
        self.ready.clear()

    # --- handing out ---------------------------------------------------------------------------

    def hand_out(self) -> StoredMessage:
        """Return the next message of the first ready queue, and move that queue to the end."""
        ready = self.ready
        cursor = ready[0]
        message = cursor.hand_out()
        if not cursor.has_more:
            ready.popleft()
        elif len(ready) > 1:
            ready.rotate(-1)
        return message

    @property
    def has_ready(self) -> bool:
        """Whether a message can be handed out."""
        ready = self.ready
        # Why: an exception may have ended `hand_out` before it removed an empty queue, or `refill`
        # before it added one.
        while ready and not ready[0].has_more:
            ready.popleft()
        if not ready:
            ready.extend(cursor for cursor in self.cursors.values() if cursor.has_more)
        return bool(ready)

    def put_back(self, taken: Sequence[tuple[Cursor, CursorState]]) -> None:
        """Restore cursors; the first of them has its turn next."""
        for cursor, state in reversed(taken):
            cursor.restore(state)
            if cursor.has_more and self.cursors.get(cursor.queue_id) is cursor:
                if cursor in self.ready:
                    self.ready.remove(cursor)
                self.ready.appendleft(cursor)

    def jump(self, cursor: Cursor, offset: int) -> None:
        """Continue at another offset of a queue."""
        cursor.jump(offset)
        if cursor in self.ready:
            self.ready.remove(cursor)

    def commit(self, cursor: Cursor) -> None:
        """Make what was handed out of a queue the group's progress."""
        handed = cursor.handed
        if handed != cursor.committed:
            plan = self._plan
            self._offsets.commit(plan.topic, plan.group, cursor.queue_id, handed)
        cursor.note_commit(handed)

    # --- reading ahead -------------------------------------------------------------------------

    def refill(self) -> bool:
        """Read a batch of every queue; tell whether a position moved."""
        is_moved = False
        for cursor in self.cursors.values():
            if not cursor.is_leaving and not cursor.has_more:
                is_moved |= self._fetch(cursor)
        return is_moved

    def _fetch(self, cursor: Cursor) -> bool:
        plan, at = self._plan, cursor.position
        request = GetRequest(
            topic=plan.topic,
            queue_id=cursor.queue_id,
            offset=at,
            max_messages=plan.batch,
            group=plan.group,
            catches_up=False,
        )
        result = self._reader.get(request, plan.selection.message_filter)
        self._take_note(cursor, result)
        cursor.fill(self._unpack(result.messages, at), result.next_offset)
        if plan.auto_commit and not cursor.in_flight:
            self.commit(cursor)  # skipped offsets count as consumed
        return result.next_offset != at

    def _take_note(self, cursor: Cursor, result: GetResult) -> None:
        at, to = cursor.position, result.next_offset
        self.corrupt.extend(result.corrupt)
        if result.status is GetStatus.OFFSET_TOO_SMALL and to > at:
            self._note_missed(Missed(cursor.queue_id, at, to))
        for gone in result.gone:
            self._note_missed(Missed(cursor.queue_id, max(gone.first, at), gone.end))
        if to < at:
            log.warning(
                "progress beyond the queue corrected group=%s topic=%s queue=%d from=%d to=%d",
                self._plan.group,
                self._plan.topic,
                cursor.queue_id,
                at,
                to,
            )

    def _note_missed(self, missed: Missed) -> None:
        """Log messages that were deleted; adjacent gaps are one."""
        log.warning(
            "messages deleted before they were consumed group=%s topic=%s queue=%d count=%d"
            " from=%d to=%d",
            self._plan.group,
            self._plan.topic,
            missed.queue_id,
            missed.count,
            missed.first,
            missed.end,
        )
        last = self.missed[-1] if self.missed else None
        if last is not None and (last.queue_id, last.end) == (missed.queue_id, missed.first):
            self.missed[-1] = Missed(missed.queue_id, last.first, missed.end)
        else:
            self.missed.append(missed)

    def _unpack(self, messages: Sequence[StoredMessage], at: int) -> Sequence[StoredMessage]:
        """Replace inner batches by their messages from the position on."""
        if not any(message.sys_flag & flags.INNER_BATCH for message in messages):
            return messages
        found: list[StoredMessage] = []
        for message in messages:
            if not inner_batch.is_inner_batch(message):
                found.append(message)
                continue
            try:
                inner = inner_batch.unpack(message)
            except ValueError as error:
                self.corrupt.append(_corrupt(message, error))
                continue
            wants = self._plan.selection.tags.matches
            found += [m for m in inner if m.queue_offset >= at and wants(m.tags)]
        return found


def _corrupt(message: StoredMessage, error: ValueError) -> CorruptUnit:
    return CorruptUnit(
        path="",
        position=message.physical_offset,
        reason=f"an inner batch that cannot be unpacked: {error}",
        queue_offset=message.queue_offset,
    )
