"""Staged rows: one file per task attempt, complete and durable before it gets its name.

| Part | What it is |
| --- | --- |
| pieces | staged records, back to back (`format.bulk`) |
| footer | JSON: shape, topics, and place, checksum and rows of each piece |
| tail | u32 size of the footer, u32 its checksum, `RLSTAGE1` |

The footer holds the checksums of all pieces, so its own checksum stands for the whole file.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from struct import Struct as Layout
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Struct

from rocketlake import failpoint
from rocketlake.embedded.bulk_types import RecordShape
from rocketlake.errors import StoreError
from rocketlake.files.ops import FileOps, Writer
from rocketlake.format.record import crc31
from rocketlake.spark.sink.options import new_token

_TAIL: Final = Layout("<II8s")
_MAGIC: Final = b"RLSTAGE1"
SUFFIX: Final = ".rows"
# Why: the disk writes while rows are encoded, instead of everything at the end.
_SYNC_STEP: Final = 32 << 20


class Piece(Struct, frozen=True, array_like=True):
    """A part of a staged file."""

    position: int
    size: int
    crc: int
    rows: int


class TopicUse(Struct, frozen=True, kw_only=True):
    """How the rows of one task use a topic."""

    topic: str
    queue_max: int = -1
    """The highest queue id of a row; -1: no row has one."""
    queue_row: int = -1
    """The row that has it."""


class Footer(Struct, frozen=True, kw_only=True):
    """The footer of a staged file."""

    partition: int
    rows: int
    shape: RecordShape
    topics: list[TopicUse]
    pieces: list[Piece]
    body_max: int = 0
    """The size of the largest body."""
    record_max: int = 0
    """The size of the largest record."""


class StagedFile(Struct, frozen=True, kw_only=True):
    """The identity of a staged file, for the commit."""

    path: str
    rows: int
    crc: int
    """Of the footer."""


class StageWriter:
    """Writes a staged file; one that is not finished is removed.

    Durability: when `finish` returns, the file is on the disk under its name.
    """

    def __init__(self, ops: FileOps, folder: Path, partition: int) -> None:
        """Begin a file.

        Raises:
            FileAccessError: the folder cannot be made or written.
        """
        self._ops = ops
        self._path = folder / f"{partition:05d}-{new_token()}{SUFFIX}"
        self._part = self._path.with_suffix(".part")
        self._end = 0
        self._synced = 0
        self._syncing: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(1, "rocketlake-staging")
        self.pieces: list[Piece] = []
        ops.mkdirs(folder)
        self._writer: Writer | None = ops.create(self._part, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._writer is not None:
            self._writer.close()
            # Why: the folder stays. Other tasks may be about to make their files in it; the abort
            # on the driver removes it.
            self._ops.unlink(self._part)

    def add(self, records: bytes | bytearray, rows: int) -> None:
        """Write some records.

        Raises:
            DiskFullError, FileAccessError: they cannot be written.
        """
        assert self._writer is not None, "not finished"
        self._writer.write(self._end, records)
        self.pieces.append(Piece(self._end, len(records), crc31(records), rows))
        self._end += len(records)
        if self._end - self._synced >= _SYNC_STEP:
            self._synced = self._end
            self._syncing.append(self._pool.submit(self._writer.sync))

    def finish(self, footer: Footer) -> StagedFile:
        """Sync the file and give it its name.

        Raises:
            FlushFailedError: the file may not be durable.
        """
        assert self._writer is not None, "not finished"
        data = msgspec.json.encode(footer)
        crc = crc31(data)
        self._writer.write(self._end, data + _TAIL.pack(len(data), crc, _MAGIC))
        for each in self._syncing:
            each.result()  # the kernel reports a failed write only once
        self._writer.sync()
        self._writer.close()
        self._writer = None
        failpoint.hit("stage.before")
        self._ops.rename(self._part, self._path)
        self._ops.sync_dir(self._path.parent)
        failpoint.hit("stage.after")
        return StagedFile(path=str(self._path), rows=footer.rows, crc=crc)


class StageReader:
    """Reads a staged file, checking every piece by its checksum."""

    def __init__(self, ops: FileOps, staged: StagedFile) -> None:
        """Open a file and read its footer.

        Raises:
            StoreError: the file is missing, or is not the one that was staged.
        """
        self._path = Path(staged.path)
        entry = ops.stat(self._path)
        if entry is None:
            raise StoreError(f"staged rows are gone: there is no {self._path}")
        self._reader = ops.open_reader(self._path)
        try:
            self.footer = self._read_footer(entry.size, staged.crc)
        except BaseException:
            self._reader.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def pieces(self) -> Iterator[tuple[Piece, bytes]]:
        """Yield the pieces in order.

        Raises:
            StoreError: a checksum does not match.
        """
        for piece in self.footer.pieces:
            yield piece, self.read(piece)

    def read(self, piece: Piece) -> bytes:
        """Return the records of a piece.

        Raises:
            StoreError: the checksum does not match.
        """
        data = self._reader.read(piece.position, piece.size)
        if len(data) != piece.size or crc31(data) != piece.crc:
            raise self._damaged(f"the rows at {piece.position}")
        return data

    def _read_footer(self, size: int, crc: int) -> Footer:
        tail = self._reader.read(max(size - _TAIL.size, 0), _TAIL.size)
        if len(tail) != _TAIL.size:
            raise self._damaged("its end")
        footer_size, footer_crc, magic = _TAIL.unpack(tail)
        data = self._reader.read(max(size - _TAIL.size - footer_size, 0), footer_size)
        if magic != _MAGIC or footer_crc != crc or crc31(data) != crc:
            raise self._damaged("its end")
        return msgspec.json.decode(data, type=Footer)

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"staged rows are damaged: {what} in {self._path} has another checksum")
