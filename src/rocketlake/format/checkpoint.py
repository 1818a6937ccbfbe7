"""The checkpoint page: when each family was last known good (docs/formats/checkpoint.md).

| offset | width | field                  | since |
| ------ | ----- | ---------------------- | ----- |
| 0      | 8     | physical_timestamp     |       |
| 8      | 8     | queue_timestamp        |       |
| 16     | 8     | index_timestamp        |       |
| 24     | 8     | primary_flushed_offset | 5.0   |
| 32     | 8     | confirm_offset         | 5.1.1 |
| 40     | 8     | queue_physical_offset  | 5.5   |
"""

import struct
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from rocketlake.format import layout

_FIELDS = struct.Struct(">qqqqqq")

FIELDS_SIZE: Final = _FIELDS.size
FIELDS_SIZE_4X: Final = 24  # the first three
_SLACK_MS = 3000


class Checkpoint(Struct, frozen=True):
    """Store times up to which each family is known to be on disk."""

    physical_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    primary_flushed_offset: int = 0
    confirm_offset: int = 0
    queue_physical_offset: int = 0
    """The last record whose queue unit is on disk, at the time of a thorough flush."""

    @property
    def min_timestamp(self) -> int:
        """The time before which log and queues are surely complete."""
        return max(0, min(self.physical_timestamp, self.queue_timestamp) - _SLACK_MS)

    @property
    def min_timestamp_index(self) -> int:
        """The time before which the index is surely complete too."""
        return min(self.min_timestamp, self.index_timestamp)

    def encode(self) -> bytes:
        """Return the 4096 bytes of the page."""
        return _FIELDS.pack(*astuple(self)).ljust(layout.CHECKPOINT_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "Checkpoint":
        """Read a page; fields beyond its end are 0, so a short or empty file is no error."""
        return cls(*_FIELDS.unpack(data[: _FIELDS.size].ljust(_FIELDS.size, b"\0")))
