"""How much of the unread messages one batch takes.

1. Rows: each queue with messages gets one, and the rest of the limit is shared in proportion to
   what each has. Where the limit is below the number of queues, they take turns.
2. Bytes: shared in proportion to rows, cut where the messages of a share no longer fit; what is
   left goes to the queues in turn. Only a message larger than the limit exceeds it, alone in its
   batch.
3. A batch that is too small waits for enough messages, or until the delay is over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.spark.stream.offsets import StreamSource

_UNITS: Final = 4096
"""Sizes read at a time."""


class OffsetRange(Struct, frozen=True):
    """Offsets of a source, half-open."""

    begin: int
    end: int

    @property
    def count(self) -> int:
        """The number of offsets."""
        return max(self.end - self.begin, 0)


Ranges: TypeAlias = Mapping[StreamSource, OffsetRange]

SizesOf = Callable[[StreamSource, int, int], npt.NDArray[np.int64]]
"""Sizes in bytes of up to so many messages of a source from an offset on."""


def share_rows(available: Ranges, limit: int, turn: int) -> dict[StreamSource, int]:
    """Return how many rows of each source a batch of at most `limit` rows takes."""
    counts = {source: available[source].count for source in in_turn(available, turn)}
    if sum(counts.values()) <= limit:
        return counts
    shares = dict.fromkeys(counts, 0)
    for source in list(counts)[:limit]:
        shares[source] = 1
    rest = limit - sum(shares.values())
    owed = {source: count - shares[source] for source, count in counts.items()}
    total = sum(owed.values())
    if rest <= 0 or total <= 0:
        return shares
    parts = {source: divmod(rest * count, total) for source, count in owed.items()}
    for source, (whole, _) in parts.items():
        shares[source] += whole
    left = limit - sum(shares.values())
    for source in sorted(parts, key=lambda source: parts[source][1], reverse=True)[:left]:
        shares[source] += 1
    return shares


def share_bytes(
    available: Ranges, limit: int, turn: int, sizes_of: SizesOf
) -> dict[StreamSource, int]:
    """Return how many rows of each source a batch of at most `limit` bytes takes."""
    sources = in_turn(available, turn)
    total = sum(available[source].count for source in sources)
    taken = dict.fromkeys(sources, 0)
    left = limit
    for source in sources:
        share = min(limit * available[source].count // total, left)
        taken[source], used = _fit(source, available[source], share, sizes_of)
        left -= used
    for source in sources:  # what rounding left goes to the first ones
        rest = OffsetRange(available[source].begin + taken[source], available[source].end)
        more, used = _fit(source, rest, left, sizes_of)
        taken[source] += more
        left -= used
    if sources and not any(taken.values()):
        taken[sources[0]] = 1
    return taken


def in_turn(available: Ranges, turn: int) -> Sequence[StreamSource]:
    """Return the sources with messages, beginning with another one each turn."""
    sources = sorted(source for source, span in available.items() if span.count)
    first = turn % len(sources) if sources else 0
    return [*sources[first:], *sources[:first]]


def _fit(
    source: StreamSource, span: OffsetRange, budget: int, sizes_of: SizesOf
) -> tuple[int, int]:
    """Return how many messages of a range fit into a number of bytes, and their size."""
    count, used = 0, 0
    while count < span.count and used < budget:
        sizes = sizes_of(source, span.begin + count, min(_UNITS, span.count - count))
        if not len(sizes):
            break
        ends = used + np.cumsum(sizes)
        fitting = int(np.searchsorted(ends, budget, side="right"))
        if fitting:
            count, used = count + fitting, int(ends[fitting - 1])
        if fitting < len(sizes):
            break
    return count, used


class TriggerDelay:
    """Delays small batches until there are enough rows, or enough time has passed.

    The first batch of a process is not delayed, as in Spark's Kafka source.
    """

    def __init__(self, min_rows: int, max_delay_ms: int, clock: Clock) -> None:
        self._min_rows = min_rows
        self._max_delay_s = max_delay_ms / 1000
        self._clock = clock
        self._last_s: float | None = None

    def is_enough(self, rows: int) -> bool:
        """Tell whether a batch of so many rows is made now; if so, the delay begins again."""
        now = self._clock.monotonic_s()
        is_due = self._last_s is None or now - self._last_s >= self._max_delay_s
        if rows < self._min_rows and not is_due:
            return False
        if rows:
            self._last_s = now
        return True
