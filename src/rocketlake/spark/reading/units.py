"""Queue units by index, on the driver and on an executor.

A queue's files are found by name alone, so that a partition of ten thousand queues stays small.
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.format import layout, names
from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import (
    BATCHED,
    PLACE_DTYPE,
    PLAIN,
    Places,
    QueueView,
    Readers,
    UnitKind,
)

BLOCK: Final = 3276
"""Units that one read of 64 KiB brings."""

_PLACE: Final = struct.Struct(">qi")  # what units of both kinds begin with

Numbers = npt.NDArray[np.int64]


class UnitRun(Struct, frozen=True):
    """Units of one queue that follow each other in its files; indexes as in `QueueView`."""

    topic: str
    queue_id: int
    is_batch: bool
    file_size: int
    from_index: int
    to_index: int

    @classmethod
    def of(cls, queue: QueueView, from_index: int, to_index: int) -> "UnitRun":
        """Return a run of a queue's units."""
        key, is_batch = queue.key, queue.kind.is_batch
        return cls(key.topic, key.queue_id, is_batch, queue.file_size, from_index, to_index)

    def __len__(self) -> int:
        return self.to_index - self.from_index

    @property
    def key(self) -> QueueKey:
        """The queue."""
        return QueueKey(self.topic, self.queue_id)

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return layout.BATCH_UNIT_SIZE if self.is_batch else layout.UNIT_SIZE

    @property
    def kind(self) -> UnitKind:
        """What its units look like."""
        return BATCHED if self.is_batch else PLAIN


class UnitFiles:
    """Reads units of a store's queues.

    `views` are the queues as the driver has them open: units that are in memory are not read again.
    """

    def __init__(
        self,
        root: str | Path,
        readers: Readers,
        views: Mapping[QueueKey, QueueView] | None = None,
    ) -> None:
        self._root = str(root)
        self._readers = readers
        self._views = views or {}
        self._paths: dict[tuple[bool, str, int, int], Path] = {}

    def path(self, run: UnitRun, index: int) -> tuple[Path, int]:
        """Return the file of a unit, and its position there."""
        per_file = run.file_size // run.unit_size
        number, rest = divmod(index, per_file)
        key = (run.is_batch, run.topic, run.queue_id, number)
        path = self._paths.get(key)  # making a path takes longer than reading a unit
        if path is None:
            family = names.BATCH_CONSUME_QUEUE if run.is_batch else names.CONSUME_QUEUE
            name = names.offset_name(number * run.file_size)
            path = Path(f"{self._root}/{family}/{run.topic}/{run.queue_id}/{name}")
            self._paths[key] = path
        return path, rest * run.unit_size

    def raw(self, run: UnitRun) -> bytes | None:
        """Return the units of a run as they are on the disk; None if no one file has them all."""
        view = self._views.get(run.key) if self._views else None
        held = view.held(run.from_index, run.to_index) if view is not None else None
        return held or self._raw_read(run, run.from_index, len(run))

    def _raw_read(self, run: UnitRun, index: int, count: int) -> bytes | None:
        size = count * run.unit_size
        path, position = self.path(run, index)
        if position + size > run.file_size:
            return None
        found = self._readers.read(path, position, size)
        return found if len(found) == size else None

    def place_at(self, run: UnitRun, index: int) -> tuple[int, int] | None:
        """Return the physical offset and the size that a unit has; None if it is gone."""
        view = self._views.get(run.key) if self._views else None
        if view is not None:
            return view.place_at(index)
        unit = self._raw_read(run, index, 1)
        if unit is None:
            return None
        place: tuple[int, int] = _PLACE.unpack_from(unit)
        return place

    def read(self, run: UnitRun, index: int, count: int) -> Places:
        """Return up to `count` units from an index on, at most those of one file."""
        kind = run.kind
        path, position = self.path(run, index)
        size = min(count * kind.unit_size, run.file_size - position)
        raw = kind.decode(self._readers.read(path, position, size))
        return to_places(raw, np.arange(index, index + len(raw)), is_batch=run.is_batch)

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
        while high - low > BLOCK:
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


def to_places(raw: npt.NDArray[np.void], indexes: Numbers, *, is_batch: bool) -> Places:
    """Return units of one kind, each with the queue offset it stands for."""
    places = np.empty(len(raw), PLACE_DTYPE)
    for name in ("physical_offset", "size", "tags_code"):
        places[name] = raw[name]
    if is_batch:
        places["queue_offset"] = raw["base_queue_offset"]
        places["batch_size"] = np.maximum(raw["batch_size"], 1)
    else:
        places["queue_offset"] = indexes
        places["batch_size"] = 1
    return places


def is_prefill(units: Places) -> npt.NDArray[np.bool_]:
    """Mark the units that fill a queue before its first message."""
    mask: npt.NDArray[np.bool_] = (units["physical_offset"] == 0) & (
        units["size"] == layout.PREFILL_SIZE
    )
    return mask
