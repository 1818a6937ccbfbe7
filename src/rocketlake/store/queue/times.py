"""Queue offsets by store time: 5.x's lower and upper bound, 4.x's nearest message.

Rules and examples are in docs/formats/consumequeue.md. A queue's files matter: the reference
first chooses a file, then searches inside it. The queues of a store in use and those of one that
is only read have the same rules.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct


class Boundary(Enum):
    """Which neighbour answers when no message has exactly the time."""

    LOWER = "lower"
    UPPER = "upper"


class UnitRun(Struct, frozen=True, gc=False):
    """Units `first` to `last` (included) of one file of a queue."""

    first: int
    last: int


class TimedLog(Protocol):
    """The log that units point into."""

    @property
    def min_offset(self) -> int:
        """The offset of the first byte there is."""
        ...

    def store_timestamp_at(self, physical_offset: int, /) -> int:
        """Return the store time of the record that begins there; -1 if none does."""
        ...


class TimedUnits(Protocol):
    """The units of a queue by index: their place in the files."""

    @property
    def is_batch(self) -> bool:
        """Whether units stand for batches."""
        ...

    def runs(self) -> Sequence[UnitRun]:
        """Return the units of each file, in order; files without units are left out."""
        ...

    def changed_ms(self, run: UnitRun, /) -> int:
        """Return when the file of a run was changed last."""
        ...

    def physical_at(self, index: int, /) -> int:
        """Return where the record of a unit begins; -1 if the unit is gone."""
        ...

    def offset_at(self, index: int, /) -> int:
        """Return the first queue offset a unit stands for; -1 if it is gone."""
        ...

    def time_at(self, index: int, /) -> int | None:
        """Return the store time if the unit itself holds one."""
        ...


class TimeLookup:
    """Answers for one queue as it is now; times are those of the records units point to."""

    def __init__(
        self, log: TimedLog, units: TimedUnits, *, min_offset: int, max_offset: int
    ) -> None:
        self._log = log
        self._units = units
        self._min_offset = min_offset
        self._max_offset = max_offset
        self.is_sure = True
        """False once a record that was looked at could not be read: the answer may be off."""

    def bound(self, timestamp: int, boundary: Boundary) -> int:
        """Return the offset 5.1.1 and later give, within the queue's bounds."""
        runs = self._units.runs()
        if not runs:
            return self._max_offset
        if self._units.is_batch:
            found = self._bound_batch(runs, timestamp, boundary)
        else:
            found = self._bound_plain(runs, timestamp, boundary)
        return min(max(found, self._min_offset), self._max_offset)

    def nearest(self, timestamp: int) -> int:
        """Return the offset 4.x gives: the message nearest in time, the earlier of two."""
        runs = self._units.runs()
        if not runs:
            return 0
        run = next((run for run in runs if self._units.changed_ms(run) >= timestamp), runs[-1])
        low, high = self._first_of(run), run.last
        left = right = None
        left_time = right_time = -1
        while low <= high:
            middle = (low + high) // 2
            if self._units.physical_at(middle) < self._log.min_offset:
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
        return _nearer(timestamp, (left, left_time), (right, right_time), run)

    def time_of(self, index: int) -> int | None:
        """Return the store time of the record a unit points to; None if it is gone."""
        held = self._units.time_at(index)
        if held is not None:
            return held
        physical_offset = self._units.physical_at(index)
        if physical_offset < self._log.min_offset:
            return None
        time = self._log.store_timestamp_at(physical_offset)
        self.is_sure = self.is_sure and time >= 0
        return time if time >= 0 else None

    # --- 5.x, plain queue ----------------------------------------------------------------------

    def _bound_plain(self, runs: Sequence[UnitRun], timestamp: int, boundary: Boundary) -> int:
        run = self._run_for(runs, timestamp, boundary)
        low, high = self._first_of(run), run.last
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
                return self._widen(middle, timestamp, run, boundary)
            if time < timestamp:
                low = middle + 1
            else:
                high = middle - 1
        return low if boundary is Boundary.LOWER else high

    def _run_for(self, runs: Sequence[UnitRun], timestamp: int, boundary: Boundary) -> UnitRun:
        if boundary is Boundary.LOWER:
            for run in runs[:-1]:
                time = self.time_of(run.last)
                if time is not None and time >= timestamp:
                    return run
            return runs[-1]
        for run in reversed(runs):
            time = self.time_of(self._first_of(run))
            if time is not None and time <= timestamp:
                return run
        return runs[0]

    def _widen(self, index: int, timestamp: int, run: UnitRun, boundary: Boundary) -> int:
        """Return the first or last unit of the file with the same time."""
        step = -1 if boundary is Boundary.LOWER else 1
        limits = range(self._first_of(run), run.last + 1)
        while index + step in limits and self.time_of(index + step) == timestamp:
            index += step
        return index

    # --- 5.x, batch queue ----------------------------------------------------------------------

    def _bound_batch(self, runs: Sequence[UnitRun], timestamp: int, boundary: Boundary) -> int:
        # Compat: as in BatchConsumeQueue#getOffsetInQueueByTime; plain queues have another rule.
        chosen = [run for run in runs if (self.time_of(run.first) or 0) <= timestamp]
        if not chosen:
            return -1
        low, high = chosen[-1].first, chosen[-1].last
        if timestamp >= (self.time_of(high) or 0):
            return self._units.offset_at(high)
        while low <= high:
            middle = (low + high) // 2
            time = self.time_of(middle) or 0
            if middle == high or (middle == low and time >= timestamp):
                return self._units.offset_at(middle) if time >= timestamp else -1
            if middle == low:
                low = middle + 1
            elif boundary is Boundary.LOWER:
                low, high = (middle + 1, high) if time < timestamp else (low, middle)
            else:
                low, high = (middle, high) if time <= timestamp else (low, middle - 1)
        return -1

    # --- units ---------------------------------------------------------------------------------

    def _first_of(self, run: UnitRun) -> int:
        """Return the first unit of a file that is not below the queue's lowest offset."""
        return min(max(run.first, self._min_offset), run.last)

    def _held(self, index: int) -> bool:
        return self._units.physical_at(index) >= self._log.min_offset


def _nearer(
    timestamp: int, left: tuple[int | None, int], right: tuple[int | None, int], run: UnitRun
) -> int:
    if left[0] is None or left[1] == -1:
        # Without any unit that is not too old: the last one before the file.
        return right[0] if right[0] is not None else max(run.first - 1, 0)
    if right[0] is None:
        return left[0]
    return right[0] if abs(timestamp - left[1]) > abs(timestamp - right[1]) else left[0]
