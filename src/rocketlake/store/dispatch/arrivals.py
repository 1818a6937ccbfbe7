"""Arrivals: the messages of one dispatch round, each made when it is read."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, overload

from rocketlake.model.queues import QueueKey
from rocketlake.store.dispatch.placement import Placement
from rocketlake.store.dispatch.unit_builder import Bitmaps, Ends
from rocketlake.store.ports import Arrival, ArrivalListener

log = logging.getLogger(__name__)


def notify_all(listeners: Iterable[ArrivalListener], arrivals: Sequence[Arrival]) -> None:
    """Notify every listener; one that raises is logged, and the others are notified."""
    for listener in listeners:
        try:
            listener.arrived(arrivals)
        except Exception:  # a listener's fault must not stop dispatch
            log.exception("arrival listener failed listener=%r", listener)


class ArrivalRelay:
    """An ArrivalListener that passes arrivals on to the listeners that a list has at that time."""

    def __init__(self, listeners: Sequence[ArrivalListener]) -> None:
        self._listeners = listeners

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Notify every listener, in the caller's thread."""
        notify_all(self._listeners, arrivals)


class Arrivals(Sequence[Arrival]):
    """The messages that readers can now get, in the order of the log.

    A message that entered light queues arrives in its own queue first, then in each of them.
    `ends` says it in short: for each queue that grew, the queue offset behind its last message.
    """

    def __init__(self, placement: Placement, ends: Ends, bitmaps: Bitmaps) -> None:
        self._placement = placement
        self._bitmaps = bitmaps
        self._places: list[_Place] | None = _places(placement) if placement.light else None
        self.ends = ends

    def __len__(self) -> int:
        return len(self._placement.rows if self._places is None else self._places)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Arrival]: ...
    def __getitem__(self, index: int | slice) -> Arrival | Sequence[Arrival]:
        """Make one arrival, or several."""
        if self._places is not None:
            if isinstance(index, slice):
                return [self._make(*place) for place in self._places[index]]
            return self._make(*self._places[index])
        rows = self._placement.rows
        if isinstance(index, slice):
            return [self._make(row) for row in rows[index].tolist()]
        return self._make(int(rows[index]))

    def __iter__(self) -> Iterator[Arrival]:
        if self._places is not None:
            return (self._make(*place) for place in self._places)
        return (self._make(row) for row in self._placement.rows.tolist())

    def _make(self, row: int, light: "_LightPlace | None" = None) -> Arrival:
        placement, records = self._placement, self._placement.records
        found = records.columns.rows[row]
        if light is None:
            base, count = placement.batches.get(row, (int(found["queue_offset"]), 1))
            key, next_offset = records.key_of(row), base + count
        else:
            key, next_offset = light[0], light[1] + 1
        return Arrival(
            topic=key.topic,
            queue_id=key.queue_id,
            next_offset=next_offset,
            tags_code=int(placement.tags_codes[row]),
            store_timestamp=int(found["store_timestamp"]),
            bitmap=self._bitmaps.get(row),
            properties=records.properties_of(row),
        )


_LightPlace: TypeAlias = tuple[QueueKey, int]
"""A light queue, and the queue offset of a message in it."""
_Place: TypeAlias = tuple[int, _LightPlace | None]
"""The row of a message; None: in its own queue."""


def _places(placement: Placement) -> list[_Place]:
    """Return where messages arrive, in the order in which listeners receive them."""
    # Compat: as in DefaultMessageStore#notifyMessageArriveIfNecessary; so since 4.9.
    found: dict[int, list[_Place]] = {row: [(row, None)] for row in placement.rows.tolist()}
    for key, entries in placement.light.items():
        for row, offset in entries:
            found.setdefault(row, []).append((row, (key, offset)))
    return [place for row in sorted(found) for place in found[row]]
