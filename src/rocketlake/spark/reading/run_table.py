"""RunTable: ranges of units of many queues as columns, and the reading of those units.

A store may have ten thousand queues, and a partition may have a range of every one. As columns,
ranges are cut by numpy on the driver and take a few bytes each in a pickled partition.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.spark.reading.units import UnitFiles, UnitRun, to_places
from rocketlake.store.offline import PLACE_DTYPE, PLAIN, Places

Numbers: TypeAlias = npt.NDArray[np.int64]

_LEVEL: Final = 1


class PackedRuns(Struct, frozen=True):
    """A table as bytes, and the names of its topics."""

    topics: tuple[str, ...]
    columns: bytes


class RunTable(Struct, frozen=True):
    """Runs of units, a row each; the columns are those of `UnitRun`."""

    topics: tuple[str, ...]
    codes: Numbers
    """The topic of each row, as its place in `topics`."""
    queue_ids: Numbers
    is_batch: Numbers
    file_sizes: Numbers
    begins: Numbers
    ends: Numbers

    @classmethod
    def of(cls, runs: Iterable[UnitRun]) -> "RunTable":
        """Return the table of some runs."""
        codes: dict[str, int] = {}
        rows = [
            (
                codes.setdefault(run.topic, len(codes)),
                run.queue_id,
                run.is_batch,
                run.file_size,
                run.from_index,
                run.to_index,
            )
            for run in runs
        ]
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        return cls(tuple(codes), *columns)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def counts(self) -> Numbers:
        """How many units each row has."""
        return self.ends - self.begins

    @property
    def queues(self) -> list[tuple[str, int]]:
        """The topic and the number of each row's queue."""
        topics = self.topics
        pairs = zip(self.codes.tolist(), self.queue_ids.tolist(), strict=True)
        return [(topics[code], queue_id) for code, queue_id in pairs]

    def runs(self) -> Iterator[UnitRun]:
        """Yield the rows one by one."""
        topics = self.topics
        columns = (self.codes, self.queue_ids, self.is_batch, self.file_sizes)
        both = zip(*(c.tolist() for c in (*columns, self.begins, self.ends)), strict=True)
        for code, queue_id, is_batch, file_size, begin, end in both:
            yield UnitRun(topics[code], queue_id, bool(is_batch), file_size, begin, end)

    def part(self, rows: Numbers, begins: Numbers, ends: Numbers) -> "RunTable":
        """Return some rows with other bounds, and no topic that they do not have."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return RunTable(
            tuple(self.topics[code] for code in used.tolist()),
            codes.astype(np.int64),
            self.queue_ids[rows],
            self.is_batch[rows],
            self.file_sizes[rows],
            begins,
            ends,
        )

    def pack(self) -> PackedRuns:
        """Return the table as a partition carries it."""
        columns = (
            np.diff(self.codes, prepend=0),
            self.queue_ids,
            self.is_batch,
            self.file_sizes,
            self.begins,
            self.counts,
        )
        data = b"".join(column.astype("<i8").tobytes() for column in columns)
        return PackedRuns(self.topics, zlib.compress(data, _LEVEL))

    @classmethod
    def unpack(cls, packed: PackedRuns) -> "RunTable":
        """Return the table that was packed."""
        rows = np.frombuffer(zlib.decompress(packed.columns), "<i8").reshape(6, -1)
        codes, queue_ids, is_batch, file_sizes, begins, counts = rows.astype(np.int64)
        codes = np.cumsum(codes)
        return cls(packed.topics, codes, queue_ids, is_batch, file_sizes, begins, begins + counts)


def concatenated(parts: Sequence[Numbers]) -> Numbers:
    """Return columns one behind the other."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


class LostUnits(Struct, frozen=True):
    """Units of one queue that cannot be read: their file is gone."""

    path: Path
    position: int
    reason: str
    messages: int


class ReadUnits(Struct, frozen=True):
    """Units, run by run, and those that cannot be read."""

    places: Places
    rows: Numbers
    """The run of each unit."""
    lost: list[LostUnits]


def read_units(files: UnitFiles, table: RunTable) -> ReadUnits:
    """Read the units of all runs; runs that lie in one file each are decoded together."""
    places: list[Places] = []
    rows: list[Numbers] = []
    lost: list[LostUnits] = []
    group: list[int] = []
    raws: list[bytes] = []
    for row, run in enumerate(table.runs()):
        raw = None if run.is_batch else files.raw(run)
        if raw is not None:
            group.append(row)
            raws.append(raw)
            continue
        places.append(_decoded(table, group, raws))
        rows.append(np.repeat(np.array(group, np.int64), table.counts[group]))
        group, raws = [], []
        units = files.all(run)
        lost += _lost(files, run, len(units))
        places.append(units)
        rows.append(np.full(len(units), row, np.int64))
    places.append(_decoded(table, group, raws))
    rows.append(np.repeat(np.array(group, np.int64), table.counts[group]))
    return ReadUnits(np.concatenate(places), concatenated(rows), lost)


def _decoded(table: RunTable, group: list[int], raws: list[bytes]) -> Places:
    if not group:
        return np.empty(0, PLACE_DTYPE)
    counts, begins = table.counts[group], table.begins[group]
    raw = PLAIN.decode(raws[0] if len(raws) == 1 else b"".join(raws))
    indexes = np.arange(len(raw)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return to_places(raw, indexes, is_batch=False)


def _lost(files: UnitFiles, run: UnitRun, count: int) -> list[LostUnits]:
    if count == len(run):
        return []
    found = []
    for begin, end in files.lost(run):
        path, position = files.path(run, begin)
        reason = f"units of {run.key} from {begin} to {end} are gone"
        found.append(LostUnits(path, position, reason, end - begin))
    return found
