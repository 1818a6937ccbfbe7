"""Partitions: small values that are pickled, and their reading on an executor."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketlake.errors import StoreError
from rocketlake.format.record import Check, RecordColumns, reason_text
from rocketlake.spark.reading.batches import BatchMaker
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.queue_check import QueueCheck, describe_stranger
from rocketlake.spark.reading.record_filter import LogFilter, QueueRange, RecordFilter
from rocketlake.spark.reading.run_split import split, weigh
from rocketlake.spark.reading.run_table import PackedRuns, RunTable, read_units
from rocketlake.spark.reading.stores import ExecutorLog, StoreRef, apply_damage_policy
from rocketlake.spark.reading.units import UnitFiles, is_prefill
from rocketlake.spark.schema import arrow_schema
from rocketlake.spark.worker_process import tune_worker
from rocketlake.store.offline import MISSING, PLACE_DTYPE, Finding, Gap, Places, walk_past

ROWS_MAX: Final = 8192
WINDOW: Final = 4 << 20
_UNITS_MAX: Final = 1 << 18  # whose places are held at a time: some 16 MiB

Queue: TypeAlias = tuple[str, int]


class QueuePart(Struct, frozen=True, tag=True):
    """A part of the log, as several queues' units see it."""

    store: StoreRef
    packed: PackedRuns

    @property
    def table(self) -> RunTable:
        """The units."""
        return RunTable.unpack(self.packed)


class PlacesPart(Struct, frozen=True, tag=True):
    """Records at known places; `packed` are their units, `queues` the queues of the units."""

    store: StoreRef
    queues: tuple[Queue, ...]
    packed: bytes
    is_owed: bool = True
    """Whether dispatch has yet to write these units; otherwise they are in RocksDB."""

    @classmethod
    def pack(
        cls,
        store: StoreRef,
        queues: Iterable[Queue],
        places: Places,
        numbers: npt.NDArray[np.int64],
        *,
        is_owed: bool = True,
    ) -> "PlacesPart":
        """Make a part of places, each with the number of its queue."""
        columns = [places[name] for name in PLACE_DTYPE.names or ()]
        differences = [np.diff(column, prepend=0) for column in (*columns, numbers)]
        data = b"".join(column.astype("<i8").tobytes() for column in differences)
        return cls(store, tuple(queues), zlib.compress(data, 1), is_owed)

    def unpack(self) -> tuple[Places, npt.NDArray[np.int64]]:
        """Return the places, and the number of each one's queue."""
        names = PLACE_DTYPE.names or ()
        table = np.frombuffer(zlib.decompress(self.packed), "<i8").reshape(len(names) + 1, -1)
        places = np.empty(table.shape[1], PLACE_DTYPE)
        for name, row in zip(names, table, strict=False):
            places[name] = np.cumsum(row)
        return places, np.cumsum(table[-1])


class LogPart(Struct, frozen=True, tag=True):
    """A range of the log that begins and ends at record boundaries."""

    store: StoreRef
    begin: int
    end: int
    ranges: tuple[QueueRange, ...] | None = None
    """The queue ranges that are read; None: all records."""


class Partition(InputPartition):
    """A part as Spark's partition."""

    def __init__(self, part: Struct) -> None:
        self.part = part


def read_partition(
    partition: InputPartition,
    schema: StructType,
    options: SourceOptions,
    on_damage: Callable[[Finding], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a partition, on an executor; `on_damage` gets the damage that is skipped.

    Raises:
        StoreNotFoundError: this machine does not see the store.
        StoreError: something is damaged or gone, and the options do not allow it.
    """
    if not isinstance(partition, Partition):
        return  # Spark's own partition, where there is none
    tune_worker()
    part = partition.part
    assert isinstance(part, QueuePart | PlacesPart | LogPart), "the other parts have no messages"
    wanted = RecordFilter(options)
    if isinstance(part, LogPart):
        wanted = LogFilter(options, part.ranges)
    checks = part.store.checks
    if "body" not in schema.names:
        checks &= ~Check.BODY_CRC  # unread bodies are not checked
    with ExecutorLog(part.store) as source:
        reader = _PartReader(source, options, wanted, checks, on_damage=on_damage)
        maker = BatchMaker(
            arrow_schema(schema),
            is_raw_body=options.raw_body,
            broker=part.store.broker,
            rows_max=ROWS_MAX,
            on_bad_body=reader.report_bad_body,
        )
        if isinstance(part, QueuePart):
            found = reader.of_runs(part.table)
        elif isinstance(part, PlacesPart):
            found = reader.of_places(part)
        else:
            found = reader.of_log(part)
        for columns, queue_offsets in found:
            if len(columns):
                yield from maker.batches(columns, queue_offsets)


Found: TypeAlias = tuple[RecordColumns, npt.NDArray[np.int64] | None]


class _PartReader:
    """Reads the records of a part, in the order of the log."""

    def __init__(
        self,
        source: ExecutorLog,
        options: SourceOptions,
        wanted: RecordFilter,
        checks: int,
        *,
        on_damage: Callable[[Finding], None] | None = None,
    ) -> None:
        self._on_damage = on_damage
        self._log = source.log
        self._damage = source.damage
        self._files = UnitFiles(source.ref.path, source.readers)
        self._checks = checks
        self._planned_min = source.ref.log_min_offset
        self._options = options
        self._wanted = wanted

    def of_runs(self, runs: RunTable) -> Iterator[Found]:
        """Read the records of units, as many units at a time as memory allows."""
        count = int(runs.counts.sum())
        cuts = weigh(self._files, runs).cuts(-(-count // _UNITS_MAX)) if count > _UNITS_MAX else []
        for piece in split(self._files, runs, cuts) if cuts else [runs]:
            units = read_units(self._files, piece)
            for lost in units.lost:
                self._damage.report(lost.path, lost.position, lost.reason, messages=lost.messages)
            yield from self._gather(units.places, units.rows, piece.queues)

    def of_places(self, part: PlacesPart) -> Iterator[Found]:
        """Read records at given places."""
        yield from self._gather(*part.unpack(), list(part.queues))

    def of_log(self, part: LogPart) -> Iterator[Found]:
        """Read the records of a range of the log."""
        gone = self._log.min_offset
        if part.begin < gone and self._options.fail_on_data_loss:
            raise StoreError(
                f"the log from {part.begin} on expired between planning and reading: it now begins "
                f"at {gone}; option failOnDataLoss = false leaves it out"
            )
        for step in walk_past(self._log, part.begin, part.end, self._checks):
            if isinstance(step, Gap):
                text = reason_text(step.reason)
                self._damage.report(step.file.path, step.file_position, text, size=step.size)
                self._apply_damage_policy()
                continue
            keep = self._wanted.records(step.columns)
            columns = step.columns
            if keep is not None:
                columns = RecordColumns(columns.buffer, columns.rows[keep])
            yield columns, None

    def _gather(
        self, places: Places, numbers: npt.NDArray[np.int64], queues: list[Queue]
    ) -> Iterator[Found]:
        self._apply_damage_policy()
        check = QueueCheck(queues)
        keep = ~is_prefill(places)
        codes = self._wanted.units(places, numbers, queues)
        if codes is not None:
            keep &= codes
        order = np.flatnonzero(keep)
        order = order[np.argsort(places["physical_offset"][order], kind="stable")]
        sizes = np.clip(places["size"][order], 0, 1 << 40)
        ends = np.cumsum(sizes)
        begin = 0
        while begin < len(order):
            before = int(ends[begin - 1]) if begin else 0
            fit = int(np.searchsorted(ends, before + WINDOW, side="right"))
            end = min(max(fit, begin + 1), begin + ROWS_MAX, len(order))
            chosen = order[begin:end]
            yield self._records(places[chosen], numbers[chosen], check)
            begin = end

    def _records(self, places: Places, numbers: npt.NDArray[np.int64], check: QueueCheck) -> Found:
        columns, reasons = self._log.gather(
            places["physical_offset"].copy(), places["size"].copy(), checks=self._checks
        )
        good = reasons == 0
        if not good.all():
            self._report(places, numbers, check.queues, reasons)
            rows = np.flatnonzero(good)  # the others may hold anything
            own = RecordColumns(columns.buffer, columns.rows[rows])
            strangers = rows[check.strangers(own, numbers[rows])]
        else:
            strangers = check.strangers(columns, numbers)
        if len(strangers):
            good[strangers] = False
            self._report_strangers(columns, places, numbers, rows=strangers, queues=check.queues)
        keep = self._wanted.records(columns, good, places["queue_offset"])
        if keep is None:
            if good.all():
                return columns, places["queue_offset"]
            keep = good
        return RecordColumns(columns.buffer, columns.rows[keep]), places["queue_offset"][keep]

    def _report_strangers(
        self,
        columns: RecordColumns,
        places: Places,
        numbers: npt.NDArray[np.int64],
        *,
        rows: npt.NDArray[np.intp],
        queues: Sequence[Queue],
    ) -> None:
        """Tell of units that point to records of other queues."""
        for row in rows.tolist():
            topic, queue_id = queues[int(numbers[row])]
            path, position = self._log.describe(int(places["physical_offset"][row]))
            name = f"message {int(places['queue_offset'][row])} of {topic}/{queue_id}"
            said = f"{describe_stranger(columns, row)}; {name} is left out"
            count = int(places["batch_size"][row])
            self._damage.report(path, position, said, messages=count)
        self._apply_damage_policy()

    def _report(
        self,
        places: Places,
        numbers: npt.NDArray[np.int64],
        queues: Sequence[Queue],
        reasons: npt.NDArray[np.uint8],
    ) -> None:
        """Report units whose records are not valid, as the options say."""
        for index in np.flatnonzero(reasons).tolist():
            offset, reason = int(places["physical_offset"][index]), int(reasons[index])
            topic, queue_id = queues[int(numbers[index])]
            name = f"message {int(places['queue_offset'][index])} of {topic}/{queue_id}"
            if self._log.is_expired(offset):
                if self._options.fail_on_data_loss and offset >= self._planned_min:
                    begin = max(self._log.min_offset, self._log.expired_to)
                    raise StoreError(
                        f"{name} expired between planning and reading: the log now begins at "
                        f"{begin}; option failOnDataLoss = false leaves it out"
                    )
                continue
            text = "no file holds the record" if reason == MISSING else reason_text(reason)
            path, position = self._log.describe(offset)
            size = int(places["size"][index]) if reason != MISSING else 0
            said = f"{text}; {name} is left out"
            count = int(places["batch_size"][index])
            self._damage.report(path, position, said, size=max(size, 0), messages=count)
        self._apply_damage_policy()

    def report_bad_body(self, physical_offset: int, reason: str) -> None:
        """Report a body that cannot be inflated; if that is skipped, it is given as stored."""
        path, position = self._log.describe(physical_offset)
        text = f"the body cannot be inflated (option rawBody = true gives it as stored): {reason}"
        self._damage.report(path, position, text)
        self._apply_damage_policy()

    def _apply_damage_policy(self) -> None:
        apply_damage_policy(self._damage.findings, self._options)
        if self._on_damage is not None:
            for finding in self._damage.findings:
                self._on_damage(finding)
        self._damage.findings.clear()
