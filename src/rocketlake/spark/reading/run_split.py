"""Cuts the units of many queues so that each partition is a range of the log.

Units of small runs are read once for all cuts, and divided in columns. Runs that are large, whose
units do not rise, or that lost a file are cut one by one, by search.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.spark.reading.run_table import Numbers, RunTable, concatenated
from rocketlake.spark.reading.units import BLOCK, UnitFiles, UnitRun
from rocketlake.store.offline import PLAIN

_SAMPLES: Final = 4096
_GROUP: Final = 1 << 19  # units that are divided at a time
_READ_UNITS: Final = 1 << 16
_SEARCH_UNITS: Final = 2048
"""Units of a large run whose reading costs as much as the search for one cut."""


class Weights(Struct, frozen=True):
    """The estimated bytes of selected records before each offset of the log."""

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


def weigh(files: UnitFiles, table: RunTable) -> Weights:
    """Sample the units of each run; records are assumed to be evenly spread between samples."""
    per_run = max(2, min(64, _SAMPLES // max(len(table), 1)))
    rows: list[int] = []
    indexes: list[int] = []
    places: list[tuple[int, int]] = []
    for row, run in enumerate(table.runs()):
        for index in _sampled(run, per_run):
            place = files.place_at(run, index)
            if place is not None:
                rows.append(row)
                indexes.append(index)
                places.append(place)
    if not rows:
        return Weights(np.empty(0, np.int64), np.empty(0, np.float64))
    return _weights(np.array(rows), np.array(indexes), np.array(places), table.ends)


def _sampled(run: UnitRun, count: int) -> Sequence[int]:
    last = run.to_index - 1
    if count == 2 or len(run) <= 2:
        return (run.from_index, last) if last > run.from_index else (last,)
    step = (last - run.from_index) / (count - 1)
    return sorted({run.from_index + int(number * step) for number in range(count - 1)} | {last})


def _weights(rows: Numbers, indexes: Numbers, places: Numbers, run_ends: Numbers) -> Weights:
    """Return the bytes along the log of samples: row, index, and physical offset with size."""
    begins, sizes = places[:, 0].astype(np.float64), np.maximum(places[:, 1], 1)
    is_last = np.append(rows[1:] != rows[:-1], True)
    following = np.append(begins[1:], 0.0)
    ends = np.maximum(np.where(is_last, begins + sizes, following), begins + 1)
    counts = np.where(is_last, run_ends[rows], np.append(indexes[1:], 0)) - indexes
    density = counts * sizes / np.maximum(ends - begins, 1)  # 2**60 + 1 is 2**60 in a float
    edges = np.concatenate([begins, ends])
    order = np.argsort(edges, kind="stable")
    slope = np.cumsum(np.concatenate([density, -density])[order])
    edges = edges[order]
    before = np.concatenate([[0.0], np.cumsum(np.maximum(slope[:-1], 0.0) * np.diff(edges))])
    return Weights(edges.astype(np.int64), before)


def split(files: UnitFiles, table: RunTable, cuts: Sequence[int]) -> list[RunTable]:
    """Cut every run at the same physical offsets; each unit is in exactly one piece.

    Pieces without a unit are left out.
    """
    return [piece for piece in split_aligned(files, table, cuts) if len(piece)]


def split_aligned(files: UnitFiles, table: RunTable, cuts: Sequence[int]) -> list[RunTable]:
    """Cut as `split` does; there is a piece between any two cuts, an empty one if need be."""
    bounds = np.array(cuts, np.int64)
    parts = list(_divided(files, table, bounds))
    pieces, rows, begins, ends = (concatenated([part[i] for part in parts]) for i in range(4))
    order = np.lexsort((rows, pieces))
    pieces, rows, begins, ends = pieces[order], rows[order], begins[order], ends[order]
    starts = np.searchsorted(pieces, np.arange(len(cuts) + 2))
    return [
        table.part(rows[start:stop], begins[start:stop], ends[start:stop])
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]


_Divided = tuple[Numbers, Numbers, Numbers, Numbers]
"""Piece, row, first unit and the one behind the last."""


def _divided(files: UnitFiles, table: RunTable, bounds: Numbers) -> Iterator[_Divided]:
    group: list[int] = []
    raws: list[bytes] = []
    held = 0
    for row, run in enumerate(table.runs()):
        raw = files.raw(run) if len(run) <= BLOCK and not run.is_batch else None
        if raw is None:
            yield _searched(files, row, run, bounds)
            continue
        group.append(row)
        raws.append(raw)
        held += len(run)
        if held >= _GROUP:
            yield from _divide_group(files, table, group, bounds, raw=b"".join(raws))
            group, raws, held = [], [], 0
    if group:
        yield from _divide_group(files, table, group, bounds, raw=b"".join(raws))


def _divide_group(
    files: UnitFiles, table: RunTable, group: list[int], bounds: Numbers, *, raw: bytes
) -> Iterator[_Divided]:
    """Cut runs of plain queues; `raw` are all their units as they are on the disk."""
    rows = np.array(group, np.int64)
    firsts, counts = table.begins[rows], table.counts[rows]
    offsets = PLAIN.decode(raw)["physical_offset"].astype(np.int64)
    owners = np.repeat(np.arange(len(rows)), counts)
    falls = (np.diff(offsets) < 0) & (np.diff(owners) == 0)
    unsorted = np.unique(owners[1:][falls])
    for number in unsorted.tolist():
        one = rows[number : number + 1]
        (run,) = table.part(one, table.begins[one], table.ends[one]).runs()
        yield _searched(files, int(one[0]), run, bounds)
    pieces = np.searchsorted(bounds, offsets, side="right")
    is_begin = np.append(True, (np.diff(pieces) != 0) | (np.diff(owners) != 0))
    starts = np.flatnonzero(is_begin)
    stops = np.append(starts[1:], len(offsets))
    kept = ~np.isin(owners[starts], unsorted)
    starts, stops = starts[kept], stops[kept]
    own = owners[starts]
    shift = firsts[own] - (np.cumsum(counts) - counts)[own]
    yield pieces[starts], rows[own], starts + shift, stops + shift


def _searched(files: UnitFiles, row: int, run: UnitRun, bounds: Numbers) -> _Divided:
    edges = np.array([run.from_index, *_indexes(files, run, bounds), run.to_index], np.int64)
    edges = np.maximum.accumulate(edges)
    pieces = np.flatnonzero(edges[1:] > edges[:-1])
    rows = np.full(len(pieces), row, np.int64)
    return pieces, rows, edges[pieces], edges[pieces + 1]


def _indexes(files: UnitFiles, run: UnitRun, bounds: Numbers) -> list[int]:
    """Return where the units of a run are cut, none below the one before."""
    if len(run) <= max(BLOCK, len(bounds) * _SEARCH_UNITS):
        found = _counted(files, run, bounds)
        if found is not None:
            return found
    indexes = []
    low = run.from_index
    for cut in bounds.tolist():
        low = files.index_at(run, low, cut)
        indexes.append(low)
    return indexes


def _counted(files: UnitFiles, run: UnitRun, bounds: Numbers) -> list[int] | None:
    """Return the same by reading all units; None if some are gone."""
    before = np.zeros(len(bounds), np.int64)
    count, highest = 0, -(1 << 62)
    for _, units in files.pieces(run, _READ_UNITS):
        rising = np.maximum.accumulate(np.maximum(units["physical_offset"], highest))
        before += np.searchsorted(rising, bounds)
        highest = int(rising[-1])
        count += len(units)
    return (before + run.from_index).tolist() if count == len(run) else None
