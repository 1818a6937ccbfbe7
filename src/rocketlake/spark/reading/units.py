"""Queue units by index, on the driver and on an executor, and where to cut them.

A queue's files are found by name alone, so that a partition of ten thousand queues stays small.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from rocketlake.format import layout, names
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline.log import Readers
from rocketlake.store.offline.queues import PLACE_DTYPE, Places
from rocketlake.store.unit_kind import BATCHED, PLAIN, UnitKind

_BLOCK: Final = 3276  # units that one read of 64 KiB brings
_SAMPLES: Final = 4096

Numbers = npt.NDArray[np.int64]


class UnitRun(Struct, frozen=True):
    """Units of one queue that follow each other in its files; indexes as in `QueueView`."""

    topic: str
    queue_id: int
    is_batch: bool
    file_size: int
    from_index: int
    to_index: int

    def __len__(self) -> int:
        return self.to_index - self.from_index

    @property
    def key(self) -> QueueKey:
        """The queue."""
        return QueueKey(self.topic, self.queue_id)

    @property
    def kind(self) -> UnitKind:
        """What its units look like."""
        return BATCHED if self.is_batch else PLAIN


class UnitFiles:
    """Reads units of a store's queues."""

    def __init__(self, root: str | Path, readers: Readers) -> None:
        self._root = Path(root)
        self._readers = readers
        self._paths: dict[tuple[bool, str, int, int], Path] = {}

    def path(self, run: UnitRun, index: int) -> tuple[Path, int]:
        """Return the file of a unit, and where in it the unit lies."""
        kind = run.kind
        per_file = run.file_size // kind.unit_size
        number, rest = divmod(index, per_file)
        seat = (run.is_batch, run.topic, run.queue_id, number)
        path = self._paths.get(seat)  # to make one takes longer than to read a unit
        if path is None:
            family = names.BATCH_CONSUME_QUEUE if run.is_batch else names.CONSUME_QUEUE
            name = names.offset_name(number * run.file_size)
            path = self._root / family / run.topic / str(run.queue_id) / name
            self._paths[seat] = path
        return path, rest * kind.unit_size

    def read(self, run: UnitRun, index: int, count: int) -> Places:
        """Return up to `count` units from an index on, at most those of one file."""
        kind = run.kind
        path, position = self.path(run, index)
        size = min(count * kind.unit_size, run.file_size - position)
        raw = kind.decode(self._readers.read(path, position, size))
        places = np.empty(len(raw), PLACE_DTYPE)
        for name in ("physical_offset", "size", "tags_code"):
            places[name] = raw[name]
        if run.is_batch:
            places["queue_offset"] = raw["base_queue_offset"]
            places["batch_size"] = np.maximum(raw["batch_size"], 1)
        else:
            places["queue_offset"] = np.arange(index, index + len(raw))
            places["batch_size"] = 1
        return places

    def pieces(self, run: UnitRun, count: int) -> Iterator[tuple[int, Places]]:
        """Yield the units of a run with their first index; those of a file that is gone are not."""
        index = run.from_index
        while index < run.to_index:
            units = self.read(run, index, min(count, run.to_index - index))
            if len(units):
                yield index, units
            index = index + len(units) if len(units) else self._pass_over(run, index)

    def lost(self, run: UnitRun) -> list[tuple[int, int]]:
        """Return the ranges of indexes whose files are gone."""
        lost = []
        index = run.from_index
        while index < run.to_index:
            behind = self._behind(run, index)
            if not len(self.read(run, behind - 1, 1)):
                behind = self._pass_over(run, index)
                lost.append((index, behind))
            index = behind
        return lost

    def _pass_over(self, run: UnitRun, index: int) -> int:
        """Return the first unit behind the file of another one that a file holds; or the end.

        Why: the names of two queue files can be arbitrarily far apart. One by one, missing files
        could be passed for years.
        """
        directory = self.path(run, index)[0].parent
        starts = [
            base // run.kind.unit_size
            for name in self._readers.names_in(directory)
            if (base := names.parse_offset_name(name)) is not None
        ]
        behind = self._behind(run, index)
        per_file = run.file_size // run.kind.unit_size
        held = (max(start, behind) for start in starts if start + per_file > behind)
        return min(min(held, default=run.to_index), run.to_index)

    def _behind(self, run: UnitRun, index: int) -> int:
        """Return the end of the file that a unit is in, or of the run."""
        per_file = run.file_size // run.kind.unit_size
        return min((index // per_file + 1) * per_file, run.to_index)

    def all(self, run: UnitRun) -> Places:
        """Return the units of a run; those of files that are gone are left out."""
        found = [units for _, units in self.pieces(run, len(run))]
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty(0, PLACE_DTYPE)

    def _rising(self, run: UnitRun, index: int, count: int) -> Numbers:
        """Return physical offsets of some units, none below the one before."""
        units = self.read(run, index, count)["physical_offset"]
        return np.maximum.accumulate(units)

    def index_at(self, run: UnitRun, low: int, physical_offset: int) -> int:
        """Return the first unit from `low` on whose record lies at an offset or behind.

        Whatever the units hold, the answer is an index of the run, or its end.
        """
        high = run.to_index
        while high - low > _BLOCK:
            middle = (low + high) // 2
            unit = self.read(run, middle, 1)
            if len(unit) and int(unit["physical_offset"][0]) >= physical_offset:
                high = middle
            else:
                low = middle + 1
        while low < high:
            offsets = self._rising(run, low, high - low)
            if not len(offsets):
                return high
            at = int(np.searchsorted(offsets, physical_offset))
            low += at
            if at < len(offsets):
                break
        return low


def is_prefill(units: Places) -> npt.NDArray[np.bool_]:
    """Mark the units that fill a queue before its first message."""
    mask: npt.NDArray[np.bool_] = (units["physical_offset"] == 0) & (
        units["size"] == layout.PREFILL_SIZE
    )
    return mask


class Weights(Struct, frozen=True):
    """Bytes of wanted records along the log: how many lie before each offset, roughly."""

    offsets: Numbers
    before: npt.NDArray[np.float64]

    @property
    def total(self) -> int:
        """All of them."""
        return int(self.before[-1]) if len(self.before) else 0

    def cuts(self, pieces: int) -> list[int]:
        """Return physical offsets that divide the bytes evenly; fewer if they would be equal."""
        if pieces <= 1 or self.total <= 0:
            return []
        wanted = np.arange(1, pieces) * (self.before[-1] / pieces)
        found = np.interp(wanted, self.before, self.offsets).astype(np.int64)
        return sorted(set(found.tolist()))


def weigh(files: UnitFiles, runs: Sequence[UnitRun]) -> Weights:
    """Sample the units of each run; between two samples its records are taken to lie evenly."""
    per_run = max(2, min(64, _SAMPLES // max(len(runs), 1)))
    begins: list[float] = []
    ends: list[float] = []
    sums: list[float] = []
    for run in runs:
        indexes = np.unique(np.linspace(run.from_index, run.to_index - 1, per_run).astype(np.int64))
        known = [(int(i), unit[0]) for i in indexes if len(unit := files.read(run, int(i), 1))]
        for (i, a), (j, b) in zip(known, [*known[1:], (run.to_index, None)], strict=True):
            begin, size = int(a["physical_offset"]), max(int(a["size"]), 1)
            end = int(b["physical_offset"]) if b is not None else begin + size
            begins.append(begin)
            ends.append(max(end, begin + 1))
            sums.append(float((j - i) * size))
    if not begins:
        return Weights(np.empty(0, np.int64), np.empty(0, np.float64))
    first, last, weight = np.array(begins), np.array(ends), np.array(sums)
    density = weight / (last - first)
    places = np.concatenate([first, last])
    order = np.argsort(places, kind="stable")
    slope = np.cumsum(np.concatenate([density, -density])[order])
    places = places[order]
    before = np.concatenate([[0.0], np.cumsum(np.maximum(slope[:-1], 0.0) * np.diff(places))])
    return Weights(places.astype(np.int64), before)


def split(files: UnitFiles, runs: Sequence[UnitRun], cuts: Sequence[int]) -> list[list[UnitRun]]:
    """Cut every run at the same physical offsets; each unit is in exactly one piece."""
    pieces: list[list[UnitRun]] = [[] for _ in range(len(cuts) + 1)]
    for run in runs:
        begin = run.from_index
        for number, end in enumerate((*_indexes(files, run, cuts), run.to_index)):
            if end > begin:
                pieces[number].append(replace(run, from_index=begin, to_index=end))
                begin = end
    return [piece for piece in pieces if piece]


def _indexes(files: UnitFiles, run: UnitRun, cuts: Sequence[int]) -> list[int]:
    if len(run) <= _BLOCK:
        units = files.all(run)
        if len(units) == len(run):
            rising = np.maximum.accumulate(units["physical_offset"])
            found = np.searchsorted(rising, np.array(cuts, np.int64)) + run.from_index
            return [int(index) for index in found]
    indexes = []
    low = run.from_index
    for cut in cuts:
        low = files.index_at(run, low, cut)
        indexes.append(low)
    return indexes
