"""SharedWriter: the open descriptor of a mapped file, used by several threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocketlake.files.ops import Writer


class SharedWriter:
    """Keeps one open file for all that write to it, until it is given up.

    Thread-safety: any thread may borrow it and give it up.
    """

    __slots__ = ("_guard", "_is_ended", "_users", "_writer")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._writer: Writer | None = None
        self._users = 0
        self._is_ended = False

    @property
    def is_open(self) -> bool:
        """Whether a file is kept open."""
        return self._writer is not None

    def keep(self, writer: Writer) -> None:
        """Take a file that was opened."""
        self._writer = writer

    @contextmanager
    def borrow(self, opened: Callable[[], Writer], *, keeps: bool) -> Iterator[Writer]:
        """Lend the file; without one, what `opened` gives, for this once or to be kept."""
        with self._guard:
            writer = self._writer
            self._users += writer is not None
        is_shared = writer is not None
        if writer is None:
            writer = opened()
            if keeps:
                with self._guard:
                    if self._writer is None and not self._is_ended:
                        self._writer, self._users = writer, 1
                        is_shared = True
        try:
            yield writer
        finally:
            if not is_shared:
                writer.close()
            else:
                with self._guard:
                    self._users -= self._writer is writer

    def give_up(self, *, is_end: bool = False) -> None:
        """Close the file; with `is_end` no other one is kept.

        A file that another thread uses at the moment is closed when that thread lets it go: closed
        under it, its number could already be that of another file.
        """
        with self._guard:
            self._is_ended |= is_end
            writer, self._writer = self._writer, None
            is_used, self._users = self._users > 0, 0
        if writer is not None and not is_used:
            writer.close()
