"""Partitions of queue spans, of known places and of the whole log; made on the driver."""

import os
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.spark.reading.log_cuts import begin_at, end_at, log_pieces, wanted_times
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import LogPart, Partition, PlacesPart, QueuePart
from rocketlake.spark.reading.queue_spans import QueueSpan
from rocketlake.spark.reading.record_filter import QueueRange
from rocketlake.spark.reading.run_split import split, weigh
from rocketlake.spark.reading.run_table import RunTable
from rocketlake.spark.reading.stores import StoreRef
from rocketlake.spark.reading.units import UnitFiles, UnitRun
from rocketlake.store.offline import OfflineStore, Places, QueueView, Readers, RocksDbQueue

_SMALL: Final = 8 << 20  # below this a second task costs more than it saves
_PLACES_MAX: Final = 1 << 18
_HELD_MAX: Final = 1 << 20  # units that are planned at a time


def plan_spans(
    store: OfflineStore, broker: str, spans: Sequence[QueueSpan], options: SourceOptions
) -> list[Partition]:
    """Return partitions that hold every unit of the spans once.

    A unit belongs to a span if its first queue offset lies in it.
    """
    ref = StoreRef.of(broker, store)
    runs = []
    owed: list[tuple[QueueSpan, Places]] = []
    stored: list[tuple[QueueSpan, RocksDbQueue]] = []
    for span in spans:
        queue = store.queues.get(span.key)
        if queue is None or span.from_offset >= span.to_offset:
            continue
        if isinstance(queue, RocksDbQueue):
            stored.append((span, queue))
        else:
            first, last = (_index_from(queue, at) for at in (span.from_offset, span.to_offset))
            run = UnitRun.of(queue, first, last)
            if len(run):
                runs.append(run)
        if not len(queue.owed):
            continue
        places = queue.owed.places()
        inside = (places["queue_offset"] >= span.from_offset) & (
            places["queue_offset"] < span.to_offset
        )
        if inside.any():
            owed.append((span, places[inside]))
    readers = Readers(store.directory.ops)
    try:
        files = UnitFiles(ref.path, readers, store.queues)
        parts = _plan_runs(ref, files, RunTable.of(runs), options)
    finally:
        readers.close()
    parts += _plan_stored(store, ref, stored, options)
    return [*parts, *_plan_owed(ref, owed, options)]


def pieces_for(size: int, options: SourceOptions) -> int:
    """Return the number of partitions for a number of bytes."""
    by_size = -(-size // options.max_partition_bytes)
    by_cores = min(os.cpu_count() or 1, size // _SMALL)
    return max(1, options.min_partitions, by_size, by_cores)


def _index_from(queue: QueueView, queue_offset: int) -> int:
    """Return the first unit of the files whose queue offset is this one or a later one."""
    index = min(queue.index_of(queue_offset), queue.end_index)
    if queue.kind.is_batch and index < queue.end_index:
        unit = queue.units(index, 1)
        if len(unit) and int(unit["queue_offset"][0]) < queue_offset:
            index += 1
    return index


def _plan_runs(
    ref: StoreRef, files: UnitFiles, runs: RunTable, options: SourceOptions
) -> list[Partition]:
    if not len(runs):
        return []
    weights = weigh(files, runs)
    pieces = min(pieces_for(weights.total, options), int(runs.counts.sum()))
    cuts = weights.cuts(pieces)
    split_runs = split(files, runs, cuts) if cuts else [runs]
    return [Partition(QueuePart(ref, piece.pack())) for piece in split_runs]


def _plan_stored(
    store: OfflineStore,
    ref: StoreRef,
    stored: list[tuple[QueueSpan, RocksDbQueue]],
    options: SourceOptions,
) -> list[Partition]:
    """Return partitions of units in RocksDB, which the driver reads and partitions carry along."""
    parts: list[Partition] = []
    held: list[tuple[QueueSpan, Places]] = []
    count = 0
    for span, queue in stored:
        end = min(span.to_offset, queue.next_offset)
        for places in queue.iterate(span.from_offset, end, store.damage):
            held.append((span, places))
            count += len(places)
            if count >= _HELD_MAX:
                parts += _plan_owed(ref, held, options, is_owed=False)
                held, count = [], 0
    return [*parts, *_plan_owed(ref, held, options, is_owed=False)]


def _plan_owed(
    ref: StoreRef,
    owed: list[tuple[QueueSpan, Places]],
    options: SourceOptions,
    *,
    is_owed: bool = True,
) -> list[Partition]:
    """Return partitions that carry their units, which no queue file has."""
    if not owed:
        return []
    places = np.concatenate([units for _, units in owed])
    numbers = np.repeat(np.arange(len(owed)), [len(units) for _, units in owed])
    queues = [(span.topic, span.queue_id) for span, _ in owed]
    return plan_places(ref, queues, places, numbers, options=options, is_owed=is_owed)


def plan_places(
    ref: StoreRef,
    queues: list[tuple[str, int]],
    places: Places,
    numbers: npt.NDArray[np.int64],
    *,
    options: SourceOptions,
    is_owed: bool = True,
) -> list[Partition]:
    """Return partitions of records at known places, in the order of the log."""
    if not len(places):
        return []
    order = np.argsort(places["physical_offset"], kind="stable")
    places, numbers = places[order], numbers[order]
    size = int(np.maximum(places["size"], 0).sum())
    pieces = max(pieces_for(size, options), -(-len(places) // _PLACES_MAX))
    pieces = min(pieces, len(places))
    parts = []
    for chosen in np.array_split(np.arange(len(places)), pieces):
        used, own = np.unique(numbers[chosen], return_inverse=True)
        names = [queues[number] for number in used.tolist()]
        parts.append(Partition(PlacesPart.pack(ref, names, places[chosen], own, is_owed=is_owed)))
    return parts


def plan_log(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    """Return partitions that hold the whole log, up to its end."""
    first, last = wanted_times(options)
    return plan_part(store, broker, (begin_at(store, first), end_at(store, last)), options)


def plan_part(
    store: OfflineStore,
    broker: str,
    part: tuple[int, int],
    options: SourceOptions,
    *,
    ranges: tuple[QueueRange, ...] | None = None,
) -> list[Partition]:
    """Return partitions that hold a part of the log, which begins with a record."""
    ref = StoreRef.of(broker, store)
    pieces = pieces_for(part[1] - part[0], options)
    return [
        Partition(LogPart(ref, begin, end, ranges))
        for begin, end in log_pieces(store, *part, pieces)
    ]
