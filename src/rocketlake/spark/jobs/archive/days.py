"""Days of store time, in UTC: the date of a message, and where days begin in a queue."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketlake.model.queues import QueueKey
from rocketlake.spark.reading.queue_spans import QueueSpan
from rocketlake.store.offline import OfflineStore, time_lookup

DAY_MS: Final = 86_400_000
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""For times that no calendar has; Spark reads it as null."""

_DAY_US: Final = DAY_MS * 1000
_NO_TIME: Final = -(1 << 63)
_CUTS_MAX: Final = 1000  # of one queue: a clock that jumps must not make endless plans
_FIRST: Final = date(1970, 1, 1)


def date_text(day: int) -> str:
    """Spell a day, counted from 1970 on."""
    try:
        return (_FIRST + timedelta(days=day)).isoformat()
    except OverflowError:
        return NO_DATE


def utc_text(time_ms: int) -> str:
    """Spell a time."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def days_of(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the day each message was stored on; what has no time has a day without a date."""
    stored = batch["store_timestamp"].cast(pa.int64()).fill_null(_NO_TIME)
    times = stored.to_numpy(zero_copy_only=False)
    days: npt.NDArray[np.int64] = times // _DAY_US
    return days


def cut_by_day(store: OfflineStore, span: QueueSpan) -> Iterator[tuple[str, QueueSpan]]:
    """Cut a range of a queue where days begin, as far as the times of its messages are in order.

    Why: so that tasks fit files. Each message is filed by its own time all the same.
    """
    queue = store.queues[QueueKey(span.topic, span.queue_id)]
    lookup = time_lookup(store.log, queue)

    def day_at(offset: int) -> int:
        time = lookup.time_of(queue.index_of(offset))
        return max(time, 0) // DAY_MS if time is not None else 0

    at, end = span.from_offset, span.to_offset
    last = day_at(end - 1)
    for _ in range(_CUTS_MAX):
        day = day_at(at)
        if day >= last:
            break
        low, high = at, end - 1  # at low it is the day, at high it is later
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if day_at(middle) > day else (middle, high)
        yield date_text(day), QueueSpan(span.topic, span.queue_id, at, high)
        at = high
    yield date_text(last), QueueSpan(span.topic, span.queue_id, at, end)
