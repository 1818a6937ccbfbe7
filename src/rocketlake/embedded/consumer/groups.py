"""Groups: every division of a store, woken by what arrives and by topics that change."""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rocketlake.embedded.consumer.group_assignment import Division
from rocketlake.store.ports import Arrival

_LOOKED_AT_MAX: Final = 64


class Groups:
    """The consumers of a store, by group and topic; an `ArrivalListener`.

    A division lives as long as a consumer has it: topics and groups come and go.

    Thread-safety: any thread. The table is replaced, never changed, so that the dispatcher reads
    it without a lock.
    """

    def __init__(self, queue_count: Callable[[str], int]) -> None:
        self._queue_count = queue_count
        self._lock = threading.Lock()
        self._table: dict[tuple[str, str], weakref.ref[Division]] = {}
        self._is_closed = False

    def division(self, group: str, topic: str) -> Division:
        """Return how a group shares a topic."""
        with self._lock:
            found = self.find(group, topic)
            if found is None:
                found = Division(group, topic, self._queue_count)
                living = {key: ref for key, ref in self._table.items() if ref() is not None}
                self._table = {**living, (group, topic): weakref.ref(found)}
                if self._is_closed:
                    found.close()
            return found

    def find(self, group: str, topic: str) -> Division | None:
        """Return how a group shares a topic; None if no consumer does."""
        ref = self._table.get((group, topic))
        return ref() if ref is not None else None

    def _living(self) -> list[Division]:
        return [found for ref in self._table.values() if (found := ref()) is not None]

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer waits for messages."""
        return any(division.is_awaited for division in self._living())

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake who waits for messages of these topics."""
        awaited = [division for division in self._living() if division.is_awaited]
        if awaited:
            topics = _topics(arrivals)
            for division in awaited:
                if topics is None or division.topic in topics:
                    division.ring()

    def topic_changed(self, topic: str) -> None:
        """Divide the queues of a topic anew."""
        for division in self._living():
            if division.topic == topic:
                division.change()

    def topic_dropped(self, topic: str) -> None:
        """Have consumers of a topic go on at 0, and commit nothing that they have of it."""
        for division in self._living():
            if division.topic == topic:
                division.restart()

    def close(self) -> None:
        """End every wait."""
        with self._lock:
            self._is_closed = True
            for division in self._living():
                division.close()


def _topics(arrivals: Sequence[Arrival]) -> set[str] | None:
    """Return the topics of what arrived; None if it would cost too much to know."""
    ends: Iterable[tuple[str, int]] | None = getattr(arrivals, "ends", None)
    if ends is not None:
        return {topic for topic, _ in ends}
    # Why: an arrival is made when it is looked at. In a burst that costs more than to wake some
    # who find nothing.
    return {a.topic for a in arrivals} if len(arrivals) <= _LOOKED_AT_MAX else None
