"""Files of an archive as a reader opens them: found under the name they have, and checked.

| Part of a file | What notices a changed byte |
| --- | --- |
| the pages | the CRC32 in each page's header |
| the footer, which says where the pages lie | its sha256 in the manifest |
| the file as a whole | its size in the manifest, and the rows that the footer counts |

A file that an earlier release wrote has only the last line, until `archive` or `archive-compact`
writes it anew.
"""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from rocketlake.errors import StoreError
from rocketlake.files.ops import PosixFileOps
from rocketlake.metadata.archive_manifest import (
    MANIFEST,
    RETIRED,
    ArchivedFile,
    Manifest,
    load_manifest,
)

READ_ERRORS: Final = (OSError, ValueError, KeyError, IndexError, TypeError, pa.ArrowException)
"""What Arrow raises for bytes that make no sense."""

_MAGIC: Final = b"PAR1"
_TAIL: Final = 8  # the length of the footer, and the magic
_TAIL_READ: Final = 64 << 10
_LOOKS: Final = 3


class DamagedFileError(Exception):
    """A file of an archive is not what the manifest says, or is gone; says what is wrong."""


class OpenFile(Struct, frozen=True):
    """A file that was opened and checked."""

    parquet: pq.ParquetFile
    is_exact: bool
    """Whether it is as the manifest said when the read was planned, and has not grown since."""


@contextmanager
def open_archived(directory: Path, file: ArchivedFile) -> Iterator[OpenFile]:
    """Open a file and check its size and its footer.

    Raises:
        DamagedFileError: the file is damaged, or the manifest names it and it is gone.
        StoreError: this machine does not see the archive, or the file left it meanwhile.
    """
    source, known = _open_known(directory, file)
    size = source.size()
    with source:
        if known is not None:
            _check_footer(source, size, known)
        try:
            parquet = pq.ParquetFile(source, page_checksum_verification=True)
        except READ_ERRORS as error:
            raise DamagedFileError(str(error)) from error
        with parquet:
            if known is not None and parquet.metadata.num_rows != known.rows:
                rows = parquet.metadata.num_rows
                raise DamagedFileError(f"it has {rows} messages, the manifest says {known.rows}")
            yield OpenFile(parquet, is_exact=size == file.bytes)


def _open_known(directory: Path, file: ArchivedFile) -> tuple[pa.NativeFile, ArchivedFile | None]:
    """Open a file; return with it what a manifest says of it, None if it has left the archive.

    The file may have grown since the manifest was read, and may do so once more meanwhile.
    """
    known: ArchivedFile | None = file
    size = 0
    for _ in range(_LOOKS):
        source = _open(directory, file)
        if known is None or source.size() == known.bytes:
            return source, known
        size = source.size()
        source.close()
        known = _named_now(directory, file.path)
    raise DamagedFileError(f"it has {size} bytes, the manifest says {file.bytes}")


def group_batches(
    parquet: pq.ParquetFile, group: int, columns: list[str], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a row group.

    Raises:
        DamagedFileError: some cannot be read; those that were yielded are good.
    """
    wanted, count = parquet.metadata.row_group(group).num_rows, 0
    try:
        for batch in parquet.iter_batches(
            rows_max, row_groups=[group], columns=columns, use_threads=False
        ):
            count += batch.num_rows
            yield batch
    except MemoryError:
        raise
    except READ_ERRORS as error:
        raise DamagedFileError(f"row group {group}: {error}") from error
    if count != wanted:
        raise DamagedFileError(f"row group {group}: {count} of {wanted} messages can be read")


def footer_of(data: bytes) -> bytes:
    """Return the footer of a Parquet file, given the end of it; nothing if there is none."""
    if len(data) < _TAIL or data[-4:] != _MAGIC:
        return b""
    size = int.from_bytes(data[-_TAIL:-4], "little") + _TAIL
    return data[-size:] if size <= len(data) else b""


def _check_footer(source: pa.NativeFile, size: int, known: ArchivedFile) -> None:
    if not known.footer_sha256:
        return  # an earlier release wrote the file
    try:
        end = source.read_at(min(size, _TAIL_READ), max(size - _TAIL_READ, 0))
        if end[-4:] == _MAGIC:
            wanted = int.from_bytes(end[-_TAIL:-4], "little") + _TAIL
            if len(end) < wanted <= size:
                end = source.read_at(wanted, size - wanted)
    except OSError as error:
        raise DamagedFileError(str(error)) from error
    if hashlib.sha256(footer_of(end)).hexdigest() != known.footer_sha256:
        raise DamagedFileError("the sha256 of its footer is not that of the manifest")


def _open(directory: Path, file: ArchivedFile) -> pa.NativeFile:
    """Open a file under the name it has, the one it had before, or the one it got since.

    Order: that in which a file gets its names. One that has left a name is found under a later one.
    """
    for name in (file.staged, file.path, f"{RETIRED}/{file.path}"):
        if name is not None:
            try:
                return pa.OSFile(str(directory / name))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"{directory / name} cannot be read: {error}") from error
    if _named_now(directory, file.path) is not None:
        raise DamagedFileError(f"it is gone, and {MANIFEST} names it")
    raise StoreError(
        f"{directory / file.path} is not in the archive any more: archive-drop or archive-compact"
        " ran meanwhile with a --grace shorter than this query; run the query again"
    )


def _named_now(directory: Path, path: str) -> ArchivedFile | None:
    """Return what the manifest says of a file by now; None if it names no such file any more."""
    manifest = _load(directory)
    return next((file for file in manifest.files if file.path == path), None)


def _load(directory: Path) -> Manifest:
    found = load_manifest(PosixFileOps(), directory)
    if found is None:
        raise StoreError(
            f"the executor on {socket.gethostname()} cannot see {directory / MANIFEST}; the archive"
            " must be shared with, or copied to, every executor under the same path"
        )
    return found
