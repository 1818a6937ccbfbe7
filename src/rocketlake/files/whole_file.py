"""Small files that are read and replaced as a whole: notes, marks, manifests."""

from pathlib import Path
from typing import Final

from rocketlake.errors import FileAccessError
from rocketlake.files.ops import FileOps

WHOLE_SIZE_MAX: Final = 512 << 20
"""Larger files are no tables and notes; reading one would take all memory."""
_PIECE: Final = 1 << 20


def read_whole(ops: FileOps, path: Path) -> bytes | None:
    """Return all bytes of a file; None if it is not there.

    Raises:
        FileAccessError: it cannot be read, or is too large to be such a file.
    """
    if ops.stat(path) is None:
        return None
    # Why in pieces: between a look at its size and the opening it may be replaced by a longer one.
    data = bytearray()
    reader = ops.open_reader(path)
    try:
        while piece := reader.read(len(data), _PIECE):
            data += piece
            if len(data) > WHOLE_SIZE_MAX:
                raise FileAccessError(str(path), f"it has more than {WHOLE_SIZE_MAX} bytes")
    finally:
        reader.close()
    return bytes(data)


def replace_whole(ops: FileOps, path: Path, data: bytes) -> None:
    """Put these bytes in the place of a file, at once.

    Durability: when this returns they are on the disk; a crash before leaves the old ones or these.

    Raises:
        DiskFullError, FileAccessError: they cannot be written; the old file is untouched.
    """
    fresh = path.with_name(path.name + ".tmp")
    write_whole(ops, fresh, data)
    ops.rename(fresh, path)
    ops.sync_dir(path.parent)


def write_whole(ops: FileOps, path: Path, data: bytes) -> None:
    """Make a new file of these bytes, on the disk; one of that name is removed first.

    The name itself is safe only after the directory was synced.
    """
    ops.unlink(path)
    writer = ops.create(path, 0)
    try:
        writer.write(0, data)
        writer.sync()
    except BaseException:
        writer.close()
        ops.unlink(path)
        raise
    writer.close()
