"""Which of the wanted offsets the pushed filters leave."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rocketlake.model.topics import is_lmq
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.queue_spans import QueueSpan
from rocketlake.spark.reading.terms import allows, bounds
from rocketlake.store.offline import OfflineStore

SLACK_MS: Final = 60_000  # a broker's clock may have been set back by that much


def narrow(
    store: OfflineStore, spans: Sequence[QueueSpan], options: SourceOptions
) -> list[QueueSpan]:
    """Leave out of the spans what surely does not fulfil the filters."""
    terms = options.terms
    if not terms:
        return list(spans)
    low, high = bounds(terms, "queue_offset")
    begin, end = times(options)
    found = []
    for span in spans:
        # The records of a light queue have another topic and queue.
        if not is_lmq(span.topic) and not (
            allows(terms, "topic", span.topic) and allows(terms, "queue_id", span.queue_id)
        ):
            continue
        first, last = max(span.from_offset, low), min(span.to_offset, high + 1)
        if first < last and (begin is not None or end is not None):
            inside = store.offsets_of_time(span.key, begin, end)
            first, last = max(first, inside[0]), min(last, inside[1])
        if first < last:
            found.append(replace(span, from_offset=first, to_offset=last))
    return found


def times(options: SourceOptions) -> tuple[int | None, int | None]:
    """Return the store times (ms) that the filters leave, with some slack; None: any."""
    low, high = bounds(options.terms, "store_timestamp")
    return (
        low // 1000 - SLACK_MS if low > -(1 << 62) else None,
        high // 1000 + SLACK_MS if high < 1 << 62 else None,
    )
