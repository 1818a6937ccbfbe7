"""One index file by itself: header, slots, chains and the order of its entries."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.format import layout
from rocketlake.format.index import ENTRY_DTYPE
from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.store_layout import IndexPlace

_READ: Final = 8 << 20
_FAULTS_MAX: Final = 1000  # of one file; the rest is only counted
_NOT_ZERO: Final = "bytes that are not zero where no entry is"

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def check_index_file(
    place: IndexPlace,
    on_bytes: Callable[[int], None] | None = None,
    ops: FileOps | None = None,
) -> list[Fault]:
    """Check one file, and return what is wrong with it."""
    readers = Readers(ops or PosixFileOps())
    try:
        return _IndexPiece(place, readers).run()
    finally:
        readers.close()
        if on_bytes is not None:
            on_bytes(place.size)


def find_starts(place: IndexPlace, bases: list[int], ops: FileOps | None = None) -> list[int]:
    """Return, for each file of the log, the first entry of a record in it or behind.

    `bases` are the offsets where the files of the log begin.
    """
    readers = Readers(ops or PosixFileOps())
    try:
        ordered = _without_outliers(_entries(place, readers, "physical_offset")[0])
    finally:
        readers.close()
    starts: list[int] = (np.searchsorted(ordered, np.array(bases, np.int64)) + 1).tolist()
    return starts


def _entries(place: IndexPlace, readers: Readers, *fields: str) -> list[Any]:
    """Read fields of all entries, part by part; no wider than they are in the file."""
    begin, end = place.position(1), min(place.position(place.count), place.size)
    step = _READ // layout.INDEX_ENTRY_SIZE * layout.INDEX_ENTRY_SIZE
    kinds = [ENTRY_DTYPE[name].newbyteorder("=") for name in fields]
    parts: list[list[npt.NDArray[Any]]] = [[np.empty(0, kind)] for kind in kinds]
    for position in range(begin, end, step):
        data = readers.read(place.path, position, min(step, end - position))
        entries = np.frombuffer(data, ENTRY_DTYPE, len(data) // layout.INDEX_ENTRY_SIZE)
        for found, name, kind in zip(parts, fields, kinds, strict=True):
            found.append(entries[name].astype(kind))
    return [np.concatenate(found) for found in parts]


class _IndexPiece:
    def __init__(self, place: IndexPlace, readers: Readers) -> None:
        self._place = place
        self._readers = readers
        self._faults: list[Fault] = []
        self._more = 0

    def run(self) -> list[Fault]:
        """Check the file; a file in which everything is wrong gives a bounded number of faults."""
        self._check()
        if self._more:
            self._faults.append(self._made(0, f"{self._more} more faults are not listed"))
        return self._faults

    def _check(self) -> None:
        place = self._place
        if place.header.entry_count > place.count:
            self._fault(36, f"{place.header.entry_count - 1} entries do not fit into the file")
        if place.count <= 1:
            if not place.is_growing:
                self._check_empty()
                self._check_zeros(layout.INDEX_HEADER_SIZE)
            return
        fields = ("key_hash", "physical_offset", "previous")
        hashes, places, previous = _entries(place, self._readers, *fields)
        if len(hashes):
            self._check_order(places)
            self._check_chains(hashes, previous)
            self._check_header(places)
        self._check_zeros(place.position(0), place.position(1))
        if not place.is_growing:
            self._check_zeros(place.position(place.count))

    def _check_empty(self) -> None:
        """A file without entries repeats in its header where the one before it ended."""
        header = self._place.header
        times = (header.begin_timestamp, header.end_timestamp)
        places = (header.begin_physical_offset, header.end_physical_offset)
        before = self._place.before_end_timestamp
        is_good = len(set(times)) == len(set(places)) == 1 and header.slot_count == 0
        is_good = is_good and header.entry_count in (0, 1) and min(*times, *places) >= 0
        if not is_good or (before is not None and times[0] != max(before, 0)):
            self._fault(0, "the header of a file without entries names some")

    def _fault(self, position: int, text: str) -> None:
        if len(self._faults) < _FAULTS_MAX:
            self._faults.append(self._made(position, text))
        else:
            self._more += 1

    def _made(self, position: int, text: str) -> Fault:
        path = self._place.path
        reason = f"index file {path.name}: {text}"
        return Fault(str(path), position, reason, kind=Kind.INDEX, about=path.name)

    def _check_order(self, places: Int64s) -> None:
        for row in np.flatnonzero(places[1:] < places[:-1]).tolist():
            number = row + 2
            text = f"entry {number} points to {places[row + 1]}, the one before to {places[row]}"
            self._fault(self._place.position(number), text)

    def _check_header(self, places: Int64s) -> None:
        header = self._place.header
        if header.begin_physical_offset != places[0]:
            text = f"the header begins at {header.begin_physical_offset}, entry 1 at {places[0]}"
            self._fault(16, text)
        if header.end_physical_offset != places[-1] and not self._place.is_growing:
            text = (
                f"the header ends at {header.end_physical_offset}, entry {len(places)} at "
                f"{places[-1]}"
            )
            self._fault(24, text)

    # --- chains --------------------------------------------------------------------------------

    def _check_chains(self, hashes: Int32s, previous: Int32s) -> None:
        """Each entry is named once, by its slot or by a later entry of the same slot.

        That is the whole proof: a chain then goes down through all entries of its slot.
        """
        place, count = self._place, len(hashes)
        for row in np.flatnonzero(hashes < 0).tolist():
            self._fault(place.position(row + 1), f"entry {row + 1} has the hash {hashes[row]}")
        slot_of = hashes.astype(np.int64) % place.slots
        numbers = np.arange(1, count + 1, dtype=np.int64)
        chained = previous != 0
        good = (previous >= 0) & (previous < numbers)
        inside = np.where(good, previous, 0)
        good &= ~chained | (slot_of[np.maximum(inside - 1, 0)] == slot_of)
        self._tell_chains(previous, good)
        if place.is_growing:
            return  # slots name newer entries already
        named = np.bincount(inside[good & chained], minlength=count + 1)
        are_good = self._check_slots(slot_of, named)
        if good.all() and are_good:
            for number in np.flatnonzero(named[1:] != 1).tolist():
                text = f"entry {number + 1} is named {named[number + 1]} times by the chains"
                self._fault(place.position(number + 1), text)
        is_used = np.zeros(place.slots, np.bool_)
        is_used[slot_of] = True
        self._check_slot_count(int(np.count_nonzero(is_used)), count)

    def _check_slots(self, slot_of: Int64s, named: npt.NDArray[np.intp]) -> bool:
        """Check that slots name entries of their own, and count these."""
        heads = self._slots()
        used = np.flatnonzero(heads)
        values = heads[used].astype(np.int64)
        fits = (values > 0) & (values <= len(slot_of))
        fits[fits] &= slot_of[values[fits] - 1] == used[fits]
        for index in np.flatnonzero(~fits).tolist():
            slot = int(used[index])
            position = layout.INDEX_HEADER_SIZE + slot * layout.INDEX_SLOT_SIZE
            self._fault(position, f"slot {slot} names entry {values[index]}, which is not its own")
        named += np.bincount(values[fits], minlength=len(named))
        return bool(fits.all())

    def _tell_chains(self, previous: Int32s, good: npt.NDArray[np.bool_]) -> None:
        for row in np.flatnonzero(~good).tolist():
            text = f"entry {row + 1} is chained to {previous[row]}, which is not of its slot"
            self._fault(self._place.position(row + 1), text)

    def _check_slot_count(self, used: int, count: int) -> None:
        said = self._place.header.slot_count
        if said not in (used, count):  # 4.6 counts every entry
            self._fault(32, f"the header says that {said} slots are used, {used} are")

    def _slots(self) -> Int32s:
        place = self._place
        size = place.slots * layout.INDEX_SLOT_SIZE
        data = self._readers.read(place.path, layout.INDEX_HEADER_SIZE, size)
        return np.frombuffer(data, ">i4", len(data) // 4).astype(np.int32)

    def _check_zeros(self, begin: int, end: int | None = None) -> None:
        """Check that nothing is written behind the last entry, nor into entry 0."""
        path = self._place.path
        end = self._place.size if end is None else end
        for first, last in self._readers.ranges(path, begin, end):
            for position in range(first, last, _READ):
                data = self._readers.read(path, position, min(_READ, last - position))
                found = np.flatnonzero(np.frombuffer(data, np.uint8))
                if len(found):
                    self._fault(position + int(found[0]), _NOT_ZERO)
                    return


def _without_outliers(places: Int64s) -> Int64s:
    """Return the offsets with those smoothed away that leave the order of both neighbours."""
    if len(places) < 3:
        return np.maximum.accumulate(places) if len(places) else places
    found = places.copy()
    first, middle, last = places[:-2], places[1:-1], places[2:]
    out = (first <= last) & ((middle < first) | (middle > last))
    found[1:-1][out] = first[out]
    found[0] = min(found[0], found[1])
    return np.maximum.accumulate(found)


def strays_between(
    files: list[IndexPlace], begin: tuple[int, int], end: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield entries, by file and number, from a place of the index up to another."""
    file, entry = begin
    while (file, entry) < end and file < len(files):
        if entry >= files[file].count:
            file, entry = file + 1, 1
            continue
        yield file, entry
        entry += 1
