"""Keys of records against the entries of the index, which stand in the order of the log."""

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.format import layout
from rocketlake.format.index import ENTRY_DTYPE
from rocketlake.store.offline.log import Readers
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.places import IndexPlace

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_PART: Final = 65_536
_AHEAD: Final = 64
_MANY: Final = 8
_TRIES_MAX: Final = 1000
_SECOND_MS: Final = 1000


class MissingKeys(Struct):
    """Keys that the index lacks: how many, of which records, and where in the index."""

    count: int
    first_physical: int
    last_physical: int
    file: int
    entry: int


class KeyReport(Struct):
    """What the keys of a part of the log say about the index."""

    end: tuple[int, int] = (0, 1)
    """The index file and the entry behind the last one that a key confirmed."""
    confirmed: int = 0
    missing: list[MissingKeys] = field(default_factory=list)
    """Between entries."""
    behind: MissingKeys | None = None
    """Behind the last entry of the last file."""
    strays: list[tuple[int, int]] = field(default_factory=list)
    """Entries, by file and number, that no key of the records explains."""
    faults: list[Fault] = field(default_factory=list)


class KeyCursor:
    """Goes along the entries of all index files as keys come."""

    def __init__(
        self, files: list[IndexPlace], readers: Readers, start: tuple[int, int] = (0, 1)
    ) -> None:
        self._files = files
        self._readers = readers
        self._file, self._entry = start
        self._report = KeyReport()
        self._tries = 0
        self._last: set[tuple[int, int]] = set()  # hashes and offset of the last record seen

    def finish(self) -> KeyReport:
        """Return what was found."""
        self._report.end = (self._file, self._entry)
        return self._report

    def take(self, hashes: Int32s, places: Int64s, times: Int64s) -> None:
        """Compare the next keys of the log with the next entries."""
        done = 0
        while done < len(hashes) and self._tries < _TRIES_MAX:
            if not self._roll():
                self._lacks_behind(places[done:])
                return
            file = self._files[self._file]
            count = min(len(hashes) - done, file.count - self._entry, _PART)
            entries = self._read(count)
            part = slice(done, done + len(entries))
            same = entries["key_hash"] == hashes[part]
            same &= entries["physical_offset"] == places[part]
            good = len(same) if same.all() else int(np.argmin(same))
            if good:
                self._confirm(entries[:good], times[done : done + good])
                done += good
            if good < len(same):
                if done:
                    self._remember(hashes[:done], places[:done])
                done += self._realign(hashes[done:], places[done:])
            elif not good:
                self._lacks_behind(places[done:])  # the file ends before its own count
                return
        self._remember(hashes, places)

    def skip_to(self, place: int) -> None:
        """Pass over entries of records that cannot be read."""
        while self._roll():
            count = min(_PART, self._files[self._file].count - self._entry)
            entries = self._read(count)
            behind = entries["physical_offset"] >= place
            if not len(entries):
                return
            if behind.any():
                self._entry += int(np.argmax(behind))
                return
            self._entry += len(entries)

    def _roll(self) -> bool:
        """Go to the next file where one ends; False behind the last."""
        while self._file < len(self._files) and self._entry >= self._files[self._file].count:
            self._file, self._entry = self._file + 1, 1
        return self._file < len(self._files)

    def _read(self, count: int) -> npt.NDArray[np.void]:
        file = self._files[self._file]
        data = self._readers.read(
            file.path, file.position(self._entry), count * layout.INDEX_ENTRY_SIZE
        )
        return np.frombuffer(data, ENTRY_DTYPE, len(data) // layout.INDEX_ENTRY_SIZE)

    def _remember(self, hashes: Int32s, places: Int64s) -> None:
        last = int(places[-1])
        of_last = np.flatnonzero(places[-_AHEAD:] == last)
        self._last = {(int(hash_), last) for hash_ in hashes[-_AHEAD:][of_last]}

    # --- entries that fit ----------------------------------------------------------------------

    def _confirm(self, entries: npt.NDArray[np.void], times: Int64s) -> None:
        file = self._files[self._file]
        header = file.header
        begin = header.begin_timestamp
        diffs = np.clip((times - begin) // _SECOND_MS, 0, layout.MAX_I32)
        if begin <= 0:
            diffs[:] = 0
        wrong = entries["time_diff_s"] != diffs
        if self._entry == 1:
            wrong[0] = not self._first_fits(file, int(entries["time_diff_s"][0]), int(times[0]))
            if int(times[0]) != begin:
                self._fault(0, f"begins at {begin}, but its first record was stored at {times[0]}")
        for index in np.flatnonzero(wrong).tolist():
            number = self._entry + index
            seconds, time = int(entries["time_diff_s"][index]), int(times[index])
            self._fault(
                file.position(number),
                f"entry {number} says {seconds} s after the file's begin, its record was stored "
                f"{(time - begin) // _SECOND_MS} s after",
            )
        self._entry += len(entries)
        is_last = self._entry == file.count and not file.is_growing
        if is_last and int(times[-1]) != header.end_timestamp:
            text = f"ends at {header.end_timestamp}, but its last record was stored at {times[-1]}"
            self._fault(8, text)
        self._report.confirmed += len(entries)

    def _first_fits(self, file: IndexPlace, seconds: int, time: int) -> bool:
        """Tell whether the first entry counts from the end of the file before, as it must."""
        before = file.before_end_timestamp
        if before is None:
            return seconds >= 0  # that file may have expired
        if before <= 0:
            return seconds == 0
        return seconds == min(max(time - before, 0) // _SECOND_MS, layout.MAX_I32)

    def _fault(self, position: int, text: str) -> None:
        path = self._files[self._file].path
        reason = f"index file {path.name}: {text}"
        self._report.faults.append(
            Fault(str(path), position, reason, kind=Kind.INDEX, about=path.name)
        )

    # --- entries that do not -------------------------------------------------------------------

    def _realign(self, hashes: Int32s, places: Int64s) -> int:
        """Find where keys and entries agree again; return how many keys were passed."""
        file = self._files[self._file]
        self._tries += 1
        if self._tries == _TRIES_MAX:
            # Why: each look costs; an index of another log must not take hours.
            text = f"disagrees with the log too often; it is not compared from entry {self._entry}"
            self._fault(file.position(self._entry), f"{text} on")
            return len(hashes)
        entries = self._read(min(_AHEAD, file.count - self._entry))
        there = [(int(e["key_hash"]), int(e["physical_offset"])) for e in entries]
        wanted = list(zip(hashes[:_AHEAD].tolist(), places[:_AHEAD].tolist(), strict=True))
        if len(there) > 1 and there[0][1] <= there[1][1]:
            before = int(np.searchsorted(places, there[0][1]))
            if before > _MANY:
                self._lacks(places[:before])
                return before
        shift, passed = _meet(there, wanted)
        if shift and shift == passed:
            for index in range(shift):
                self._wrong_entry(there[index], wanted[index], index)
        else:
            for index in range(shift):
                if there[index] not in self._last and there[index] not in wanted[:passed]:
                    self._report.strays.append((self._file, self._entry + index))
            if passed:
                self._lacks(places[:passed])
        self._entry += shift
        return passed

    def _wrong_entry(self, there: tuple[int, int], wanted: tuple[int, int], index: int) -> None:
        if there == wanted:
            return
        number = self._entry + index
        if there[1] != wanted[1]:
            text = f"entry {number} points to {there[1]}, the key's record is at {wanted[1]}"
        else:
            text = f"entry {number} has the hash {there[0]}, the record at {there[1]} {wanted[0]}"
        self._fault(self._files[self._file].position(number), text)

    def _lacks(self, places: Int64s) -> None:
        missing = self._report.missing
        first, last = int(places[0]), int(places[-1])
        if missing and (missing[-1].file, missing[-1].entry) == (self._file, self._entry):
            missing[-1].count += len(places)
            missing[-1].last_physical = last
        else:
            missing.append(MissingKeys(len(places), first, last, self._file, self._entry))

    def _lacks_behind(self, places: Int64s) -> None:
        if self._report.behind is None:
            self._report.behind = MissingKeys(
                0, int(places[0]), int(places[0]), self._file, self._entry
            )
        self._report.behind.count += len(places)
        self._report.behind.last_physical = int(places[-1])


def _meet(there: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> tuple[int, int]:
    """Return how many of each must be passed until both go on alike; the fewest."""
    for total in range(1, len(there) + len(wanted) + 1):
        for shift in range(min(total, len(there)), -1, -1):
            passed = total - shift
            if passed <= len(wanted) and _go_on(there, wanted, shift, passed):
                return shift, passed
    return len(there), len(wanted)


def _go_on(
    there: list[tuple[int, int]], wanted: list[tuple[int, int]], shift: int, passed: int
) -> bool:
    """Tell whether what is left begins alike, as far as that can be seen."""
    rest, others = there[shift:], wanted[passed:]
    if rest and others:
        width = min(len(rest), len(others), 2)
        return rest[:width] == others[:width]
    if shift == passed:
        return True
    if shift or not rest:
        return False
    # Keys that no entry has, if the entries go on in order behind them.
    return rest[0][1] > wanted[-1][1] and (len(rest) < 2 or rest[0][1] <= rest[1][1])
