"""Positions: many queues of a store as one number in a checkpoint, a place in the log.

A query that has read everything has read each queue up to its first message whose record lies at or
behind the end of the log. So one physical offset stands for ten thousand queues, and the queues
that were not read to the end are named beside it.

A sum over the names and the ends of the queues tells whether this still holds when the checkpoint
is read again. If not, a topic was deleted, was created again, or is read for the first time.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from rocketlake.spark.stream.limits import Ranges
from rocketlake.spark.stream.offsets import Position, StreamSource

_DIGEST_BYTES: Final = 6  # JSON readers keep 53 bits of a number


class QueueSum:
    """The number of queues of a store with a message, and the sum over their names and ends.

    A change of one queue updates it without reading the others. Owned by one thread.
    """

    def __init__(self) -> None:
        self.queues = 0
        self.digest = 0

    def add(self, source: StreamSource, end: int) -> None:
        """Add a queue and its end."""
        self._change(source, end, 1)

    def remove(self, source: StreamSource, end: int) -> None:
        """Undo `add`."""
        self._change(source, end, -1)

    def _change(self, source: StreamSource, end: int, sign: int) -> None:
        if end <= 0:
            return  # a queue without messages begins at its first one anyway
        text = f"{source.topic}\0{source.queue_id}\0{end}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), "big")
        self.queues += sign
        self.digest = (self.digest + sign * number) % (1 << 8 * _DIGEST_BYTES)

    def copy(self) -> "QueueSum":
        """Return an independent copy."""
        other = QueueSum()
        other.queues, other.digest = self.queues, self.digest
        return other


class BoundsSnapshot:
    """The bounds of all sources at one time, and the sums over them by broker."""

    def __init__(self, bounds: Ranges, ends: Mapping[str, int]) -> None:
        """`ends` are the ends of logs, of the brokers whose queues a position can stand for."""
        self.bounds = dict(bounds)
        self._log_ends = dict(ends)
        self._sums: dict[str, QueueSum] | None = None

    def change(self, bounds: Ranges, ends: Mapping[str, int]) -> None:
        """Apply the bounds of sources that changed."""
        for source, bound in bounds.items():
            before = self.bounds.get(source)
            if self._sums is not None:
                found = self._sums.setdefault(source.broker, QueueSum())
                if before is not None:
                    found.remove(source, before.end)
                found.add(source, bound.end)
            self.bounds[source] = bound
        self._log_ends = dict(ends)

    def copy(self) -> "BoundsSnapshot":
        """Return an independent copy."""
        return BoundsSnapshot(self.bounds, self._log_ends)

    def positions(self, named: Iterable[StreamSource]) -> dict[str, Position]:
        """Return the position of each broker, for all of its queues but the named ones."""
        found = {broker: total.copy() for broker, total in self._sums_by_broker().items()}
        for source in named:
            if source in self.bounds:
                found[source.broker].remove(source, self.bounds[source].end)
        return {
            broker: Position(end, found[broker].queues, found[broker].digest)
            for broker, end in self._log_ends.items()
            if broker in found
        }

    def _sums_by_broker(self) -> dict[str, QueueSum]:
        if self._sums is None:
            self._sums = {}
            for source, bound in self.bounds.items():
                self._sums.setdefault(source.broker, QueueSum()).add(source, bound.end)
        return self._sums
