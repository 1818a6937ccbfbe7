"""What an executor does for an archive: read a part of the log, write files below `_work`."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs
from pyspark.sql.types import StructType

from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps, PosixFileOps
from rocketlake.spark.jobs.archive.days import date_text, days_of
from rocketlake.spark.jobs.archive.parquet_file import ParquetFile, StagedFile, read_batches, sum_of
from rocketlake.spark.jobs.archive.plan import ArchiveTask
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.partitions import read_partition
from rocketlake.spark.schema import MESSAGE_SCHEMA, RAW_TIMES, arrow_schema
from rocketlake.store.offline import Finding, Loss

TOPIC: Final = "topic"
DAMAGE_SHOWN: Final = 20
"""Places of damage that a report names."""
_READ_SCHEMA: Final = StructType([*MESSAGE_SCHEMA.fields, *RAW_TIMES.fields])
FILE_SCHEMA: Final = StructType([f for f in _READ_SCHEMA.fields if f.name != TOPIC])
"""The columns of a file: the topic is in the name of its directory, as Spark does it.

The numbers behind times are there only where the times are null.
"""


class Writing(Struct, frozen=True):
    """The common arguments of the tasks of a run."""

    archive: str
    work: str
    compression: str
    options: SourceOptions


def task_function(
    writing: Writing, bins: list[list[ArchiveTask]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what Spark runs: takes numbers of bins, gives what was written as JSON."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for task in bins[number]:
                    written = write_task(task, writing)
                    texts = [msgspec.json.encode(file).decode() for file in written]
                    yield pa.RecordBatch.from_pydict({"file": pa.array(texts, pa.string())})

    return run


def write_task(task: ArchiveTask, writing: Writing, ops: FileOps | None = None) -> list[StagedFile]:
    """Write the messages of a task; one file for each day they were stored on.

    A task that runs twice, or in two places at once, writes two files; the driver takes the one
    that is reported to it.
    """
    ops = ops or PosixFileOps()
    attempt = uuid.uuid4().hex[:12]
    files = _DayFiles(task, writing, ops, attempt)
    try:
        for part in task.parts:
            for batch in read_partition(part, _READ_SCHEMA, writing.options, files.note_damage):
                files.add(batch)
        return files.finish()
    except BaseException:
        files.abandon()
        raise


class _DayFiles:
    """The files a task writes, by day."""

    def __init__(self, task: ArchiveTask, writing: Writing, ops: FileOps, attempt: str) -> None:
        self._task = task
        self._writing = writing
        self._ops = ops
        self._attempt = attempt
        self._schema = arrow_schema(FILE_SCHEMA)
        self._files: dict[str, tuple[ParquetFile, Path, int]] = {}
        self._odd: Counter[str] = Counter()
        self._damage: list[str] = []
        self._damaged = self._damaged_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append messages to the files of their days."""
        days = days_of(batch)
        batch, is_odd = _with_odd_times(batch)
        found = np.unique(days).tolist()
        for day in found:
            inside = batch if len(found) == 1 else batch.filter(pa.array(days == day))
            date = date_text(day)
            self._file(date).add(inside)
            if is_odd is not None:
                self._odd[date] += int(is_odd[days == day].sum())

    def note_damage(self, finding: Finding) -> None:
        """Note what was passed over."""
        self._damaged += 1
        self._damaged_bytes += finding.size if isinstance(finding, Loss) else 0
        if len(self._damage) < DAMAGE_SHOWN:
            self._damage.append(str(finding))

    def finish(self) -> list[StagedFile]:
        """Have all files on the disk."""
        staged = []
        for date, (file, path, old_rows) in self._files.items():
            base = self._base(date)
            fields = file.finish()
            staged.append(
                StagedFile(
                    task=self._task.number,
                    staged=str(path.relative_to(self._writing.archive)),
                    date=date,
                    base=base,
                    new_rows=fields["rows"] - old_rows,
                    odd_times=self._odd[date],
                    **fields,
                )
            )
        if staged and self._damaged:
            staged[0] = structs.replace(
                staged[0],
                damage=tuple(self._damage),
                damaged=self._damaged,
                damaged_bytes=self._damaged_bytes,
            )
        return staged

    def abandon(self) -> None:
        """Remove all files."""
        for file, _, _ in self._files.values():
            file.abandon()

    def _copy(self, base: str, file: ParquetFile) -> None:
        """Begin a file with the messages of the one it will replace."""
        path = Path(self._writing.archive) / base
        known = self._task.base.sha256 if self._task.base is not None else ""
        words = f"{base} of the archive cannot be rewritten"
        try:
            found = sum_of(path)
            for batch in read_batches(path) if found == known else ():
                file.add(completed(batch, self._schema))
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{words}: {error}; restore it from a copy") from error
        if found != known:
            raise StoreError(f"{words}: its sha256 is not that of the manifest; restore it")

    def _base(self, date: str) -> str | None:
        base = self._task.base
        return base.path if base is not None and base.date == date else None

    def _file(self, date: str) -> ParquetFile:
        if date not in self._files:
            name = f"{self._task.number:05d}-{self._attempt}-{len(self._files)}.parquet"
            path = Path(self._writing.work) / name
            file = ParquetFile(self._ops, path, self._schema, self._writing.compression)
            self._files[date] = file, path, 0
            base = self._base(date)
            if base is not None:
                self._copy(base, file)
                self._files[date] = file, path, file.rows
        return self._files[date][0]


def _with_odd_times(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_] | None]:
    """Keep the numbers behind times only where these are null; mark the rows of which one is."""
    marks = np.zeros(batch.num_rows, np.bool_)
    for name in RAW_TIMES.names:
        at = batch.schema.get_field_index(name)
        times = batch[name.removesuffix("_ms")]
        kept = pa.nulls(batch.num_rows, pa.int64())
        if times.null_count:
            kept = pc.if_else(times.is_null(), batch[name], kept)
            marks |= times.is_null().to_numpy(zero_copy_only=False)
        batch = batch.set_column(at, batch.schema.field(at), kept)
    return batch, marks if marks.any() else None


def completed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of an earlier release with the columns that it did not have."""
    held = batch.schema.names
    arrays = [
        batch[field.name].cast(field.type)
        if field.name in held
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def described(file: StagedFile) -> dict[str, Any]:
    """Return what the manifest takes over from a staged file."""
    left_out = {"task", "base", "new_rows", "odd_times", "damage", "damaged", "damaged_bytes"}
    return {name: value for name, value in structs.asdict(file).items() if name not in left_out}
