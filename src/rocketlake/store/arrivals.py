"""Arrivals: the messages of one dispatch round, each made when somebody looks at it."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from rocketlake.store.ports import Arrival, ArrivalListener
from rocketlake.store.unit_builder import Round

log = logging.getLogger(__name__)


def tell_all(listeners: Iterable[ArrivalListener], arrivals: Sequence[Arrival]) -> None:
    """Tell every listener; one that raises is logged, and the others are told."""
    for listener in listeners:
        try:
            listener.arrived(arrivals)
        except Exception:  # a listener's fault must not stop dispatch
            log.exception("arrival listener failed listener=%r", listener)


class ArrivalRelay:
    """An ArrivalListener that passes arrivals on to all listeners of a list, as it is then."""

    def __init__(self, listeners: Sequence[ArrivalListener]) -> None:
        self._listeners = listeners

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Tell every listener, in the caller's thread."""
        tell_all(self._listeners, arrivals)


class Arrivals(Sequence[Arrival]):
    """What readers can now get, in the order of the log; light queues are only in `ends`.

    `ends` says it in short: for each queue that grew, the queue offset behind its last message.
    """

    def __init__(self, records: Round) -> None:
        self._records = records
        self.ends = records.ends

    def __len__(self) -> int:
        return len(self._records.rows)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Arrival]: ...
    def __getitem__(self, index: int | slice) -> Arrival | Sequence[Arrival]:
        """Make one arrival, or several."""
        rows = self._records.rows
        if isinstance(index, slice):
            return [self._make(row) for row in rows[index].tolist()]
        return self._make(int(rows[index]))

    def __iter__(self) -> Iterator[Arrival]:
        return (self._make(row) for row in self._records.rows.tolist())

    def _make(self, row: int) -> Arrival:
        records = self._records
        found = records.columns.rows[row]
        base, count = records.batches.get(row, (int(found["queue_offset"]), 1))
        return Arrival(
            topic=records.topic_of(row),
            queue_id=int(found["queue_id"]),
            next_offset=base + count,
            tags_code=int(records.tags_codes[row]),
            store_timestamp=int(found["store_timestamp"]),
            bitmap=records.bitmaps.get(row),
            properties=records.properties_of(row),
        )
