"""Groups: the group assignments of a store, notified of arrivals and of changed topics."""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rocketlake.embedded.consumer.group_assignment import GroupAssignment
from rocketlake.store.ports import Arrival

_LOOKED_AT_MAX: Final = 64


class Groups:
    """The consumers of a store, by group and topic; an `ArrivalListener`.

    An assignment lives as long as a consumer refers to it.

    Thread-safety: any thread. The table is replaced, never changed, so that the dispatcher reads
    it without a lock.
    """

    def __init__(self, queue_count: Callable[[str], int]) -> None:
        self._queue_count = queue_count
        self._lock = threading.Lock()
        self._table: dict[tuple[str, str], weakref.ref[GroupAssignment]] = {}
        self._is_closed = False

    def assignment(self, group: str, topic: str) -> GroupAssignment:
        """Return the assignment of a topic to a group; make it on first use."""
        with self._lock:
            found = self.find(group, topic)
            if found is None:
                found = GroupAssignment(group, topic, self._queue_count)
                living = {key: ref for key, ref in self._table.items() if ref() is not None}
                self._table = {**living, (group, topic): weakref.ref(found)}
                if self._is_closed:
                    found.close()
            return found

    def find(self, group: str, topic: str) -> GroupAssignment | None:
        """Return the assignment of a topic to a group; None without a consumer."""
        ref = self._table.get((group, topic))
        return ref() if ref is not None else None

    def _living(self) -> list[GroupAssignment]:
        return [found for ref in self._table.values() if (found := ref()) is not None]

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer waits for messages."""
        return any(assignment.is_awaited for assignment in self._living())

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the consumers that wait for messages of these topics."""
        awaited = [assignment for assignment in self._living() if assignment.is_awaited]
        if awaited:
            topics = _topics(arrivals)
            for assignment in awaited:
                if topics is None or assignment.topic in topics:
                    assignment.notify()

    def topic_changed(self, topic: str) -> None:
        """Assign the queues of a topic again."""
        for assignment in self._living():
            if assignment.topic == topic:
                assignment.reassign()

    def topic_dropped(self, topic: str) -> None:
        """Make consumers of a topic continue at 0, and commit nothing of it that they hold."""
        for assignment in self._living():
            if assignment.topic == topic:
                assignment.reset_to_zero()

    def close(self) -> None:
        """End every wait."""
        with self._lock:
            self._is_closed = True
            for assignment in self._living():
                assignment.close()


def _topics(arrivals: Sequence[Arrival]) -> set[str] | None:
    """Return the topics that arrivals belong to; None if that would cost too much."""
    ends: Iterable[tuple[str, int]] | None = getattr(arrivals, "ends", None)
    if ends is not None:
        return {topic for topic, _ in ends}
    # Why: an arrival object is made on access. In a burst that costs more than waking a few
    # consumers that find nothing.
    return {a.topic for a in arrivals} if len(arrivals) <= _LOOKED_AT_MAX else None
