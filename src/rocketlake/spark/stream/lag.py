"""How far a stream is behind the end of the stores: messages, bytes, seconds.

The driver computes it after it has chosen where a batch ends. Spark shows it in the query's
progress, in the latest offset of the source:

    json.loads(query.lastProgress.sources[0].latestOffset)["behind"]
    {"rows": 1200, "bytes": 310400, "seconds": 4.2}
"""

from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from rocketlake.spark.stream.limits import OffsetRange, Ranges
from rocketlake.spark.stream.offsets import StreamSource
from rocketlake.spark.stream.sources import StreamSources

_QUEUES_MAX: Final = 256
"""Queues whose units are read; of more, those with the most messages."""
_UNITS: Final = 1024
"""Units at each end of a queue's unread range that its bytes are estimated from."""


class Behind(Struct, frozen=True):
    """What a stream had not read at its last refresh."""

    rows: int | None
    """Messages; None for a whole log, where they are not counted."""
    bytes: int
    """Of their records; of long ranges estimated from the sizes at both ends."""
    seconds: float | None
    """The age of the oldest of them; None if its record cannot be read."""

    def encode(self) -> dict[str, Any]:
        """Return the members that Spark's progress shows."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def decode(cls, members: object) -> Self | None:
        """Read what `encode` returned; None if it is something else."""
        try:
            return msgspec.convert(members, cls)
        except msgspec.ValidationError:
            return None


def measure_behind(sources: StreamSources, rest: Ranges, now_ms: int) -> Behind:
    """Return how far behind a stream is that has not read these ranges."""
    left = {source: span for source, span in rest.items() if span.count}
    if not left:
        is_log = any(source.is_log for source in rest)
        return Behind(None if is_log else 0, 0, 0.0)
    if any(source.is_log for source in left):
        oldest = {source: span.begin for source, span in left.items()}
        size = sum(span.count for span in left.values())
        return Behind(None, size, _age_s(sources, oldest, now_ms))
    most = sorted(left, key=lambda source: left[source].count, reverse=True)[:_QUEUES_MAX]
    rows = sum(span.count for span in left.values())
    seen = sum(left[source].count for source in most)
    size = sum(_size_of(sources, source, left[source]) for source in most)
    firsts = {source: sources.physical_offset_of(source, left[source].begin) for source in most}
    oldest = {source: at for source, at in firsts.items() if at is not None}
    return Behind(rows, size * rows // seen, _age_s(sources, oldest, now_ms))


def _size_of(sources: StreamSources, source: StreamSource, span: OffsetRange) -> int:
    """Return about the bytes of a range; exactly if it has few units."""
    if span.count <= 2 * _UNITS:
        return int(sources.sizes_of(source, span.begin, span.count).sum())
    first = sources.sizes_of(source, span.begin, _UNITS)
    last = sources.sizes_of(source, span.end - _UNITS, _UNITS)
    count = len(first) + len(last)
    return int((int(first.sum()) + int(last.sum())) * span.count // count) if count else 0


def _age_s(sources: StreamSources, oldest: Mapping[StreamSource, int], now_ms: int) -> float | None:
    """Return the age of the oldest of some records: the first one of each log."""
    first: dict[str, int] = {}
    for source, at in oldest.items():
        first[source.broker] = min(first.get(source.broker, at), at)
    times = [sources.stored_at(broker, at) for broker, at in first.items()]
    known = [time for time in times if time is not None]
    return max(now_ms - min(known), 0) / 1000 if known else None
