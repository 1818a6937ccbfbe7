"""Keys of records against the entries of the index, which stand in the order of the log."""

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlake.format import layout
from rocketlake.format.index import ENTRY_DTYPE
from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.findings import Fault, Kind
from rocketlake.upkeep.verify.store_layout import IndexPlace

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_PART: Final = 65_536
_AHEAD: Final = 64
_MANY: Final = 8
_TRIES_MAX: Final = 1000
_SWITCHES_MAX: Final = 100  # a store is not handed to and fro more often within a log file
_SECOND_MS: Final = 1000


class Keys(Struct, frozen=True):
    """Keys and tags of records, in the order of the log: four arrays of one length."""

    hashes: Int32s
    places: Int64s
    """Where the records begin."""
    times: Int64s
    """When they were stored."""
    is_tag: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.hashes)

    def first(self, count: int) -> "Keys":
        """Return the first ones."""
        return self._only(slice(count))

    def behind(self, count: int) -> "Keys":
        """Return them without the first ones."""
        return self._only(slice(count, None))

    def without_tags(self) -> "Keys":
        """Return those that every release indexes."""
        return self._only(~self.is_tag) if self.is_tag.any() else self

    def find_tag(self, entry: tuple[int, int]) -> int | None:
        """Return which of them is the tag that an entry, its hash and offset, stands for."""
        begin, end = np.searchsorted(self.places, [entry[1], entry[1] + 1]).tolist()
        same = self.is_tag[begin:end] & (self.hashes[begin:end] == entry[0])
        return begin + int(np.argmax(same)) if same.any() else None

    def _only(self, which: "slice | npt.NDArray[np.bool_]") -> "Keys":
        return Keys(self.hashes[which], self.places[which], self.times[which], self.is_tag[which])


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
    """Steps through the entries of all index files as keys come.

    RocketMQ 5.5 indexes the tag of a record behind its keys, earlier releases do not, and a store
    may have been written by both. So tags are expected until one is not there, and again from the
    first one on that is: what lacks is never a tag.
    """

    def __init__(
        self, files: list[IndexPlace], readers: Readers, start: tuple[int, int] = (0, 1)
    ) -> None:
        self._files = files
        self._readers = readers
        self._file, self._entry = start
        self._report = KeyReport()
        self._tries = 0
        self._last: set[tuple[int, int]] = set()  # hashes and offset of the last record seen
        self._has_tags = True
        self._switches = 0

    def finish(self) -> KeyReport:
        """Return what was found."""
        self._report.end = (self._file, self._entry)
        return self._report

    def take(self, keys: Keys) -> None:
        """Compare the next keys of the log with the next entries."""
        rest: Keys | None = keys
        while rest is not None and len(rest):
            rest = self._take_some(rest)
        plain = keys.without_tags()
        if len(plain):
            self._remember(plain.hashes, plain.places)

    def _take_some(self, keys: Keys) -> Keys | None:
        """Compare keys until all are done, or tags are met or missed: return what is left then."""
        chosen = keys if self._has_tags else keys.without_tags()
        done = 0
        while done < len(chosen) and self._tries < _TRIES_MAX:
            if not self._roll():
                self._lacks_behind(chosen.behind(done))
                return None
            file = self._files[self._file]
            count = min(len(chosen) - done, file.count - self._entry, _PART)
            entries = self._read(count)
            part = slice(done, done + len(entries))
            same = entries["key_hash"] == chosen.hashes[part]
            same &= entries["physical_offset"] == chosen.places[part]
            good = len(same) if same.all() else int(np.argmin(same))
            if good:
                self._confirm(entries[:good], chosen.times[done : done + good])
                done += good
            if good < len(same):
                entry = entries[good]
                left = self._switch(keys, chosen.behind(done), entry)
                if left is not None:
                    return left
                if done:
                    self._remember(chosen.hashes[:done], chosen.places[:done])
                done += self._realign(chosen.behind(done))
            elif not good:
                self._lacks_behind(chosen.behind(done))  # the file ends before its own count
                return None
        if self._has_tags or not self._roll():
            return None
        ahead = self._read(1)
        return self._switch(keys, chosen.behind(done), ahead[0]) if len(ahead) else None

    def _switch(self, keys: Keys, chosen: Keys, entry: npt.NDArray[np.void]) -> Keys | None:
        """Expect tags no longer, or from here on, if an entry says so; return what is left then."""
        if self._switches == _SWITCHES_MAX:
            return None
        there = (int(entry["key_hash"]), int(entry["physical_offset"]))
        if self._has_tags:
            plain = chosen.without_tags()
            is_next = not len(plain) or there == (int(plain.hashes[0]), int(plain.places[0]))
            if not chosen.is_tag[0] or not is_next:
                return None
            self._has_tags = False
            self._switches += 1
            return chosen
        tag = keys.find_tag(there)
        # The tag of a record comes before the keys of the next one.
        if tag is None or (len(chosen) and keys.places[tag] >= chosen.places[0]):
            return None
        self._has_tags = True
        self._switches += 1
        return keys.behind(tag)

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

    def _realign(self, keys: Keys) -> int:
        """Find where keys and entries agree again; return how many keys were passed."""
        file = self._files[self._file]
        self._tries += 1
        if self._tries == _TRIES_MAX:
            # Why: each look costs; an index of another log must not take hours.
            text = f"disagrees with the log too often; it is not compared from entry {self._entry}"
            self._fault(file.position(self._entry), f"{text} on")
            return len(keys)
        entries = self._read(min(_AHEAD, file.count - self._entry))
        there = [(int(e["key_hash"]), int(e["physical_offset"])) for e in entries]
        near = keys.first(_AHEAD)
        wanted = list(zip(near.hashes.tolist(), near.places.tolist(), strict=True))
        if len(there) > 1 and there[0][1] <= there[1][1]:
            before = int(np.searchsorted(keys.places, there[0][1]))
            if before > _MANY:
                self._lacks(keys.first(before))
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
                self._lacks(keys.first(passed))
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

    def _lacks(self, keys: Keys) -> None:
        places = keys.without_tags().places
        if not len(places):
            return
        missing = self._report.missing
        first, last = int(places[0]), int(places[-1])
        if missing and (missing[-1].file, missing[-1].entry) == (self._file, self._entry):
            missing[-1].count += len(places)
            missing[-1].last_physical = last
        else:
            missing.append(MissingKeys(len(places), first, last, self._file, self._entry))

    def _lacks_behind(self, keys: Keys) -> None:
        places = keys.without_tags().places
        if not len(places):
            return
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
    """Tell whether the rest begins alike, as far as it is readable."""
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
