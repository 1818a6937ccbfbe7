"""Units that dispatch has not written yet, and the columns in which units of all kinds are read."""

from array import array

import numpy as np
import numpy.typing as npt

PLACE_DTYPE = np.dtype(
    [
        ("physical_offset", np.int64),
        ("size", np.int64),
        ("tags_code", np.int64),
        ("queue_offset", np.int64),
        ("batch_size", np.int64),
    ]
)
"""One unit of either kind, with the queue offset it stands for."""

Places = npt.NDArray[np.void]


class OwedUnits:
    """Units that dispatch has not written yet, in order."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // 5

    def add(self, place: tuple[int, int, int, int, int]) -> None:
        """Append offset, size, tags code, queue offset and batch size."""
        self._numbers.extend(place)

    def add_all(self, places: npt.NDArray[np.int64]) -> None:
        """Append rows of the same numbers."""
        self._numbers.frombytes(places.tobytes())

    @property
    def physical_end(self) -> int:
        """Where the record of the last unit ends; -1 without units."""
        return self._numbers[-5] + self._numbers[-4] if self._numbers else -1

    def clear(self) -> None:
        """Remove all units."""
        del self._numbers[:]

    def places(self) -> Places:
        """Return the units as columns."""
        return np.frombuffer(bytes(self._numbers), PLACE_DTYPE)
