"""Messages by key: through the index files where they cover the log, else along the log.

What is planned may be more than what is wanted: the key itself is compared where records are read.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocketlake.format.index import key_hash
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq
from rocketlake.spark.reading.log_cuts import proven_before
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import Partition
from rocketlake.spark.reading.planning import plan_part, plan_places, plan_spans
from rocketlake.spark.reading.queue_spans import QueueSpan
from rocketlake.spark.reading.record_filter import QueueRange
from rocketlake.spark.reading.stores import StoreRef
from rocketlake.store.offline import PLACE_DTYPE, OfflineStore, Places


def plan_key(
    store: OfflineStore, broker: str, spans: Sequence[QueueSpan], options: SourceOptions
) -> list[Partition]:
    """Return partitions that hold every message of the spans that has the key."""
    key = options.key or options.unique_key or ""
    plain: list[QueueSpan] = []
    others: list[QueueSpan] = []
    for span in spans:
        queue = store.queues.get(span.key)
        if queue is None or span.from_offset >= span.to_offset:
            continue
        # The index knows records by their own topic, and a batch by its first message alone.
        is_indexed = not queue.kind.is_batch and not is_lmq(span.topic)
        (plain if is_indexed else others).append(span)
    parts = plan_spans(store, broker, others, options)
    if not plain:
        return parts
    scans = _scans(store)
    offsets = _offsets(store, {span.topic for span in plain}, key)
    for begin, end in scans:
        offsets = offsets[(offsets < begin) | (offsets >= end)]
    parts += _plan_found(StoreRef.of(broker, store), store, plain, offsets, options=options)
    ranges = tuple(_queue_range(store, span) for span in plain)
    for scan in scans:
        parts += plan_part(store, broker, scan, options, ranges=ranges)
    return parts


def _scans(store: OfflineStore) -> list[tuple[int, int]]:
    """Return the parts of the log that no index file covers, each from a record's start on."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(store.coverage.scans):
        start = proven_before(store, begin)
        # The record at the very end may have some of its keys in the part before.
        size = int.from_bytes(store.log.read(end, 4), "big", signed=True)
        stop = min(end + max(size, 0), store.max_offset)
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _offsets(store: OfflineStore, topics: set[str], key: str) -> npt.NDArray[np.int64]:
    """Return the places of records that the index names for a key, in order."""
    found = {
        offset
        for file in store.coverage.files
        for topic in topics
        for offset in file.offsets(key_hash(topic, key), store.damage)
    }
    inside = (o for o in found if store.min_offset <= o < store.max_offset)
    return np.array(sorted(inside), np.int64)


def _plan_found(
    ref: StoreRef,
    store: OfflineStore,
    spans: list[QueueSpan],
    offsets: npt.NDArray[np.int64],
    *,
    options: SourceOptions,
) -> list[Partition]:
    """Keep the records that units of the spans point to."""
    if not len(offsets):
        return []
    wanted = {(span.topic, span.queue_id): i for i, span in enumerate(spans)}
    heads = (store.log.read(offset, 4) for offset in offsets.tolist())
    sizes = np.array([int.from_bytes(head, "big", signed=True) for head in heads], np.int64)
    columns, reasons = store.log.gather(offsets, sizes, checks=0)
    kept: list[tuple[int, int, int, int, int]] = []
    numbers: list[int] = []
    for index in np.flatnonzero(reasons == 0).tolist():
        message = columns.message(index)
        number = wanted.get((message.topic, message.queue_id))
        if number is None:
            continue
        span = spans[number]
        if span.from_offset <= message.queue_offset < span.to_offset:
            unit = _unit(store, span.key, message.queue_offset)
            if len(unit) and int(unit["physical_offset"][0]) == message.physical_offset:
                kept.append(unit[0].item())
                numbers.append(number)
    places: Places = np.array(kept, PLACE_DTYPE)
    queues = [(span.topic, span.queue_id) for span in spans]
    return plan_places(ref, queues, places, np.array(numbers, np.int64), options=options)


def _unit(store: OfflineStore, key: QueueKey, queue_offset: int) -> Places:
    queue = store.queues[key]
    return queue.units(queue.index_of(queue_offset), 1)


def _queue_range(store: OfflineStore, span: QueueSpan) -> QueueRange:
    """Return what a span holds along the log: nothing of a topic that had its name before."""
    unit = _unit(store, span.key, span.from_offset)
    first = int(unit["physical_offset"][0]) if len(unit) else 0
    return QueueRange(span.topic, span.queue_id, span.from_offset, span.to_offset, first)
