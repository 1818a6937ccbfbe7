"""Slice: bytes of a file that is held while they are read."""

from rocketlake.closing import Closing
from rocketlake.files.held_resource import HeldResource


class Slice(Closing):
    """Readable bytes of a file, which is held until the end of the `with` block.

    Thread-safety: one thread at a time. `view` must not be used after the block; what was made
    from it (an array, another view) stays valid memory, but no longer holds the file.
    """

    __slots__ = ("_file", "size", "start_offset", "view")

    def __init__(self, file: HeldResource, start_offset: int, view: memoryview) -> None:
        self._file: HeldResource | None = file
        self.start_offset = start_offset
        self.size = len(view)
        self.view = view

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            # Why not `suppress`: it would take longer than all the rest.
            try:  # noqa: SIM105
                self.view.release()
            except BufferError:
                pass  # something made from it is still in use
            file.release()
