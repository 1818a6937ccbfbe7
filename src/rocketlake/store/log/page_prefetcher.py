"""PagePrefetcher: keeps pages ready ahead of who appends, and lets those of full files go."""

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

    Why: the first write to a fresh page takes as long as ten to one that is there, and it would be
    made inside the append lock. Where every put is flushed, it costs even more: the file system has
    to note that the page is in use, with a write of its own. So the pages are flushed ahead, too.

    Thread-safety: any thread may wake it and hand in full files.
    """

    def __init__(
        self, files: MappedFileQueue, *, on_failed: Callable[[FlushFailedError], None] | None = None
    ) -> None:
        """With `on_failed` pages are on the disk, as they are, before anything is in them.

        It is told if that fails: the system tells of a failed write once, so that the flush of a
        put would not hear of it any more.
        """
        super().__init__("rocketlake-page-prefetcher", is_daemon=True)
        self._files = files
        self._on_failed = on_failed
        self._full: deque[MappedFile] = deque()

    def roll(self, file: MappedFile) -> None:
        """Let the pages of a file that is full be taken out of memory."""
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
