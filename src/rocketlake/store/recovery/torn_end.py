"""The last record of a log, when a power cut has taken the end of its properties."""

from typing import Final

import numpy as np
from msgspec import Struct

from rocketlake.format.layout import PROPERTY_END
from rocketlake.format.record import StopReason
from rocketlake.store.disk.log import Chunk, Stop

_SECTOR: Final = 512  # the least that a disk writes as a whole


class TornEnd(Struct):
    """Looks at the records of a walk, and tells whether the last one is torn.

    Why: the checksum of a record is that of its body. Where the last page of a record was never
    written its properties end with zeros, and the message would come back without its keys or with
    half of one.
    """

    last: Chunk | None = None
    before: int = -1
    """The last byte of the properties before those of the last record that has any; -1: none."""
    final: int = -1
    """The last byte of the last record's."""

    def take(self, chunk: Chunk) -> None:
        """Note the last records of a chunk."""
        columns = chunk.columns
        for row in np.flatnonzero(columns["properties_size"] > 0)[-2:].tolist():
            end = columns["properties_position"][row] + columns["properties_size"][row]
            self.before, self.final = self.final, columns.buffer[end - 1]
        self.last = chunk

    def stop(self) -> Stop | None:
        """Return where the log ends instead, if its last record is torn.

        Properties of any writer may hold zeros, but the last byte is a separator or, with releases
        that write none at the end, part of a value. So the record before must end with one.
        """
        chunk = self.last
        if chunk is None or self.final != 0 or self.before != PROPERTY_END:
            return None
        row = chunk.columns.rows[-1]
        size = int(row["properties_size"])
        if size <= 0:
            return None
        position = int(row["properties_position"])
        written = bytes(chunk.columns.buffer[position : position + size]).rstrip(b"\0")
        in_file = chunk.base_offset - chunk.file.base_offset + position
        lost_from = -(-(in_file + len(written)) // _SECTOR) * _SECTOR
        if lost_from >= in_file + size:
            return None
        return Stop(chunk.file, int(row["physical_offset"]), StopReason.LOST_PAGE)
