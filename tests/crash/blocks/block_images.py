"""Images of a device whose power was cut: what it held at a moment, and what it made of the rest.

All writes before the last flush are there. Of those behind it any may be lost, in any order, and
each may be torn between two sectors. Of two writes to one sector the later one can be lost alone,
so applying a part of them in their order gives every outcome that a reordering device can have.
"""

import random
from collections.abc import Iterator, Sequence

from block_log import SECTOR, Disk, Entry, Flush, Write
from msgspec import Struct

FATES = ("none", "all", "few", "half", "most", "last", "tail", "torn", "torn", "torn")


class Cut(Struct, frozen=True, order=True):
    """A moment and a fate."""

    flush: int
    """Entries up to the last flush, which are durable."""
    at: int
    """Entries that the device had been given."""
    fate: str
    number: int
    """Makes the chances of this image."""

    def __str__(self) -> str:
        return f"{self.at}.{self.fate}.{self.number}"


def choose_cuts(entries: Sequence[Entry], first: int, count: int, rng: random.Random) -> list[Cut]:
    """Choose moments and fates: as many at flushes as between them."""
    flushes = [at for at, entry in enumerate(entries) if isinstance(entry, Flush)]
    found: set[Cut] = set()
    ends = [at for at in flushes if at >= first]
    for number in range(count * 4):
        is_flush = ends and rng.random() < 0.5
        at = rng.choice(ends) if is_flush else rng.randrange(first, len(entries) + 1)
        found.add(make_cut(entries, at, rng.choice(FATES), number))
        if len(found) == count:
            break
    return sorted(found)


def make_cut(entries: Sequence[Entry], at: int, fate: str, number: int) -> Cut:
    flush = at
    while flush and not isinstance(entries[flush - 1], Flush):
        flush -= 1
    if flush == at:
        fate, number = "all", 0  # nothing is left to chance
    elif fate in {"none", "all", "last"}:
        number = 0
    return Cut(flush, at, fate, number)


def images(disk: Disk, entries: Sequence[Entry], cuts: Sequence[Cut]) -> Iterator[tuple[Cut, Disk]]:
    """Go through sorted cuts; each image is good until the next one is asked for."""
    done = 0
    for cut in cuts:
        for entry in entries[done : cut.flush]:
            if isinstance(entry, Write):
                disk.write(entry.offset, entry.data)
        done = max(done, cut.flush)
        image = disk.fork()
        pending = [entry for entry in entries[cut.flush : cut.at] if isinstance(entry, Write)]
        for offset, data in survivors(pending, cut):
            image.write(offset, data)
        yield cut, image


def survivors(pending: Sequence[Write], cut: Cut) -> Iterator[tuple[int, bytes]]:
    """Return what of the pending writes reaches the medium."""
    rng = random.Random(f"{cut}")
    start = rng.randrange(len(pending)) if pending else 0
    for number, write in enumerate(pending):
        is_kept = {
            "none": False,
            "all": True,
            "few": rng.random() < 0.15,
            "half": rng.random() < 0.5,
            "most": rng.random() < 0.85,
            "last": number == len(pending) - 1,
            "tail": number >= start,
            "torn": rng.random() < 0.8,
        }[cut.fate]
        if is_kept and cut.fate == "torn":
            yield from _torn(write, rng)
        elif is_kept:
            yield write.offset, write.data


def _torn(write: Write, rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Keep a beginning, an end, or any sectors of a write."""
    count = len(write.data) // SECTOR
    way = rng.randrange(4)
    at = rng.randrange(count + 1)
    for number in range(count):
        is_kept = (True, number < at, number >= at, rng.random() < 0.5)[way]
        if is_kept:
            begin = number * SECTOR
            yield write.offset + begin, write.data[begin : begin + SECTOR]
