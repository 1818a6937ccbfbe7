"""How many slots a damaged index file has: the count that makes most of its chains consistent."""

from typing import Final

import numpy as np

from rocketlake.format import layout
from rocketlake.format.index import ENTRY_DTYPE, IndexHeader, entry_position

GUESS_MAX: Final = 64 << 20  # beyond this, damage must not cost minutes
_LEAST: Final = 0.6  # of the entries
_WORK_MAX: Final = 10_000_000  # entries that are looked at for all slot counts together


def guess_slots(data: bytes) -> int | None:
    """Return the likely slot count of a whole file; None if nothing is likely.

    A whole file proves its count (`format.index.find_slots`). One with a few wrong bytes still has
    most entries chained as one count makes them, and no other.
    """
    if not layout.INDEX_HEADER_SIZE < len(data) <= GUESS_MAX:
        return None
    header = IndexHeader.decode(data)
    scores = {slots: _score(data, header, slots) for slots in _candidates(data, header)}
    best = sorted(scores, key=lambda slots: scores[slots], reverse=True)[:2]
    if not best or scores[best[0]] < _LEAST:
        return None
    if len(best) > 1 and scores[best[0]] == scores[best[1]]:
        return None
    return best[0]


def _candidates(data: bytes, header: IndexHeader) -> list[int]:
    """Return the slot counts under which the first or the last entry is the header's."""
    room = len(data) - layout.INDEX_HEADER_SIZE
    if room % layout.INDEX_SLOT_SIZE:
        return []
    # Why: slots * 4 + entries * 20 is fixed, so possible counts step by 5.
    first = room // layout.INDEX_SLOT_SIZE % 5 or 5
    start = entry_position(first, 1)
    count = max(len(data) - start, 0) // layout.INDEX_ENTRY_SIZE
    if not count:
        return []
    places = np.frombuffer(data, ENTRY_DTYPE, count, start)["physical_offset"]
    fits = places == header.begin_physical_offset
    last = header.entries_used - 1
    if 0 <= last < count:
        fits[: count - last] |= places[last:] == header.end_physical_offset
    tries = min(1000, _WORK_MAX // max(min(header.entries_used, count), 1))
    return [first + 5 * int(i) for i in np.flatnonzero(fits)[:tries]]


def _score(data: bytes, header: IndexHeader, slots: int) -> float:
    """Return the share of entries that are chained as this count chains them."""
    start = entry_position(slots, 1)
    room = max(len(data) - start, 0) // layout.INDEX_ENTRY_SIZE
    used = np.frombuffer(data, ENTRY_DTYPE, min(max(header.entries_used, 0), room), start)
    if not len(used):
        return 0.0
    newest: dict[int, int] = {}
    good = 0
    pairs = zip(used["key_hash"].tolist(), used["previous"].tolist(), strict=True)
    for number, (hash_, previous) in enumerate(pairs, 1):
        slot = hash_ % slots
        good += previous == newest.get(slot, 0)
        newest[slot] = number
    table = np.frombuffer(data, ">i4", slots, layout.INDEX_HEADER_SIZE)
    good += sum(int(table[slot]) == number for slot, number in newest.items())
    return good / (len(used) + len(newest))
