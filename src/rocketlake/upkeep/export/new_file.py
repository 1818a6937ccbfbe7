"""A file that gets its name when it is complete."""

import io
from pathlib import Path

from rocketlake.errors import FileAccessError
from rocketlake.files.ops import Buffer, FileOps, Writer

_SUFFIX = ".part"


class NewFile(io.RawIOBase):
    """A stream into a file with a temporary name; `commit` gives it the final one.

    Durability: after `commit` the whole file is on the disk under its name. A crash before leaves
    `<name>.part`, which the next one replaces, and what had the name before.
    """

    def __init__(self, ops: FileOps, path: Path) -> None:
        """Create the temporary file.

        Raises:
            FileAccessError: it cannot be made there.
        """
        super().__init__()
        entry = ops.stat(path)
        if entry is not None and entry.is_dir:
            raise FileAccessError(str(path), "it is a directory; name a file in it")
        if ops.stat(path.parent) is None:
            raise FileAccessError(str(path), f"there is no directory {path.parent}")
        self._ops = ops
        self._path = path
        self._temporary = path.with_name(path.name + _SUFFIX)
        ops.unlink(self._temporary)
        self._writer: Writer | None = ops.create(self._temporary, 0)
        self.size = 0

    def writable(self) -> bool:
        """Return True: the stream can be written to."""
        return True

    def write(self, data: Buffer) -> int:  # type: ignore[override]  # any bytes are taken
        """Append; bytes for a file that was given up are dropped."""
        count = memoryview(data).nbytes
        if self._writer is not None:
            self._writer.write(self.size, data)
            self.size += count
        return count

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def commit(self) -> None:
        """Sync the file and give it its name."""
        assert self._writer is not None, "a file is finished once"
        self._writer.sync()
        self._let_go()
        self._ops.rename(self._temporary, self._path)
        self._ops.sync_dir(self._path.parent)

    def abandon(self) -> None:
        """Remove the temporary file; a finished file stays."""
        if self._writer is not None:
            self._let_go()
            self._ops.unlink(self._temporary)

    def _let_go(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
