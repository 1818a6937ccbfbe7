"""The end of a log that is read past its damage: behind the last record that is proven.

A start of the store cuts the log at the first bad record. A reader that passes damage goes on
behind it, at the next record that is whole and claims its very place.

1. Bytes behind the end may be left from before an earlier cut: RocketMQ writes over them without
   clearing them. Such a record is older than those before the damage, and no unit points to it.
2. After a clean stop a unit proves that its message was in the log, even if its record is lost.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from rocketlake.store.disk.log import WINDOW, Chunk, LogView
from rocketlake.store.offline.gaps import Gap, walk_past
from rocketlake.store.recovery.log_end import Tail

_COMPARED: Final = 16  # records whose times are looked at: one of them may be anything
_CLOCK_SET_BACK_MS: Final = 1000  # less than a broker needs to start again
_DAY_MS: Final = 86_400_000


class Times(Struct):
    """The store time of the last record of a walk that has a likely one."""

    last: int | None = None

    def take(self, chunk: Chunk) -> None:
        """Note the records of a chunk."""
        times = chunk.columns["store_timestamp"][-_COMPARED:]
        # Why: no record was stored after its file was written.
        likely = times[times <= chunk.file.mtime_ms + _DAY_MS]
        if len(likely):
            self.last = int(likely[-1])

    def are_before(self, chunk: Chunk) -> bool:
        """Tell whether a chunk was stored later, as what was appended later must be."""
        found = chunk.columns["store_timestamp"][:_COMPARED]
        return self.last is None or int(found.max()) >= self.last - _CLOCK_SET_BACK_MS


class WrittenEnd(Struct, frozen=True):
    """Where a log ends, and the gaps before that end."""

    tail: Tail
    gaps: tuple[Gap, ...] = ()


def find_written_end(
    log: LogView, tail: Tail, checks: int, *, times: Times, held_to: int
) -> WrittenEnd:
    """Go on behind the damage that ended a walk.

    Args:
        log: the files.
        tail: where the walk ended.
        checks: what a record must pass to be taken as good.
        times: of the records before that end.
        held_to: how far units prove the log to reach; -1 if they prove nothing.
    """
    gaps: list[Gap] = []
    found: list[Gap] = []
    end, stop = tail.end_offset, tail.stop
    for step in walk_past(log, end, log.limit, checks):
        if isinstance(step, Gap):
            found.append(step)
            continue
        first, last = step.columns.rows[0], step.columns.rows[-1]
        is_held = int(first["physical_offset"]) < held_to
        if found and not is_held and not times.are_before(step):
            break
        gaps += found
        found.clear()
        times.take(step)
        end = int(last["physical_offset"] + last["size"])
    if held_to > end and any(_written(log, end, held_to)):
        gaps += (_cut(gap, held_to) for gap in found if gap.physical_offset < held_to)
        found = [gap for gap in found if gap.physical_offset >= held_to]
        end = held_to
    if end > tail.end_offset:
        stop = found[0].as_stop() if found else None
    return WrittenEnd(Tail(end, tail.started_at, stop, tail.passed), tuple(gaps))


def _cut(gap: Gap, end: int) -> Gap:
    size = min(gap.size, end - gap.physical_offset)
    return Gap(gap.file, gap.physical_offset, gap.reason, size)


def _written(log: LogView, begin: int, end: int) -> Iterable[bool]:
    """Yield whether the parts of a range hold anything but zeros."""
    for file in log.files:
        low, high = max(begin, file.base_offset), min(end, file.base_offset + file.size)
        for start, stop in log.written_ranges(low, high) if low < high else ():
            for at in range(start, stop, WINDOW):
                yield any(log.read(at, min(WINDOW, stop - at)))
