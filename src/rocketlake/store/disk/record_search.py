"""The search for the next record of a log among bytes that are not one."""

from collections.abc import Callable, Iterable
from typing import Final

from rocketlake.format import layout
from rocketlake.format.record import scan
from rocketlake.store.disk.log import is_record_at
from rocketlake.store.disk.search_budget import SearchBudget

_WINDOW: Final = 1 << 20
MAGICS: Final = tuple(
    magic.to_bytes(4, "big", signed=True) for magic in (layout.MAGIC_V1, layout.MAGIC_V2)
)


def next_record(
    read: Callable[[int, int], bytes],
    written: Iterable[tuple[int, int]],
    bounds: tuple[int, int],
    *,
    checks: int,
    budget: SearchBudget,
) -> int | None:
    """Return the first good record of one file that claims the very place where it begins.

    `read` returns bytes at an offset of the log; `written` are the ranges of the file that may hold
    data. The record begins and ends within `bounds`.
    """
    first, end = bounds
    for start, stop in written:
        # A record may begin with zeros, in a part where there are only zeros.
        offset = max(first, start - layout.BLANK_HEADER_SIZE)
        while offset < stop:
            data = read(offset, min(_WINDOW, stop - offset))
            if len(data) < layout.RECORD_MIN_SIZE:
                break
            for at in _magic_places(data):
                place = offset + at
                size = int.from_bytes(data[at : at + 4], "big", signed=True)
                if not layout.RECORD_MIN_SIZE <= size <= end - place:
                    continue
                head = data[at : at + layout.RECORD_BORN_HOST_AT]
                if len(head) == layout.RECORD_BORN_HOST_AT and not is_record_at(head, place):
                    continue
                if not budget.takes(size):
                    continue
                found = scan(read(place, size), base_offset=place, checks=checks, rows_max=1)
                if len(found.columns):
                    return place
            offset += max(len(data) - layout.BLANK_HEADER_SIZE, 1)
    return None


def _magic_places(data: bytes) -> list[int]:
    """Return where records may begin in bytes, by their magic numbers."""
    places = []
    for magic in MAGICS:
        at = data.find(magic, 4)
        while at >= 0:
            places.append(at - 4)
            at = data.find(magic, at + 1)
    return sorted(places)
