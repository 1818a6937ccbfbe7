"""LogSync: the log of a store that another process writes, flushed by a reader."""

import logging
from pathlib import Path

from rocketlake.errors import FileAccessError
from rocketlake.files.store_dir import StoreDir

log = logging.getLogger(__name__)


class LogSync:
    """Syncs the files of a log, for readers that store their progress.

    Why: a reader sees records that their writer has not flushed. Progress that names such a record
    outlives it when the power goes; later messages take its queue offset, and are never read.

    Thread-safety: one thread.
    """

    def __init__(self, directory: StoreDir) -> None:
        self._directory = directory
        self._synced = -1  # files that begin before this offset were full, and are on the disk
        self._is_refused = False

    def run(self, end: int) -> bool:
        """Flush all records that end at or before an offset.

        Returns False if that is not permitted.

        Raises:
            FlushFailedError: they may not be there.
        """
        files = [file for file in self._directory.log_files() if file.base_offset < end]
        for file in files:
            if file.base_offset >= self._synced and not self._sync(file.path):
                return False
        if files:
            # Why: more may come to the file that holds the end, and to none before it. Files behind
            # it are made in advance, and have nothing yet.
            self._synced = files[-1].base_offset
        return True

    def _sync(self, path: Path) -> bool:
        ops = self._directory.ops
        try:
            writer = ops.open_writer(path)
        except FileAccessError as error:
            if ops.stat(path) is None:
                return True  # it expired meanwhile
            if not self._is_refused:
                self._is_refused = True
                log.info("records are read before they are surely on the disk: %s", error)
            return False
        try:
            writer.sync()
        finally:
            writer.close()
        return True
