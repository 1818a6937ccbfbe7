"""Where the log may be cut: at file starts, and where a queue unit proves that a record begins."""

from itertools import pairwise
from typing import Final

from rocketlake.format import layout
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.units import UnitFiles, UnitRun
from rocketlake.store.offline import OfflineStore, Readers, is_record_at

_RUNS_ASKED: Final = 16  # queues whose units are searched: the longest ones


def log_pieces(store: OfflineStore, begin: int, end: int, pieces: int) -> list[tuple[int, int]]:
    """Cut a range of the log that begins with a record into about so many pieces."""
    if begin >= end:
        return []
    found = {begin, end}
    if pieces > 1:
        readers = Readers(store.directory.ops)
        files = UnitFiles(store.directory.root, readers)
        runs = _longest_runs(store)
        step = (end - begin) / pieces
        targets = [begin + int(step * number) for number in range(1, pieces)]
        near = int(step / 16)  # the first queue that names a record so near is good enough
        for target in targets:
            cut = _record_from(store, files, runs, target, enough=target + near)
            found |= {cut} if cut < end else set()
        readers.close()
    return list(pairwise(sorted(found)))


def begin_at(store: OfflineStore, timestamp: int | None) -> int:
    """Return the start of the file in which the records of a time and later begin."""
    begin = store.min_offset
    if timestamp is not None:
        for file in store.log.files:
            stored = store.log.first_timestamp(file)
            if stored is not None and stored < timestamp:
                begin = file.base_offset
    return begin


def end_at(store: OfflineStore, timestamp: int | None) -> int:
    """Return the end of the file in which the records before a time end."""
    if timestamp is not None:
        for file in store.log.files:
            stored = store.log.first_timestamp(file)
            if stored is not None and stored >= timestamp:
                return min(file.base_offset, store.max_offset)
    return store.max_offset


def _longest_runs(store: OfflineStore) -> list[UnitRun]:
    queues = sorted(store.queues.values(), key=lambda queue: queue.first_index - queue.end_index)
    return [
        UnitRun.of(queue, queue.first_index, queue.end_index)
        for queue in queues[:_RUNS_ASKED]
        if queue.end_index > queue.first_index
    ]


def _record_from(
    store: OfflineStore, files: UnitFiles, runs: list[UnitRun], offset: int, *, enough: int
) -> int:
    """Return the first offset, from one on, that is known to begin a record or a file.

    The search ends at the first answer that is not above `enough`.
    """
    file = store.log.file_at(offset)
    later = (f.base_offset for f in store.log.files if f.base_offset >= offset)
    best = next(later, store.max_offset)
    if file is None:
        return best
    for run in runs:
        if best <= enough:
            break
        index = min(files.index_at(run, run.from_index, offset), run.to_index - 1)
        unit = files.read(run, index, 1)
        place = int(unit["physical_offset"][0]) if len(unit) else -1
        if offset <= place < best:
            best = place if _is_record(store, place) else best
    return best


def _is_record(store: OfflineStore, offset: int) -> bool:
    return is_record_at(store.log.read(offset, layout.RECORD_BORN_HOST_AT), offset)


def proven_before(store: OfflineStore, offset: int) -> int:
    """Return the last offset, up to one, that is known to begin a record, or a file."""
    file = store.log.file_at(offset)
    best = file.base_offset if file is not None else store.min_offset
    readers = Readers(store.directory.ops)
    files = UnitFiles(store.directory.root, readers)
    for run in _longest_runs(store):
        index = files.index_at(run, run.from_index, offset + 1)
        unit = files.read(run, max(index - 1, run.from_index), 1)
        place = int(unit["physical_offset"][0]) if len(unit) else -1
        if best < place <= offset and _is_record(store, place):
            best = place
    readers.close()
    return best


def wanted_times(options: SourceOptions) -> tuple[int | None, int | None]:
    """Return the store times that a read of the whole log is bounded by."""
    first, last = options.starting, options.ending
    return (
        first.default if first.is_time and not first.by_queue else None,
        last.default if last.is_time and not last.by_queue else None,
    )
