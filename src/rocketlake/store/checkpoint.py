"""StoreCheckpoint: up to when each family of a running store was last known good.

The page is `format.checkpoint`. Each value has an owner, which sets it once its records are on the
disk; `flush` writes them all, but no time beyond that of the log.
"""

import logging
import threading
from pathlib import Path

from msgspec import structs

from rocketlake import failpoint
from rocketlake.files.ops import FileOps, Writer
from rocketlake.format import layout, names
from rocketlake.format.checkpoint import FIELDS_SIZE, FIELDS_SIZE_4X, Checkpoint

log = logging.getLogger(__name__)


class StoreCheckpoint:
    """The file `checkpoint` of one store.

    Thread-safety: each value is one integer with one owner: the flush of the log, of the queues
    and of the index, replication, dispatch. Anybody may read them and call `flush`.

    Durability: `flush` writes the page in place, in one call, and returns once it is on the disk.
    A crash leaves the old values or the new ones. What was never written reads as 0, so that
    recovery begins at the first file.

    Invariants: the file never says that queues or index are flushed up to a time beyond that of the
    log: a power cut may take records whose units and keys are on the disk.
    """

    def __init__(self, ops: FileOps, root: Path, *, is_4x: bool = False) -> None:
        """With `is_4x` only the first three values are read and written."""
        self._ops = ops
        self._path = root / names.CHECKPOINT
        self._fields_size = FIELDS_SIZE_4X if is_4x else FIELDS_SIZE
        self._page = bytes(layout.CHECKPOINT_SIZE)
        self._writing = threading.Lock()
        self.physical_timestamp = 0
        self.queue_timestamp = 0
        self.index_timestamp = 0
        self.primary_flushed_offset = 0
        self.confirm_offset = 0
        self.queue_physical_offset = 0
        """RocketMQ 5.5 recovers from there; 0: by time, as releases before do."""
        self.keeps_queue_offset = False
        """Whether that is kept up to date: 5.5 has written to the store."""

    def load(self) -> None:
        """Take the values of the file; those it lacks, as a short or missing one does, are 0."""
        entry = self._ops.stat(self._path)
        data = b""
        if entry is not None and not entry.is_dir:
            reader = self._ops.open_reader(self._path)
            try:
                data = reader.read(0, layout.CHECKPOINT_SIZE)
            finally:
                reader.close()
        self._page = data.ljust(layout.CHECKPOINT_SIZE, b"\0")
        found = Checkpoint.decode(data[: self._fields_size])
        self.physical_timestamp = found.physical_timestamp
        self.queue_timestamp = found.queue_timestamp
        self.index_timestamp = found.index_timestamp
        self.primary_flushed_offset = found.primary_flushed_offset
        self.confirm_offset = found.confirm_offset
        self.queue_physical_offset = found.queue_physical_offset
        self.keeps_queue_offset = found.queue_physical_offset > 0
        log.debug("checkpoint loaded path=%s size=%d values=%r", self._path, len(data), found)

    def values(self) -> Checkpoint:
        """Return the values as they are now."""
        return Checkpoint(
            self.physical_timestamp,
            self.queue_timestamp,
            self.index_timestamp,
            self.primary_flushed_offset,
            self.confirm_offset,
            self.queue_physical_offset,
        )

    def flush(self) -> None:
        """Have the values on the disk.

        Raises:
            FlushFailedError: they may not be there.
            DiskFullError: there is no space for the file, which does not exist yet.
        """
        with self._writing:
            page = self._limited().encode()[: self._fields_size]
            # Compat: as in StoreCheckpoint#flush; that of 4.x knows three values and leaves the
            # rest, which a 5.x may have written, as it is.
            page += self._page[len(page) :]
            failpoint.hit("checkpoint.before")
            writer, is_new = self._open()
            try:
                writer.write(0, page)
                writer.sync()
            finally:
                writer.close()
            if is_new:
                self._ops.sync_dir(self._path.parent)
            self._page = page
            failpoint.hit("checkpoint.after")

    def _limited(self) -> Checkpoint:
        """Return the values, those of queues and index not beyond the log's."""
        values = self.values()
        return structs.replace(
            values,
            queue_timestamp=min(values.queue_timestamp, values.physical_timestamp),
            index_timestamp=min(values.index_timestamp, values.physical_timestamp),
        )

    def lower_to(self, timestamp: int, log_end: int) -> None:
        """Have nothing in the file beyond the last record, as it is after a log has lost others.

        Raises:
            FlushFailedError: the file may say something else.
        """
        newest = max(self.physical_timestamp, self.queue_timestamp, self.index_timestamp)
        if newest > timestamp or self.queue_physical_offset > log_end:
            self.physical_timestamp = min(self.physical_timestamp, timestamp)
            self.queue_timestamp = min(self.queue_timestamp, timestamp)
            self.index_timestamp = min(self.index_timestamp, timestamp)
            self.queue_physical_offset = min(self.queue_physical_offset, log_end)
            self.flush()

    def lower_units_to(self, offset: int) -> None:
        """Say of no unit behind an offset that it is on the disk; times say nothing of those.

        Raises:
            FlushFailedError: the file may say something else.
        """
        if self.queue_physical_offset > offset:
            self.queue_physical_offset = offset
            self.flush()

    def _open(self) -> tuple[Writer, bool]:
        if self._ops.stat(self._path) is not None:
            return self._ops.open_writer(self._path), False
        return self._ops.create(self._path, layout.CHECKPOINT_SIZE), True
