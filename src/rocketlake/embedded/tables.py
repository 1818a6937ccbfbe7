"""Tables: topics.json and consumerOffset.json of an open store, written from time to time."""

from collections.abc import Sequence

from rocketlake.files.service import BackgroundService
from rocketlake.metadata.book import Book


class TableKeeper(BackgroundService):
    """Writes the tables that changed, every so often and when it is closed."""

    def __init__(self, books: Sequence[Book], *, interval_ms: int) -> None:
        super().__init__("table-keeper", is_daemon=True)
        self._books = books
        self._interval_s = interval_ms / 1000

    def pause_s(self) -> float:
        """Return how long to wait for the next write."""
        return self._interval_s

    def run_once(self) -> None:
        """Write what changed."""
        for book in self._books:
            book.persist()
