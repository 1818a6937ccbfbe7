"""Archived messages: the selected parts of files, and their reading on an executor."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketlake.errors import StoreError
from rocketlake.metadata.archive_manifest import ArchivedFile
from rocketlake.spark.reading.archive.checked_file import (
    READ_ERRORS,
    DamagedFileError,
    OpenFile,
    group_batches,
    open_archived,
)
from rocketlake.spark.reading.options import OnDamage, SourceOptions
from rocketlake.spark.reading.record_filter import tag_filters
from rocketlake.spark.reading.terms import NUMBERS, TIMES
from rocketlake.spark.schema import RAW_TIMES, arrow_schema

log = logging.getLogger(__name__)

ROWS_MAX: Final = 8192
_NO_TIME: Final = -(1 << 63)  # before all times that are asked for
_EVER: Final = 1 << 62

Mask = npt.NDArray[np.bool_]
Range = tuple[int, int]


class WantedFile(Struct, frozen=True):
    """A file, and which messages of it: queue offsets and store times (ms) by queue."""

    file: ArchivedFile
    offsets: dict[int, Range]
    times: dict[int, Range] = {}
    """Only of queues where times matter."""

    @property
    def is_whole(self) -> bool:
        """Whether every message of the file as the manifest knows it is wanted."""
        return not self.times and self.offsets == self.file.queues

    @property
    def log_bytes(self) -> int:
        """What the wanted messages take in the log, about."""
        every = sum(last - first for first, last in self.file.queues.values())
        wanted = sum(last - first for first, last in self.offsets.values())
        return self.file.log_bytes * wanted // max(every, 1)


class ArchivePartition(InputPartition):
    """Files that one task reads."""

    def __init__(self, directory: str, files: tuple[WantedFile, ...]) -> None:
        self.directory = directory
        self.files = files


def read_archived(
    partition: ArchivePartition, schema: StructType, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Read the files of a partition, on an executor.

    Raises:
        StoreError: a file cannot be read, and that must not be.
    """
    reader = _FileReader(Path(partition.directory), arrow_schema(schema), options)
    for wanted in partition.files:
        yield from reader.read(wanted)


class RowFilter:
    """The tag, SQL92 and key options, and what Spark pushed down, on archived columns."""

    def __init__(self, options: SourceOptions) -> None:
        self._tags = tag_filters(options)
        self._keys = [key for key in (options.key, options.unique_key) if key is not None]
        # Files are chosen by topic and broker already.
        self._terms = [term for term in options.terms if term.column in (*NUMBERS, *TIMES)]
        self._sql = None
        if options.sql is not None:
            from rocketlake.filters.sql92 import SqlFilter  # noqa: PLC0415 - its parser is slow

            self._sql = SqlFilter(options.sql)

    @property
    def columns(self) -> list[str]:
        """What must be read to decide."""
        found = [term.column for term in self._terms]
        found += ["tags"] if self._tags else []
        found += ["keys", "unique_key"] if self._keys else []
        return [*found, "properties"] if self._sql is not None else found

    def mask(self, batch: pa.RecordBatch) -> Mask | None:
        """Mark the messages that are wanted; None: all."""
        if not self.columns:
            return None
        keep = np.ones(batch.num_rows, np.bool_)
        for term in self._terms:
            found = batch[term.column]
            keep &= term.compare(_numbers(found))
            if found.null_count:  # null fulfils no comparison
                keep &= found.is_valid().to_numpy(zero_copy_only=False)
        for tags in self._tags:
            keep &= _marked(batch["tags"].to_pylist(), tags.matches)
        if self._keys:
            held = zip(batch["unique_key"].to_pylist(), batch["keys"].to_pylist(), strict=True)
            keep &= _marked(list(held), self._has_keys)
        if self._sql is not None:
            matches = self._sql.matches
            for index in np.flatnonzero(keep).tolist():
                keep[index] = matches(dict(batch["properties"][index].as_py() or ()))
        return keep

    def _has_keys(self, held: tuple[str | None, list[str] | None]) -> bool:
        return all(key == held[0] or key in (held[1] or ()) for key in self._keys)


def _numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64()).fill_null(_NO_TIME)
    found: npt.NDArray[np.int64] = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _marked(values: list[Any], test: Callable[[Any], bool]) -> Mask:
    return np.fromiter((test(value) for value in values), np.bool_, len(values))


class _FileReader:
    """Reads files of one archive; what is damaged is passed over, or ends the read."""

    def __init__(self, directory: Path, target: pa.Schema, options: SourceOptions) -> None:
        self._directory = directory
        self._target = target
        self._on_damage = options.on_damage
        self._rows = RowFilter(options)

    def read(self, wanted: WantedFile) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of a file.

        Raises:
            StoreError: it is damaged and must not be, or is not there.
        """
        try:
            with open_archived(self._directory, wanted.file) as opened:
                yield from self._messages(opened, wanted)
        except DamagedFileError as error:
            rows = sum(last - first for first, last in wanted.offsets.values())
            self._pass_over(wanted, error, min(rows, wanted.file.rows))

    def _messages(self, opened: OpenFile, wanted: WantedFile) -> Iterator[pa.RecordBatch]:
        file, is_exact = opened.parquet, wanted.is_whole and opened.is_exact
        needed = [] if is_exact else ["queue_id", "queue_offset"]
        needed += ["store_timestamp"] if wanted.times else []
        names = [name for name in self._target.names if name != "topic"]
        try:
            names = list(_stored(names, file.schema_arrow.names))
            groups = _groups(file, wanted)
        except READ_ERRORS as error:
            raise DamagedFileError(str(error)) from error
        columns = list(dict.fromkeys([*names, *needed, *self._rows.columns]))
        if not columns:
            yield from _topics(file.metadata.num_rows, self._target, wanted.file.topic)
            return
        for group in groups:
            left = file.metadata.row_group(group).num_rows
            try:
                for batch in group_batches(file, group, columns, ROWS_MAX):
                    found = self._wanted(batch, None if is_exact else wanted, wanted.file.topic)
                    left -= batch.num_rows
                    if found.num_rows:
                        yield found
            except DamagedFileError as error:
                self._pass_over(wanted, error, left)

    def _wanted(
        self, batch: pa.RecordBatch, wanted: WantedFile | None, topic: str
    ) -> pa.RecordBatch:
        """Return the rows and columns that are asked for; `wanted` None: no row is ruled out."""
        try:
            keep = _inside(batch, wanted) if wanted is not None else None
            marked = self._rows.mask(batch)
            if marked is not None:
                keep = marked if keep is None else keep & marked
            if keep is not None and not keep.all():
                batch = batch.filter(pa.array(keep))
            return _shaped(batch, self._target, topic)
        except (pa.ArrowException, KeyError, UnicodeError) as error:
            raise DamagedFileError(str(error)) from error

    def _pass_over(self, wanted: WantedFile, error: DamagedFileError, count: int) -> None:
        """Do what `onDamage` says of messages that cannot be read."""
        text = f"{wanted.file.path} of the archive {self._directory} is damaged: {error}"
        if self._on_damage is OnDamage.FAIL:
            raise StoreError(
                f"{text}; restore the file from a copy, or option onDamage = skip reads the rest"
            ) from error
        log.warning("damage passed over: %s; up to %d messages are left out", text, count)


def _groups(file: pq.ParquetFile, wanted: WantedFile) -> list[int]:
    """Return the row groups that may hold messages of the wanted offsets and times."""
    count = file.metadata.num_row_groups
    first_offset = min(first for first, _ in wanted.offsets.values())
    last_offset = max(last for _, last in wanted.offsets.values())
    found = [
        group
        for group, (low, high) in _bounds(file, "queue_offset")
        if first_offset <= high and low < last_offset
    ]
    if not wanted.times or set(wanted.times) != set(wanted.offsets):
        return found
    first_time = min(first for first, _ in wanted.times.values())
    last_time = max(last for _, last in wanted.times.values())
    inside = {
        group
        for group, (low, high) in _bounds(file, "store_timestamp")
        if first_time <= high and low < last_time
    }
    return [group for group in range(count) if group in inside.intersection(found)]


def _bounds(file: pq.ParquetFile, column: str) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the least and the greatest value of each row group; times in milliseconds, rounded out.

    A row group without statistics may hold anything.
    """
    names = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
    number = names.index(column)
    for group in range(file.metadata.num_row_groups):
        stats = file.metadata.row_group(group).column(number).statistics
        if stats is None or not stats.has_min_max:
            yield group, (-_EVER, _EVER)
        elif isinstance(stats.min, int):
            yield group, (stats.min, stats.max)
        else:
            low, high = (int(moment.timestamp() * 1000) for moment in (stats.min, stats.max))
            yield group, (low - 1, high + 1)


def _inside(batch: pa.RecordBatch, wanted: WantedFile) -> Mask:
    """Mark the messages of the wanted offsets and times."""
    ids = batch["queue_id"].to_numpy(zero_copy_only=False)
    offsets = batch["queue_offset"].to_numpy(zero_copy_only=False)
    keep = np.zeros(len(ids), np.bool_)
    for queue_id, (first, last) in wanted.offsets.items():
        inside = (ids == queue_id) & (offsets >= first) & (offsets < last)
        if queue_id in wanted.times:
            low, high = wanted.times[queue_id]
            times = _numbers(batch["store_timestamp"]) // 1000
            inside &= (times >= low) & (times < high)
        keep |= inside
    return keep


def _shaped(batch: pa.RecordBatch, target: pa.Schema, topic: str) -> pa.RecordBatch:
    """Return the columns that are asked for, in the types that Spark wants."""
    arrays = [
        pa.repeat(pa.scalar(topic, field.type), batch.num_rows)
        if field.name == "topic"
        else _column(batch, field)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _stored(names: list[str], held: list[str]) -> Iterator[str]:
    """Yield the columns of a file that those asked for are made of."""
    for name in names:
        if name not in RAW_TIMES.names or name in held:  # files of earlier releases have none
            yield name
        if name in RAW_TIMES.names:
            yield name.removesuffix("_ms")


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in RAW_TIMES.names:
        return _typed(batch[field.name], field.type)
    known = pc.divide(batch[field.name.removesuffix("_ms")].cast(pa.int64()), 1000)
    if field.name in batch.schema.names:
        known = pc.coalesce(known, batch[field.name])
    return _typed(known, field.type)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _topics(count: int, target: pa.Schema, topic: str) -> Iterator[pa.RecordBatch]:
    """Yield rows of which only the topic is asked for."""
    while count > 0:
        size = min(count, ROWS_MAX)
        arrays = [pa.repeat(pa.scalar(topic, field.type), size) for field in target]
        yield pa.RecordBatch.from_arrays(arrays, schema=target)
        count -= size
