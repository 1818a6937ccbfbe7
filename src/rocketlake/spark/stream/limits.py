"""How much of what there is one batch takes.

1. Rows: every queue that has something gets one, the rest is shared out by how much each has; the
   sum is the limit, never more. Where the limit is below the number of queues, they take turns.
2. Bytes: shares by rows, cut where the messages of a share no longer fit; what is left goes to the
   queues in turn. Only a message that is larger than the limit makes a batch larger than it, and
   then it is alone.
3. A batch that is too small waits until enough came, or the delay is over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.spark.stream.offsets import Lane

_UNITS: Final = 4096
"""Sizes asked for at once."""


class Stretch(Struct, frozen=True):
    """Offsets of a lane, half open."""

    begin: int
    end: int

    @property
    def count(self) -> int:
        """How many there are."""
        return max(self.end - self.begin, 0)


SizesOf = Callable[[Lane, int, int], npt.NDArray[np.int64]]
"""Sizes in bytes of up to so many messages of a lane from an offset on."""


def share_rows(news: Mapping[Lane, Stretch], limit: int, turn: int) -> dict[Lane, int]:
    """Return how many rows each lane gives to a batch of at most `limit`."""
    counts = {lane: news[lane].count for lane in in_turn(news, turn)}
    if sum(counts.values()) <= limit:
        return counts
    shares = dict.fromkeys(counts, 0)
    for lane in list(counts)[:limit]:
        shares[lane] = 1
    rest = limit - sum(shares.values())
    owed = {lane: count - shares[lane] for lane, count in counts.items()}
    total = sum(owed.values())
    if rest <= 0 or total <= 0:
        return shares
    parts = {lane: divmod(rest * count, total) for lane, count in owed.items()}
    for lane, (whole, _) in parts.items():
        shares[lane] += whole
    left = limit - sum(shares.values())
    for lane in sorted(parts, key=lambda lane: parts[lane][1], reverse=True)[:left]:
        shares[lane] += 1
    return shares


def share_bytes(
    news: Mapping[Lane, Stretch], limit: int, turn: int, sizes_of: SizesOf
) -> dict[Lane, int]:
    """Return how many rows each lane gives to a batch of at most `limit` bytes."""
    lanes = in_turn(news, turn)
    total = sum(news[lane].count for lane in lanes)
    taken = dict.fromkeys(lanes, 0)
    left = limit
    for lane in lanes:
        share = min(limit * news[lane].count // total, left)
        taken[lane], used = _fit(lane, news[lane], share, sizes_of)
        left -= used
    for lane in lanes:  # what rounding left goes to who is first
        rest = Stretch(news[lane].begin + taken[lane], news[lane].end)
        more, used = _fit(lane, rest, left, sizes_of)
        taken[lane] += more
        left -= used
    if lanes and not any(taken.values()):
        taken[lanes[0]] = 1
    return taken


def in_turn(news: Mapping[Lane, Stretch], turn: int) -> Sequence[Lane]:
    """Return the lanes that have something, beginning with another one each time."""
    lanes = sorted(lane for lane, stretch in news.items() if stretch.count)
    first = turn % len(lanes) if lanes else 0
    return [*lanes[first:], *lanes[:first]]


def _fit(lane: Lane, stretch: Stretch, budget: int, sizes_of: SizesOf) -> tuple[int, int]:
    """Return how many messages of a stretch fit into a number of bytes, and their size."""
    count, used = 0, 0
    while count < stretch.count and used < budget:
        sizes = sizes_of(lane, stretch.begin + count, min(_UNITS, stretch.count - count))
        if not len(sizes):
            break
        ends = used + np.cumsum(sizes)
        fitting = int(np.searchsorted(ends, budget, side="right"))
        if fitting:
            count, used = count + fitting, int(ends[fitting - 1])
        if fitting < len(sizes):
            break
    return count, used


class Patience:
    """Holds small batches back: until so many rows are there, or so much time has passed.

    The first batch of a process is made at once, as Spark's Kafka source does it.
    """

    def __init__(self, min_rows: int, max_delay_ms: int, clock: Clock) -> None:
        self._min_rows = min_rows
        self._max_delay_s = max_delay_ms / 1000
        self._clock = clock
        self._last_s: float | None = None

    def is_enough(self, rows: int) -> bool:
        """Tell whether a batch of so many rows is to be made now; if so, the wait begins anew."""
        now = self._clock.monotonic_s()
        is_due = self._last_s is None or now - self._last_s >= self._max_delay_s
        if rows < self._min_rows and not is_due:
            return False
        if rows:
            self._last_s = now
        return True
