"""Which index files of a directory can be used, and which must be built again."""

from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from rocketlake.errors import FileSizeError
from rocketlake.files.ops import FileOps
from rocketlake.format import layout, names
from rocketlake.format.index import IndexHeader
from rocketlake.store.index.index_file import IndexShape


class FoundIndex(Struct, frozen=True):
    """Files of an index, oldest first: those to use with their headers, and all behind them."""

    kept: list[tuple[Path, IndexHeader]]
    rejected: list[Path]
    lost: list[str]
    """Names of files that should be there."""


def find_index_files(
    ops: FileOps,
    path: Path,
    shape: IndexShape,
    flushed_until: int | None,
    *,
    expected: Collection[str] = (),
) -> FoundIndex:
    """Look at the index files of a directory; nothing is changed.

    `flushed_until` is the checkpoint's store time after an unclean stop, None after a clean one.
    Files of no length, which a crash leaves, are among the rejected; so are all behind one that is
    `expected` and not there.

    Raises:
        FileSizeError: a file has another size than its shape asks for.
    """
    kept: list[tuple[Path, IndexHeader]] = []
    rejected: list[Path] = []
    entries = ops.entries(path)
    lost = sorted(set(expected) - {entry.name for entry in entries})
    for entry in entries:
        if entry.is_dir or not names.is_index_name(entry.name):
            continue
        if entry.size not in (0, shape.file_size):
            raise FileSizeError(str(entry.path), size=entry.size, expected=shape.file_size)
        is_behind = bool(rejected) or (bool(lost) and entry.name > lost[0])
        header = _read_header(ops, entry.path) if entry.size and not is_behind else None
        before = kept[-1][1] if kept else None
        if header is not None and _is_usable(header, before, shape, flushed_until):
            kept.append((entry.path, header))
        else:
            rejected.append(entry.path)
    return FoundIndex(kept, rejected, lost)


def _read_header(ops: FileOps, path: Path) -> IndexHeader:
    reader = ops.open_reader(path)
    try:
        return IndexHeader.decode(reader.read(0, layout.INDEX_HEADER_SIZE))
    finally:
        reader.close()


def _is_usable(
    header: IndexHeader, before: IndexHeader | None, shape: IndexShape, flushed_until: int | None
) -> bool:
    if not 0 <= header.begin_physical_offset <= header.end_physical_offset:
        return False
    if header.entry_count > shape.entries:
        return False
    return flushed_until is None or _is_flushed(header, before, shape, flushed_until)


def _is_flushed(
    header: IndexHeader, before: IndexHeader | None, shape: IndexShape, flushed_until: int
) -> bool:
    """Whether all of a file is on the disk, although the store was not stopped cleanly."""
    # Why: the reference (IndexService, load) trusts every file that does not end behind the
    # checkpoint's time, also one that was never filled or whose header never reached the disk, and
    # loses its keys. Of several full ones that end at that very time only the first is known to be
    # flushed.
    end = header.end_timestamp
    if header.entry_count < shape.entries or end > flushed_until:
        return False
    if before is None:
        return True
    return end > before.end_timestamp or (end == before.end_timestamp < flushed_until)
