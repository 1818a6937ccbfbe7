"""Which parts of the log the index files cover, so that the rest can be scanned."""

from collections.abc import Callable

from rocketlake.store.disk.index import Coverage, IndexView

_RACE = 4 << 20  # what a running dispatcher may have put into a queue, but not yet into the index


def cover(
    files: list[IndexView],
    *,
    log: tuple[int, int, int],
    trusted: Callable[[int], bool],
) -> Coverage:
    """Sort index files into those to search and the parts of the log to scan instead.

    `log` is its first byte, how far the queues reach, and its end. A file that is not `trusted`,
    or whose shape is unproven, has its part of the log scanned.
    """
    log_min, dispatched, log_end = log
    if not files:
        note = "there is no index: keys are found by scanning the log"
        return Coverage([], [(log_min, log_end)], [note] if log_end > log_min else [])
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
        if file.slots is None and file.header.entries_used:
            begin, end = _range(files, i, log_min, log_end)
            notes.append(
                f"the slot count of {file.path.name} cannot be proven (give maxHashSlotNum): keys "
                f"from offset {begin} to {end} are found by scanning the log"
            )
            scans.append((begin, end))
        else:
            kept.append(file)
    scans.append((_tail_start(files, dispatched, log_min), log_end))
    return Coverage(kept, [part for part in scans if part[0] < part[1]], notes)


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
    indexed = _within(files[-1].header.end_physical_offset, log_min, dispatched, log_min)
    return max(indexed, dispatched - _RACE, log_min) if dispatched >= 0 else log_min
