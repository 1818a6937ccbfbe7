"""One Parquet file of an archive while an executor writes it.

Batches are gathered into row groups, so that memory is bounded and row groups are not tiny; what
the manifest says of the file is counted on the way.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from rocketlake.files.ops import Buffer, FileOps
from rocketlake.spark.reading.archive.checked_file import footer_of
from rocketlake.upkeep.export.new_file import NewFile

GROUP_BYTES: Final = 32 << 20
GROUP_ROWS: Final = 128 << 10
_US_PER_MS: Final = 1000
_NO_TIMES: Final = {"store": (0, 0), "born": (0, 0)}
"""What a file says whose messages have none: a search by time never wants it."""


class StagedFile(Struct, frozen=True, kw_only=True):
    """The report of an executor about a file it wrote."""

    task: int
    staged: str
    """Below the directory of the archive."""
    date: str
    base: str | None
    """The file whose messages it begins with."""
    queues: dict[int, tuple[int, int]]
    rows: int
    new_rows: int
    bytes: int
    log_bytes: int
    min_store_time: int
    max_store_time: int
    min_born_time: int
    max_born_time: int
    sha256: str
    footer_sha256: str = ""
    odd_times: int = 0
    """Of the new messages: how many have a time that no calendar has."""
    damage: tuple[str, ...] = ()
    """What its task has passed over, the first places; with the first file of a task."""
    damaged: int = 0
    """How many places that were."""
    damaged_bytes: int = 0
    """Of the log, as far as units tell how long their records are."""


class _HashedFile(NewFile):
    """A file that is summed while it is written."""

    def __init__(self, ops: FileOps, path: Path) -> None:
        super().__init__(ops, path)
        self.sum = hashlib.sha256()
        self._end: list[bytes] | None = None

    def write(self, data: Buffer) -> int:  # type: ignore[override]  # any bytes are taken
        self.sum.update(data)
        if self._end is not None:
            self._end.append(bytes(data))
        return super().write(data)

    def begin_footer(self) -> None:
        """Note that the messages are written: what follows ends with the footer."""
        self._end = []

    def footer_sum(self) -> str:
        """Return the sha256 of the footer."""
        return hashlib.sha256(footer_of(b"".join(self._end or ()))).hexdigest()


class ParquetFile:
    """A file that is being written.

    Durability: after `finish` it is on the disk. A crash before leaves an unreferenced file.
    """

    def __init__(self, ops: FileOps, path: Path, schema: pa.Schema, compression: str) -> None:
        self._file = _HashedFile(ops, path)
        self._writer = pq.ParquetWriter(
            self._file, schema, compression=compression, write_page_checksum=True
        )
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._held = self._held_rows = 0
        self._stats = _Stats()
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append messages."""
        self._stats.add(batch)
        self.rows += batch.num_rows
        self._batches.append(batch.select(self._schema.names))
        self._held += batch.nbytes
        self._held_rows += batch.num_rows
        if self._held >= GROUP_BYTES or self._held_rows >= GROUP_ROWS:
            self._write_group()

    def finish(self) -> dict[str, Any]:
        """Have it on the disk; return what a `StagedFile` says of its content."""
        self._write_group()
        self._file.begin_footer()
        self._writer.close()
        self._file.commit()
        return {
            **self._stats.fields(),
            "rows": self.rows,
            "bytes": self._file.size,
            "sha256": self._file.sum.hexdigest(),
            "footer_sha256": self._file.footer_sum(),
        }

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._file.abandon()

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches, self._held, self._held_rows = [], 0, 0


class _Stats:
    """What there is to say of the messages of a file."""

    def __init__(self) -> None:
        self._queues: dict[int, tuple[int, int]] = {}
        self._log_bytes = 0
        self._times: dict[str, tuple[int, int]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        ids = batch["queue_id"].to_numpy(zero_copy_only=False)
        offsets = batch["queue_offset"].to_numpy(zero_copy_only=False)
        for queue_id in np.unique(ids).tolist():
            inside = offsets[ids == queue_id]
            low, high = int(inside.min()), int(inside.max()) + 1
            before = self._queues.get(queue_id, (low, high))
            self._queues[queue_id] = (min(low, before[0]), max(high, before[1]))
        self._log_bytes += pc.sum(batch["store_size"]).as_py() or 0
        for name in ("store", "born"):
            found = pc.min_max(batch[f"{name}_timestamp"].cast(pa.int64()))
            low, high = found["min"].as_py(), found["max"].as_py()
            if low is None:
                continue  # no message has a time that a calendar has
            before = self._times.get(name, (low, high))
            self._times[name] = (min(low, before[0]), max(high, before[1]))

    def fields(self) -> dict[str, Any]:
        times = {
            f"{end}_{name}_time": value // _US_PER_MS
            for name, pair in {**_NO_TIMES, **self._times}.items()
            for end, value in zip(("min", "max"), pair, strict=True)
        }
        return {"queues": dict(sorted(self._queues.items())), "log_bytes": self._log_bytes, **times}


def read_batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the content of a file, a row group at a time at most."""
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=8192, columns=columns, use_threads=False)


def sum_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
