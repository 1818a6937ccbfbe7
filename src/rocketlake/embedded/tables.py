"""The tables of an open store: written periodically, and checked against the queues at a start."""

import logging
from collections.abc import Mapping, Sequence

from rocketlake.delay.switch import DelaySwitch
from rocketlake.errors import RocketLakeError, StorePoisonedError
from rocketlake.files.background_service import BackgroundService
from rocketlake.metadata.book import Book
from rocketlake.metadata.offsets import OffsetBook
from rocketlake.model.queues import QueueKey

log = logging.getLogger(__name__)


class TableKeeper(BackgroundService):
    """Writes changed tables, periodically and when it is closed.

    Invariant: closed before the lock of the store is released; a closed book is never written.
    """

    def __init__(self, books: Sequence[Book], *, interval_ms: int) -> None:
        super().__init__("table-keeper", is_daemon=True)
        self._books = books
        self._interval_s = interval_ms / 1000
        self._is_poisoned = False

    def pause_s(self) -> float:
        """Return the time until the next write."""
        return self._interval_s

    def run_once(self) -> None:
        """Write changed tables; one that cannot be written does not stop the others.

        Raises:
            RocketLakeError: a table could not be written.
        """
        try:
            self._write()
        except StorePoisonedError as error:
            # Why: a retry cannot help. Puts and `close` report the same failure.
            if not self._is_poisoned:
                self._is_poisoned = True
                log.warning("tables that refer to the log are no longer written: %s", error)

    def run_last(self) -> None:
        """Write changed tables for the last time and close all of them.

        One that cannot be written does not stop the others.

        Raises:
            RocketLakeError: a table could not be written, or the log is poisoned.
        """
        self._write(is_last=True)

    def _write(self, *, is_last: bool = False) -> None:
        failed: RocketLakeError | None = None
        for book in self._books:
            try:
                book.close() if is_last else book.persist()
            except RocketLakeError as error:
                failed = failed or error
        if failed is not None:
            raise failed


def cap_progress(
    offsets: OffsetBook, delay: DelaySwitch, ends: Mapping[QueueKey, int]
) -> list[str]:
    """Set progress beyond the end of a queue to that end; return a line for each correction.

    `ends` has the next queue offset of each queue, as the start found it in log and queues. The
    corrected tables are on the disk when this returns.

    Why: the end of a log may be lost while the tables survive: a broker wrote them without flushing
    its log, files were restored from copies of different days, a damaged record cut the log. New
    messages get the queue offsets of the lost ones, and a group with progress beyond them would
    skip them. A queue that does not exist begins at 0.

    Raises:
        RocketLakeError: a table cannot be written.
    """

    def end_of(key: QueueKey) -> int:
        return ends.get(key, 0)

    notes = [str(excess) for excess in offsets.cap_progress(end_of)]
    # Order: on the disk before the first put. Otherwise a crash between that put and the next
    # write of the table leaves the old progress, which is no longer beyond the end of the queue.
    if notes:
        offsets.persist()
    notes += delay.cap_progress(end_of)
    for note in notes:
        log.warning("progress set back: %s", note)
    return notes
