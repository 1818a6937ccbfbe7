"""Which parts of the log the index files cover, so that the rest can be scanned.

1. A file speaks of the log from its first indexed record to its last. What lies between two files,
   or before the first, is scanned unless the one's last record is followed by the other's first:
   a file may be gone, or its header.
2. A file is filled before the next is made: none is missing behind the last one if that has room.
"""

from collections.abc import Callable

from rocketlake.format import index as index_format
from rocketlake.format import layout
from rocketlake.store.disk.index import Coverage, IndexView
from rocketlake.store.disk.log import Chunk, LogView

_LOOKED_AT = 64 << 10  # bytes between two files; more are scanned
_RACE = 4 << 20  # what a running dispatcher may have put into a queue, but not yet into the index


def cover(
    found: list[IndexView],
    log: LogView,
    *,
    dispatched: int,
    log_end: int,
    trusted: Callable[[int], bool],
) -> Coverage:
    """Sort index files into those to search and the parts of the log to scan instead.

    The queues reach to `dispatched`. A file that is not `trusted`, or whose shape is unproven, has
    its part of the log scanned.
    """
    log_min = log.min_offset
    files = [file for file in found if file.header.entries_used > 0]  # the others say nothing
    if not files:
        note = "there is no index: keys are found by scanning the log"
        is_told = log_end > log_min and not found
        return Coverage([], [(log_min, log_end)], [note] if is_told else [])
    kept: list[IndexView] = []
    scans: list[tuple[int, int]] = []
    notes: list[str] = []
    for i, file in enumerate(files):
        if not trusted(file.header.end_timestamp):
            begin = files[i - 1].header.end_physical_offset if i else log_min
            notes.append(
                f"{file.path.name} may be incomplete after the unclean stop: keys from offset "
                f"{max(begin, log_min)} on are found by scanning the log"
            )
            scans.append((max(begin, log_min), log_end))
            return Coverage(kept, scans, notes)
        if file.slots is None:
            begin, end = _range(files, i, log_min, log_end)
            notes.append(
                f"the slot count of {file.path.name} cannot be proven (give maxHashSlotNum): keys "
                f"from offset {begin} to {end} are found by scanning the log"
            )
            scans.append((begin, end))
        else:
            kept.append(file)
        gap = _gap_before(files, i, log, log_end)
        if gap is not None:
            notes.append(
                f"no index file speaks of the log from {gap[0]} to {gap[1]}: keys there are found "
                "by scanning it"
            )
            scans.append(gap)
    scans.append((_tail_start(files, dispatched, log_min), log_end))
    return Coverage(kept, [part for part in scans if part[0] < part[1]], notes)


def _gap_before(
    files: list[IndexView], i: int, log: LogView, log_end: int
) -> tuple[int, int] | None:
    """Return the part of the log between one file and the one before; None if there is none."""
    end = min(files[i].header.begin_physical_offset, log_end)
    begin = files[i - 1].header.end_physical_offset if i else log.min_offset
    if begin < log.min_offset:
        begin = log.min_offset
    elif i and begin < end:
        begin = _behind(log, begin)
    return (begin, end) if begin < end and not _has_no_keys(log, begin, end) else None


def _has_no_keys(log: LogView, begin: int, end: int) -> bool:
    """Tell whether a small part of the log surely has no record that an index would name."""
    if end - begin > _LOOKED_AT:
        return False
    for step in log.walk(begin, end):
        if not isinstance(step, Chunk):
            return False
        if any(m.keys or m.unique_key for m in step.columns.messages()):
            return False
    return True


def _behind(log: LogView, offset: int) -> int:
    """Return where the record behind another one begins; a blank that ends a file is passed."""
    size = max(int.from_bytes(log.read(offset, 4), "big", signed=True), 0)
    head = log.read(offset + size, layout.BLANK_HEADER_SIZE)
    if int.from_bytes(head[4:8], "big", signed=True) == layout.MAGIC_BLANK:
        size += max(int.from_bytes(head[:4], "big", signed=True), 0)
    return offset + size


def _range(files: list[IndexView], i: int, log_min: int, log_end: int) -> tuple[int, int]:
    """Return the part of the log that one file speaks of."""
    before = files[i - 1].header.end_physical_offset if i else log_min
    after = files[i + 1].header.begin_physical_offset if i + 1 < len(files) else log_end
    begin = min(files[i].header.begin_physical_offset, before)
    return _within(begin, log_min, log_end, log_min), _within(after, log_min, log_end, log_end)


def _within(offset: int, log_min: int, log_end: int, otherwise: int) -> int:
    """Return an offset of the log; another if a damaged header names none."""
    return offset if log_min <= offset <= log_end else otherwise


def _tail_start(files: list[IndexView], dispatched: int, log_min: int) -> int:
    """Return where the part begins that may not have reached the index yet."""
    last = files[-1]
    indexed = _within(last.header.end_physical_offset, log_min, dispatched, log_min)
    if dispatched < 0 or _is_full(last):
        return max(indexed, log_min) if dispatched >= 0 else log_min
    return max(indexed, dispatched - _RACE, log_min)


def _is_full(file: IndexView) -> bool:
    """Tell whether a file has no room: what came behind is in a file that may be gone."""
    if file.slots is None:
        return True
    return file.header.entry_count >= (index_format.entries_for(file.size, file.slots) or 0)
