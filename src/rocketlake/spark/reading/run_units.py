"""The units of many runs in one array, on an executor."""

from pathlib import Path

import numpy as np
from msgspec import Struct

from rocketlake.spark.reading.run_table import Numbers, RunTable, concatenated
from rocketlake.spark.reading.units import UnitFiles, UnitRun, to_places
from rocketlake.store.offline import PLACE_DTYPE, PLAIN, Places


class LostUnits(Struct, frozen=True):
    """Units of one queue whose file is gone."""

    path: Path
    position: int
    reason: str
    messages: int


class ReadUnits(Struct, frozen=True):
    """Units, run by run, and what of them is gone."""

    places: Places
    rows: Numbers
    """The run of each unit."""
    lost: list[LostUnits]


def read_units(files: UnitFiles, table: RunTable) -> ReadUnits:
    """Read the units of all runs. Those that lie in one file are decoded together."""
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
