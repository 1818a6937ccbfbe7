"""SearchBudget: how many bytes a search for records in damaged bytes may read."""

from typing import Final

_TIMES: Final = 8
_ALWAYS: Final = 4096


class SearchBudget:
    """The bytes that may be read to check what looks like records in one file.

    Why: each place that looks like a record claims a size, and the claims may overlap. Without a
    budget a file of such places costs the square of its size. Small records are checked in any
    case, so that the work is bounded by a multiple of the file's size.
    """

    def __init__(self, file_size: int) -> None:
        self._left = _TIMES * file_size

    def takes(self, size: int) -> bool:
        """Tell whether a record of a size may be read, and count it."""
        if size > max(self._left, _ALWAYS):
            return False
        self._left -= size
        return True
