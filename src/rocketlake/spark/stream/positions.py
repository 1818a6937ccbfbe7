"""Positions: many queues of a store in one number of a checkpoint, the place in the log.

A query that has read everything there was has read each queue up to its first message whose record
lies at the end of the log or behind it. So one physical offset says where ten thousand queues are,
and queues that are somewhere else are named beside it.

A sum over the names and the ends of the queues tells whether that still holds when the checkpoint
is read again: if not, a topic is gone, was made anew, or is read that was not read before.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from rocketlake.spark.stream.limits import Ranges
from rocketlake.spark.stream.offsets import Position, StreamSource

_DIGEST_BYTES: Final = 6  # JSON readers keep 53 bits of a number


class QueueSum:
    """How many queues of a store have had a message, and the sum over their names and ends.

    A change of one queue changes it without a look at the others. Owned by one thread.
    """

    def __init__(self) -> None:
        self.queues = 0
        self.digest = 0

    def add(self, source: StreamSource, end: int) -> None:
        """Count a queue that ends there."""
        self._change(source, end, 1)

    def remove(self, source: StreamSource, end: int) -> None:
        """Take back what `add` did."""
        self._change(source, end, -1)

    def _change(self, source: StreamSource, end: int, sign: int) -> None:
        if end <= 0:
            return  # no message was there: to begin at the first one is the same
        text = f"{source.topic}\0{source.queue_id}\0{end}".encode("utf-8", "surrogatepass")
        number = int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), "big")
        self.queues += sign
        self.digest = (self.digest + sign * number) % (1 << 8 * _DIGEST_BYTES)

    def copy(self) -> "QueueSum":
        """Return one of its own."""
        other = QueueSum()
        other.queues, other.digest = self.queues, self.digest
        return other


class BoundsSnapshot:
    """What there is to read at one moment, and the sums over it by broker."""

    def __init__(self, bounds: Ranges, ends: Mapping[str, int]) -> None:
        """`ends` are those of the logs, of the brokers whose queues a position can stand for."""
        self.bounds = dict(bounds)
        self._log_ends = dict(ends)
        self._sums: dict[str, QueueSum] | None = None

    def change(self, bounds: Ranges, ends: Mapping[str, int]) -> None:
        """Take in the queues that changed."""
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
        """Return one that later changes leave alone."""
        return BoundsSnapshot(self.bounds, self._log_ends)

    def positions(self, named: Iterable[StreamSource]) -> dict[str, Position]:
        """Return the position of each broker, which stands for all queues but those named."""
        found = {broker: total.copy() for broker, total in self._all_sums().items()}
        for source in named:
            if source in self.bounds:
                found[source.broker].remove(source, self.bounds[source].end)
        return {
            broker: Position(end, found[broker].queues, found[broker].digest)
            for broker, end in self._log_ends.items()
            if broker in found
        }

    def _all_sums(self) -> dict[str, QueueSum]:
        if self._sums is None:
            self._sums = {}
            for source, bound in self.bounds.items():
                self._sums.setdefault(source.broker, QueueSum()).add(source, bound.end)
        return self._sums
