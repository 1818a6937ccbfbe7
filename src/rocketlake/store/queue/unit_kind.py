"""UnitKind: what differs between the units of plain and of batch queues."""

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rocketlake.format import layout, queue_unit

Units = npt.NDArray[np.void]
"""Units as columns, of a plain or of a batch queue."""


class UnitKind(Struct, frozen=True):
    """What differs between the two kinds of queue files."""

    unit_size: int
    dtype: np.dtype[np.void]
    default_file_size: int
    is_batch: bool

    def decode(self, data: bytes | bytearray | memoryview) -> Units:
        """See whole units as columns; a cut-off last one is left out."""
        return np.frombuffer(data, self.dtype, len(data) // self.unit_size)

    def valid(self, units: Units) -> npt.NDArray[np.bool_]:
        """Mark the units that are valid by themselves."""
        good: npt.NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
        if self.is_batch:
            good &= (units["base_queue_offset"] >= 0) & (units["batch_size"] > 0)
        return good

    def count_valid(self, units: Units) -> int:
        """Return how many units from the first on are valid."""
        count = queue_unit.valid_prefix(units)
        if self.is_batch and count:
            # Compat: as BatchConsumeQueue#recover looks at them.
            good = (units["base_queue_offset"][:count] >= 0) & (units["batch_size"][:count] > 0)
            return count if good.all() else int(np.argmin(good))
        return count


PLAIN: Final = UnitKind(
    layout.UNIT_SIZE, queue_unit.UNIT_DTYPE, layout.DEFAULT_QUEUE_FILE_SIZE, is_batch=False
)
BATCHED: Final = UnitKind(
    layout.BATCH_UNIT_SIZE,
    queue_unit.BATCH_UNIT_DTYPE,
    layout.DEFAULT_BATCH_QUEUE_FILE_SIZE,
    is_batch=True,
)


QUEUE_OFFSET_MAX: Final = 1 << 56
"""Beyond it a number is damage: no file name could say where its unit lies."""


def can_hold(count: int, begin: int, end: int) -> bool:
    """Tell whether a range of the log has room for so many records.

    Why: no checksum covers the queue offset of a record. A gap in the numbers of a queue is
    believed only if its messages can have been between the records on both sides.
    """
    return count * layout.RECORD_MIN_SIZE <= end - begin
