"""A walk of the log past damage: on to the next record that claims its very place.

So what is found does not depend on where partitions were cut.
"""

from collections.abc import Iterator

from msgspec import Struct

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format.record import StopReason
from rocketlake.store.disk.log import Chunk, LogView, Stop
from rocketlake.store.recovery.log_end import search


class Gap(Struct, frozen=True):
    """Bytes of the log that are not a good record, and why."""

    file: OffsetFile
    physical_offset: int
    reason: StopReason
    size: int

    @property
    def file_position(self) -> int:
        """The byte of the file."""
        return self.physical_offset - self.file.base_offset

    def as_stop(self) -> Stop:
        """Return the same as what stops a walk."""
        return Stop(self.file, self.physical_offset, self.reason)


def walk_past(log: LogView, begin: int, end: int, checks: int) -> Iterator[Chunk | Gap]:
    """Yield the records from `begin` to `end`, and every gap between them."""
    position: int | None = begin
    while position is not None and position < end:
        again: int | None = None
        stop: Stop | None = None
        for step in log.walk(position, end, checks=checks):
            if stop is not None:
                if step.file.base_offset != stop.file.base_offset:
                    again = _behind(log, stop, end)
                    if again is not None:
                        break
                yield _gap(stop, min(_begin_of(step), _file_end(stop, end)))
                stop = None
            if isinstance(step, Stop):
                stop = step
            else:
                yield step
        if stop is not None:
            again = again if again is not None else _behind(log, stop, end)
            yield _gap(stop, again if again is not None else _file_end(stop, end))
        position = again


def _behind(log: LogView, stop: Stop, end: int) -> int | None:
    """Return where the file goes on behind what stopped the walk; None if it does not."""
    found = search(log, stop.file, stop.physical_offset + 1)
    return found if found is not None and found < end else None


def _gap(stop: Stop, end: int) -> Gap:
    return Gap(stop.file, stop.physical_offset, stop.reason, end - stop.physical_offset)


def _file_end(stop: Stop, end: int) -> int:
    return min(stop.file.base_offset + stop.file.size, end)


def _begin_of(step: Chunk | Stop) -> int:
    if isinstance(step, Stop):
        return step.physical_offset
    return int(step.columns.rows[0]["physical_offset"])
