"""Queue offsets by store time: 5.x's lower and upper bound, 4.x's nearest message.

Rules and examples are in docs/formats/consumequeue.md. A queue's files matter: the reference
first chooses a file, then searches inside it.
"""

from enum import Enum

from msgspec import Struct

from rocketlake.store.offline.log import LogView, is_record_at, store_timestamp
from rocketlake.store.offline.queues import QueueView

_HEAD_SIZE = 80


class Boundary(Enum):
    """Which neighbour answers when no message has exactly the time."""

    LOWER = "lower"
    UPPER = "upper"


class _File(Struct, frozen=True):
    """Units `first` to `last` (included) of one file of a queue."""

    first: int
    last: int
    mtime_ms: int


class TimeLookup:
    """Answers for one queue; every time is read from the record a unit points to."""

    def __init__(self, log: LogView, queue: QueueView) -> None:
        self._log = log
        self._queue = queue
        self.is_sure = True
        """False once a record that was looked at could not be read: the answer may be off."""

    def bound(self, timestamp: int, boundary: Boundary) -> int:
        """Return the offset 5.1.1 and later give, within the queue's bounds."""
        queue = self._queue
        if queue.total == 0:
            return queue.max_offset
        if queue.kind.is_batch:
            found = self._bound_batch(timestamp, boundary)
        else:
            found = self._bound_plain(timestamp, boundary)
        return min(max(found, queue.min_offset), queue.max_offset)

    def nearest(self, timestamp: int) -> int:
        """Return the offset 4.x gives: the message nearest in time, the earlier of two."""
        files = self._files()
        if not files:
            return 0
        file = next((file for file in files if file.mtime_ms >= timestamp), files[-1])
        low, high = self._first_of(file), file.last
        left = right = None
        left_time = right_time = -1
        while low <= high:
            middle = (low + high) // 2
            if self._physical(middle) < self._log.min_offset:
                low, left = middle + 1, middle
                left_time = -1
                continue
            time = self.time_of(middle)
            if time is None:
                return 0
            if time == timestamp:
                return middle
            if time > timestamp:
                high, right, right_time = middle - 1, middle, time
            else:
                low, left, left_time = middle + 1, middle, time
        return _nearer(timestamp, (left, left_time), (right, right_time), file)

    # --- 5.x, plain queue ----------------------------------------------------------------------

    def _bound_plain(self, timestamp: int, boundary: Boundary) -> int:
        file = self._file_for(timestamp, boundary)
        if file is None:
            return 0
        low, high = self._first_of(file), file.last
        last_time, first_time = self.time_of(high), self.time_of(low)
        if last_time is not None and last_time < timestamp:
            return high + 1 if boundary is Boundary.LOWER else high
        if first_time is not None and first_time > timestamp:
            return low if boundary is Boundary.LOWER else 0
        while low <= high:
            middle = (low + high) // 2
            time = self.time_of(middle) if self._held(middle) else -1
            if time is None:
                return 0
            if time == timestamp:
                return self._widen(middle, timestamp, file, boundary)
            if time < timestamp:
                low = middle + 1
            else:
                high = middle - 1
        return low if boundary is Boundary.LOWER else high

    def _file_for(self, timestamp: int, boundary: Boundary) -> _File | None:
        files = self._files()
        if not files:
            return None
        if boundary is Boundary.LOWER:
            for file in files[:-1]:
                time = self.time_of(file.last)
                if time is not None and time >= timestamp:
                    return file
            return files[-1]
        for file in reversed(files):
            time = self.time_of(self._first_of(file))
            if time is not None and time <= timestamp:
                return file
        return files[0]

    def _widen(self, index: int, timestamp: int, file: _File, boundary: Boundary) -> int:
        """Return the first or last unit of the file with the same time."""
        step = -1 if boundary is Boundary.LOWER else 1
        limits = range(self._first_of(file), file.last + 1)
        while index + step in limits and self.time_of(index + step) == timestamp:
            index += step
        return index

    # --- 5.x, batch queue ----------------------------------------------------------------------

    def _bound_batch(self, timestamp: int, boundary: Boundary) -> int:
        # Compat: as in BatchConsumeQueue#getOffsetInQueueByTime; plain queues have another rule.
        files = self._files()
        chosen = [file for file in files if (self.time_of(file.first) or 0) <= timestamp]
        if not chosen:
            return -1
        low, high = chosen[-1].first, chosen[-1].last
        if timestamp >= (self.time_of(high) or 0):
            return self._offset(high)
        while low <= high:
            middle = (low + high) // 2
            time = self.time_of(middle) or 0
            if middle == high or (middle == low and time >= timestamp):
                return self._offset(middle) if time >= timestamp else -1
            if middle == low:
                low = middle + 1
            elif boundary is Boundary.LOWER:
                low, high = (middle + 1, high) if time < timestamp else (low, middle)
            else:
                low, high = (middle, high) if time <= timestamp else (low, middle - 1)
        return -1

    # --- units ---------------------------------------------------------------------------------

    def _files(self) -> list[_File]:
        """Cut the queue where its files end, the units it is owed included."""
        queue = self._queue
        end = queue.first_index + queue.total
        size = queue.file_units()
        times = {file.base_offset // queue.kind.unit_size: file.mtime_ms for file in queue.files}
        files = []
        first = queue.first_index
        while first < end:
            stop = min((first // size + 1) * size, end)
            mtime = times.get(first // size * size, 1 << 62)
            files.append(_File(first, stop - 1, mtime))
            first = stop
        return files

    def _first_of(self, file: _File) -> int:
        """Return the first unit of a file that is not below the queue's lowest offset."""
        if self._queue.kind.is_batch:
            return file.first
        return min(max(file.first, self._queue.min_offset), file.last)

    def _physical(self, index: int) -> int:
        unit = self._queue.units(index, 1)
        return int(unit["physical_offset"][0]) if len(unit) else -1

    def _held(self, index: int) -> bool:
        return self._physical(index) >= self._log.min_offset

    def _offset(self, index: int) -> int:
        unit = self._queue.units(index, 1)
        return int(unit["queue_offset"][0]) if len(unit) else -1

    def time_of(self, index: int) -> int | None:
        """Return the store time of the record a unit points to; None if it is gone."""
        physical_offset = self._physical(index)
        if physical_offset < self._log.min_offset:
            return None
        head = self._log.read(physical_offset, _HEAD_SIZE)
        time = store_timestamp(head) if is_record_at(head, physical_offset) else None
        self.is_sure = self.is_sure and time is not None
        return time


def _nearer(
    timestamp: int, left: tuple[int | None, int], right: tuple[int | None, int], file: _File
) -> int:
    if left[0] is None or left[1] == -1:
        # Without any unit that is not too old: the last one before the file.
        return right[0] if right[0] is not None else max(file.first - 1, 0)
    if right[0] is None:
        return left[0]
    return right[0] if abs(timestamp - left[1]) > abs(timestamp - right[1]) else left[0]
