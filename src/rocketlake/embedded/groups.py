"""Groups: every division of a store, woken by what arrives and by topics that change."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rocketlake.embedded.division import Division
from rocketlake.store.ports import Arrival

_LOOKED_AT_MAX: Final = 64


class Groups:
    """The consumers of a store, by group and topic; an `ArrivalListener`.

    Thread-safety: any thread. The table is replaced, never changed, so that the dispatcher reads
    it without a lock.
    """

    def __init__(self, queue_count: Callable[[str], int]) -> None:
        self._queue_count = queue_count
        self._lock = threading.Lock()
        self._divisions: dict[tuple[str, str], Division] = {}
        self._is_closed = False

    def division(self, group: str, topic: str) -> Division:
        """Return how a group shares a topic."""
        with self._lock:
            found = self._divisions.get((group, topic))
            if found is None:
                found = Division(group, topic, self._queue_count)
                self._divisions = {**self._divisions, (group, topic): found}
                if self._is_closed:
                    found.close()
            return found

    def find(self, group: str, topic: str) -> Division | None:
        """Return how a group shares a topic; None if nobody ever asked."""
        return self._divisions.get((group, topic))

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake who waits for messages of these topics."""
        awaited = [division for division in self._divisions.values() if division.is_awaited]
        if awaited:
            topics = _topics(arrivals)
            for division in awaited:
                if topics is None or division.topic in topics:
                    division.ring()

    def topic_changed(self, topic: str) -> None:
        """Divide the queues of a topic anew."""
        for division in self._divisions.values():
            if division.topic == topic:
                division.change()

    def close(self) -> None:
        """End every wait."""
        with self._lock:
            self._is_closed = True
            for division in self._divisions.values():
                division.close()


def _topics(arrivals: Sequence[Arrival]) -> set[str] | None:
    """Return the topics of what arrived; None if it would cost too much to know."""
    ends: Iterable[tuple[str, int]] | None = getattr(arrivals, "ends", None)
    if ends is not None:
        return {topic for topic, _ in ends}
    # Why: an arrival is made when it is looked at. In a burst that costs more than to wake some
    # who find nothing.
    return {a.topic for a in arrivals} if len(arrivals) <= _LOOKED_AT_MAX else None
