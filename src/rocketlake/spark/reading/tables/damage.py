"""Table `damage`: the damaged places of a store, and the messages that are lost with them.

Each task walks a range of the log, past all bytes that are not valid records, and compares the
queue units that point into the range. A unit whose record is not valid stands for a lost message:
it is counted with the damaged bytes it points into, or has a row of its own if those are valid.
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import StructType

from rocketlake.format.record import RecordColumns, reason_text
from rocketlake.model.topics import is_lmq
from rocketlake.spark.reading.log_cuts import log_pieces
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import Partition
from rocketlake.spark.reading.planning import pieces_for
from rocketlake.spark.reading.queue_check import QueueCheck, describe_stranger
from rocketlake.spark.reading.run_split import split_aligned
from rocketlake.spark.reading.run_table import PackedRuns, RunTable
from rocketlake.spark.reading.stores import ExecutorLog, StoreRef
from rocketlake.spark.reading.tables.columns import to_batch
from rocketlake.spark.reading.tables.schemas import DAMAGE_SCHEMA
from rocketlake.spark.reading.tables.small import rows_part
from rocketlake.spark.reading.units import UnitFiles, UnitRun, is_prefill
from rocketlake.spark.schema import arrow_schema
from rocketlake.store.offline import (
    MISSING,
    Finding,
    Gap,
    Loss,
    OfflineStore,
    Places,
    Readers,
    walk_past,
)

_UNITS = 16_384
_NAMED = 100  # lost messages that a row names

Int64s = npt.NDArray[np.int64]
Row = dict[str, object]


class DamagePart(Struct, frozen=True, tag=True):
    """A part of the log, and the units that belong there."""

    store: StoreRef
    begin: int
    end: int
    packed: PackedRuns

    @property
    def table(self) -> RunTable:
        """The units."""
        return RunTable.unpack(self.packed)


def plan(store: OfflineStore, broker: str, options: SourceOptions) -> list[Partition]:
    """Return partitions that cover the whole log and every unit."""
    ref = StoreRef.of(broker, store)
    begin, end = store.min_offset, store.max_offset
    runs = [
        UnitRun.of(queue, queue.first_index, queue.end_index)
        for queue in store.queues.values()
        if queue.files and queue.end_index > queue.first_index
    ]
    pieces = log_pieces(store, begin, end, pieces_for(end - begin, options)) or [(begin, end)]
    readers = Readers(store.directory.ops)
    try:
        cuts = [first for first, _ in pieces[1:]]
        own = split_aligned(UnitFiles(ref.path, readers), RunTable.of(runs), cuts)
    finally:
        readers.close()
    parts = [
        Partition(DamagePart(ref, first, last, mine.pack()))
        for (first, last), mine in zip(pieces, own, strict=True)
    ]
    rows = [_found_row(finding, broker) for finding in _found_here(store)]
    return [*parts, rows_part(ref, DAMAGE_SCHEMA, rows)] if rows else parts


def _found_here(store: OfflineStore) -> Iterator[Finding]:
    """Yield what was found while planning: shapes of files, ends of queues, files of the index."""
    log_files = {str(file.path) for file in store.log.files}
    for finding in store.damage.findings:
        # Bytes of the log are found once more where it is walked, with what they cost.
        if not (isinstance(finding, Loss) and finding.path in log_files):
            yield finding
    for file in store.index_files:
        if file.slots is None and file.header.entries_used:
            yield Finding(str(file.path), 0, "its slot count cannot be proven")


def _found_row(finding: Finding, broker: str) -> Row:
    loss = finding if isinstance(finding, Loss) else None
    return {
        **dict.fromkeys(DAMAGE_SCHEMA.names),
        "file": finding.path,
        "file_position": finding.position,
        "bytes": (loss.size or None) if loss is not None else None,
        "reason": finding.reason,
        "messages": (loss.messages or None) if loss is not None else None,
        "broker": broker,
    }


def read(part: DamagePart, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Return a row for each damaged place of one part."""
    wanted = arrow_schema(schema)
    with ExecutorLog(part.store) as source:
        rows = _DamageScan(source, part).rows()
    columns = {name: [row.get(name) for row in rows] for name in wanted.names}
    if rows:
        yield to_batch(wanted, len(rows), columns)


class _Records(Struct):
    """The valid records of a range of the log."""

    begins: Int64s
    sizes: Int64s
    owners: Int64s
    """The queue of each, as a number."""
    topics: dict[str, int]

    def owner(self, run: UnitRun) -> int:
        """Return the number of a queue; -1 if no record is of its topic."""
        code = self.topics.get(run.topic)
        return -1 if code is None else _owner(code, run.queue_id)


def _owner(code: int, queue_id: int) -> int:
    return code << 32 | queue_id & 0xFFFFFFFF


class _DamageScan:
    """Finds the damage of one part."""

    def __init__(self, source: ExecutorLog, part: DamagePart) -> None:
        self._source = source
        self._part = part
        self._files = UnitFiles(part.store.path, source.readers)
        self._rows: list[Row] = []
        self._gaps: list[Gap] = []
        self._gap_rows: list[Row] = []

    def rows(self) -> list[Row]:
        """Walk the log, then compare the units with it."""
        records = self._walk()
        for run in self._part.table.runs():
            for index, units in self._files.pieces(run, _UNITS):
                self._compare(run, index, units, records)
            for first, last in self._files.lost(run):
                path, position = self._files.path(run, first)
                text = f"units of {run.key} from {first} to {last} are gone"
                self._add(path, position, text, topic=run.topic, messages=last - first)
        return [*self._gap_rows, *self._rows]

    def _walk(self) -> "_Records":
        """Note every gap; return the valid records."""
        part, log = self._part, self._source.log
        begins, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        owners, topics = [np.empty(0, np.int64)], dict[str, int]()
        for step in walk_past(log, part.begin, part.end, part.store.checks):
            if not isinstance(step, Gap):
                begins.append(step.columns["physical_offset"].astype(np.int64))
                sizes.append(step.columns["size"].astype(np.int64))
                codes, names = step.columns.topics()
                known = [topics.setdefault(name, len(topics)) for name in names]
                ids = step.columns["queue_id"].astype(np.uint32)
                owners.append(np.array(known, np.int64)[codes] << 32 | ids)
            elif not log.is_expired(step.physical_offset):
                self._gaps.append(step)
                self._gap_rows.append(self._gap_row(step))
        return _Records(
            np.concatenate(begins), np.concatenate(sizes), np.concatenate(owners), topics
        )

    def _gap_row(self, gap: Gap) -> Row:
        return {
            "file": str(gap.file.path),
            "file_position": gap.file_position,
            "physical_offset": gap.physical_offset,
            "bytes": gap.size,
            "reason": reason_text(gap.reason),
            "messages": 0,
            "lost": [],
            "broker": self._part.store.broker,
        }

    def _compare(self, run: UnitRun, index: int, units: Places, records: "_Records") -> None:
        """Note the units whose record is not among the valid ones, or is another queue's."""
        begins, sizes = records.begins, records.sizes
        at = np.searchsorted(begins, units["physical_offset"])
        inside = np.minimum(at, max(len(begins) - 1, 0))
        good = np.zeros(len(units), np.bool_)
        if len(begins):
            good = begins[inside] == units["physical_offset"]
            good &= sizes[inside] == units["size"]
            if not is_lmq(run.topic):
                good &= records.owners[inside] == records.owner(run)
        doubted = np.flatnonzero(~good & ~is_prefill(units))
        if not len(doubted):
            return
        log = self._source.log
        columns, reasons = log.gather(
            units["physical_offset"][doubted].copy(),
            units["size"][doubted].copy(),
            checks=self._part.store.checks,
        )
        for number, reason in zip(doubted.tolist(), reasons.tolist(), strict=True):
            unit = units[number]
            offset = int(unit["physical_offset"])
            if reason and not log.is_expired(offset):
                self._lose(run, index + number, unit, reason)
        valid = np.flatnonzero(reasons == 0)
        part = RecordColumns(columns.buffer, columns.rows[valid])
        check = QueueCheck([(run.topic, run.queue_id)])
        for row in check.strangers(part, np.zeros(len(valid), np.int64)).tolist():
            number = int(doubted[valid[row]])
            self._note_unit(run, index + number, units[number], describe_stranger(part, row))

    def _lose(self, run: UnitRun, index: int, unit: np.void, reason: int) -> None:
        """Note a message whose record is not good."""
        offset, queue_offset = int(unit["physical_offset"]), int(unit["queue_offset"])
        count = int(unit["batch_size"])
        before = bisect_right(self._gaps, offset, key=lambda gap: gap.physical_offset) - 1
        if before >= 0 and offset < self._gaps[before].physical_offset + self._gaps[before].size:
            row = self._gap_rows[before]
            lost = row["lost"]
            assert isinstance(lost, list), "as it was made"
            row["messages"] = int(str(row["messages"])) + count
            if len(lost) < _NAMED:
                lost.append(f"{run.key} {queue_offset}")
            return
        text = "no file holds the record" if reason == MISSING else reason_text(reason)
        self._note_unit(run, index, unit, f"the unit points to {offset}: {text}")

    def _note_unit(self, run: UnitRun, index: int, unit: np.void, said: str) -> None:
        """Add a row for a unit without a record of its own, which is not in a gap."""
        queue_offset, count = int(unit["queue_offset"]), int(unit["batch_size"])
        path, position = self._files.path(run, index)
        self._add(path, position, said, topic=run.topic, messages=count)
        self._rows[-1].update(
            bytes=run.kind.unit_size, queue_id=run.queue_id, lost=[f"{run.key} {queue_offset}"]
        )

    def _add(self, path: Path, position: int, reason: str, *, topic: str, messages: int) -> None:
        self._rows.append(
            {
                "file": str(path),
                "file_position": position,
                "reason": reason,
                "topic": topic,
                "messages": messages,
                "broker": self._part.store.broker,
            }
        )
