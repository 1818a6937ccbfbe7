"""Queue offsets by store time in a store that is only read, by the rules of `queue.times`."""

from rocketlake.store.disk.log import LogView, is_record_at, store_timestamp
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.queue.times import Boundary, TimeLookup, UnitRun

__all__ = ["Boundary", "TimeLookup", "time_lookup"]

_HEAD_SIZE = 80
_NEVER_WRITTEN_MS = 1 << 62  # of a file that the units still owed will make


def time_lookup(log: LogView, queue: QueueView) -> TimeLookup:
    """Return the look-up for one queue."""
    bounds = {"min_offset": queue.min_offset, "max_offset": queue.max_offset}
    return TimeLookup(_ViewedLog(log), _ViewedUnits(queue), **bounds)


class _ViewedLog:
    """Store times of a log, by `pread`."""

    def __init__(self, log: LogView) -> None:
        self._log = log

    @property
    def min_offset(self) -> int:
        """The offset of the first byte there is."""
        return self._log.min_offset

    def store_timestamp_at(self, physical_offset: int) -> int:
        """Return the store time of the record that begins there; -1 if none does."""
        head = self._log.read(physical_offset, _HEAD_SIZE)
        time = store_timestamp(head) if is_record_at(head, physical_offset) else None
        return time if time is not None else -1


class _ViewedUnits:
    """The units of a queue, those it is owed included."""

    def __init__(self, queue: QueueView) -> None:
        self._queue = queue

    @property
    def is_batch(self) -> bool:
        """Whether units stand for batches."""
        return self._queue.kind.is_batch

    def runs(self) -> list[UnitRun]:
        """Cut the queue where its files end."""
        size = self._queue.file_units()
        first = self._queue.first_index
        end = first + self._queue.total
        runs = []
        while first < end:
            stop = min((first // size + 1) * size, end)
            runs.append(UnitRun(first, stop - 1))
            first = self._queue.next_held(stop)
        return runs

    def changed_ms(self, run: UnitRun) -> int:
        """Return when the file of a run was changed last."""
        base_offset = run.first // self._queue.file_units() * self._queue.file_size
        for file in self._queue.files:
            if file.base_offset == base_offset:
                return file.mtime_ms
        return _NEVER_WRITTEN_MS

    def physical_at(self, index: int) -> int:
        """Return where the record of a unit begins; -1 if the unit is gone."""
        unit = self._queue.units(index, 1)
        return int(unit["physical_offset"][0]) if len(unit) else -1

    def offset_at(self, index: int) -> int:
        """Return the first queue offset a unit stands for; -1 if it is gone."""
        unit = self._queue.units(index, 1)
        return int(unit["queue_offset"][0]) if len(unit) else -1

    def time_at(self, _index: int) -> int | None:
        """Return nothing: the times of records are read, also those of a batch queue."""
        return None
