"""PagePrefetcher: prepares pages ahead of the appends, and releases those of full files."""

from collections import deque
from collections.abc import Callable
from typing import Final

from rocketlake.errors import FlushFailedError
from rocketlake.files.background_service import BackgroundService
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_queue import MappedFileQueue

AHEAD_BYTES: Final = 16 << 20
SYNCED_AHEAD_BYTES: Final = 2 << 20


class PagePrefetcher(BackgroundService):
    """Brings the pages that will be written next into memory, without the interpreter lock.

    Why: the first write to a fresh page takes as long as ten to a resident one, and would be made
    inside the append lock. With a flush for every put it costs even more: the file system records
    that the page is in use, with a write of its own. So the pages are flushed ahead, too.

    Thread-safety: any thread may wake it and hand in full files.
    """

    def __init__(
        self, files: MappedFileQueue, *, on_failed: Callable[[FlushFailedError], None] | None = None
    ) -> None:
        """With `on_failed` the pages are flushed before records are written into them.

        It gets the error of such a flush: the system reports a failed write once, so that the
        flush of a put would not see it.
        """
        super().__init__("rocketlake-page-prefetcher", is_daemon=True)
        self._files = files
        self._on_failed = on_failed
        self._full: deque[MappedFile] = deque()

    def roll(self, file: MappedFile) -> None:
        """Release the memory of a full file."""
        self._full.append(file)
        self.wakeup()

    def run_once(self) -> None:
        """Unlock full files, and bring the next pages of the last one into memory."""
        while self._full:
            self._full.popleft().munlock()
        last = self._files.last_file()
        if last is None:
            return
        if self._on_failed is None:
            last.populate_ahead(AHEAD_BYTES)
        elif last.populate_ahead(SYNCED_AHEAD_BYTES):
            try:
                last.sync()
            except FlushFailedError as error:
                self._on_failed(error)

    def run_last(self) -> None:
        """Do nothing more."""
        self._full.clear()
