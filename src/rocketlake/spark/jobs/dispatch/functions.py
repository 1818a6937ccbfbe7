"""Custom dispatchers as DataFrame functions.

A function gets the DataFrame of the records that were dispatched, and the range of the log they
are of. How far each function has come is kept in `progress.json`. The range is written there before
the function is called: after a kill it is called with the same records again, so that one which
writes by range (overwrites what it finds under that name) does so once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct, structs

from rocketlake.embedded.dispatch_files import ExternalDispatch, ProgressNote
from rocketlake.errors import ConfigError
from rocketlake.files.ops import PosixFileOps
from rocketlake.files.store_dir import OffsetFile
from rocketlake.spark.jobs.dispatch.parts import (
    DISPATCH_CHECKS,
    LogShape,
    Part,
    PartWalk,
    cut,
    require_visible,
)
from rocketlake.spark.reading.batches import BatchMaker
from rocketlake.spark.schema import MESSAGE_SCHEMA, arrow_schema
from rocketlake.store.offline import Readers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DispatchRange(Struct, frozen=True):
    """The records that a function receives: those that begin in a range of the log."""

    begin: int
    end: int

    @property
    def name(self) -> str:
        """A name for the output of these records, the same if they come again."""
        return f"{self.begin:020d}-{self.end:020d}"


DispatchFunction: TypeAlias = "Callable[[DataFrame, DispatchRange], object]"
"""A custom dispatcher."""


class Functions:
    """The custom dispatchers of one job, by name."""

    def __init__(
        self,
        spark: object,
        root: Path,
        functions: Mapping[str, DispatchFunction],
        external: ExternalDispatch,
    ) -> None:
        if functions and spark is None:
            raise ConfigError("custom dispatchers need a SparkSession")
        self._spark = cast("SparkSession", spark)
        self._root = root
        self._functions = functions
        self._external = external

    def run(
        self,
        log_min: int,
        end: int,
        log_files: Sequence[OffsetFile],
        progress: ProgressNote | None = None,
    ) -> ProgressNote | None:
        """Pass each function the records up to an offset that it has not had; return the progress.

        Raises whatever a function raises: the next run gives it the same records again.
        """
        if not self._functions:
            return None
        progress = progress or self._external.progress()
        shape = LogShape(
            root=self._root,
            log_files=[file for file in log_files if file.size],
            log_file_size=max((file.size for file in log_files), default=0),
            checks=DISPATCH_CHECKS,
            end=end,
            passes_bad=False,
        )
        for name in self._functions:
            progress = self._catch_up(name, shape, max(log_min, 0), progress)
        return progress

    def _catch_up(
        self,
        name: str,
        shape: LogShape,
        log_min: int,
        progress: ProgressNote,
    ) -> ProgressNote:
        while True:
            pending = progress.pending.get(name)
            if pending is None:
                begin = max(progress.functions.get(name, log_min), log_min)
                if begin >= shape.end:
                    return progress
                pending = (begin, shape.end)
                both = {**progress.pending, name: pending}
                progress = structs.replace(progress, pending=both)
                self._external.save_progress(progress)
            given = DispatchRange(*pending)
            within = structs.replace(shape, end=min(given.end, shape.end))
            self._functions[name](self._records(within, max(given.begin, log_min)), given)
            rest = {other: found for other, found in progress.pending.items() if other != name}
            done = {**progress.functions, name: given.end}
            progress = structs.replace(progress, pending=rest, functions=done)
            self._external.save_progress(progress)

    def _records(self, shape: LogShape, begin: int) -> "DataFrame":
        # Why whole files: no check follows here that parts fit together. Where a file begins, or
        # where the range before ended, a record surely does.
        parts = cut(shape, begin, part_bytes=max(shape.end, 1))
        numbers = self._spark.range(0, max(len(parts), 1), 1, max(len(parts), 1))
        return numbers.mapInArrow(_read_parts(shape, parts, self._root.name), MESSAGE_SCHEMA)


def _read_parts(
    shape: LogShape, parts: Sequence[Part], broker: str
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(batches: Iterator[Any]) -> Iterator[Any]:
        maker = BatchMaker(arrow_schema(MESSAGE_SCHEMA), broker=broker)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number < len(parts):
                    yield from read_part(shape, parts[number], maker)

    return read


def read_part(shape: LogShape, part: Part, maker: BatchMaker) -> Iterator[Any]:
    """Yield the records of a part as batches."""
    require_visible(shape, part)
    readers = Readers(PosixFileOps())
    try:
        for columns in PartWalk(shape, part, readers).records():
            yield from maker.batches(columns)
    finally:
        readers.close()
