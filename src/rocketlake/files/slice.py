"""Slice: bytes of a file that is held while they are read."""

from typing import Protocol

from rocketlake.closing import Closing


class Held(Protocol):
    """A file that was held."""

    def release(self) -> None:
        """Undo the hold."""
        ...


class Slice(Closing):
    """Readable bytes of a file, which is held until the end of the `with` block.

    Thread-safety: one thread at a time. `view` is not to be used behind the end of the block; what
    was made from it (an array, another view) stays valid memory, but no longer holds the file.
    """

    __slots__ = ("_file", "size", "start_offset", "view")

    def __init__(self, file: Held, start_offset: int, view: memoryview) -> None:
        self._file: Held | None = file
        self.start_offset = start_offset
        self.size = len(view)
        self.view = view

    def close(self) -> None:
        """Let the file go; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            # Why not `suppress`: it would take longer than all the rest.
            try:  # noqa: SIM105
                self.view.release()
            except BufferError:
                pass  # something made from it is still in use
            file.release()
