"""What must hold for a record by itself, beyond what the scan proves.

Without the whole-record checksum, these fields of a record can change and nothing tells:

| field                                              | unless                                     |
| -------------------------------------------------- | ------------------------------------------ |
| flag, born time, born host, store host             |                                            |
| reconsume times, prepared transaction offset       |                                            |
| sys flag: bits of compression, tags, need-unwrap   |                                            |
| topic and queue of a record that enters no queue   | it has keys (the topic only)               |
| store time                                         | it leaves the order of its neighbours by   |
|                                                    | more than a second; a key's index entry, a |
|                                                    | batch unit, an extension unit or a delayed |
|                                                    | message's due time say another             |
| properties                                         | they are tags, keys, the unique key, the   |
|                                                    | delay of a delayed message, light queues   |
|                                                    | or the numbers of an inner batch           |

Beside records: what lies in a file behind the eight bytes of its blank record; an earlier time in
the checkpoint; bits of an extension unit's filter; a smaller offset in a table.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.format import layout
from rocketlake.format.record import RecordColumns
from rocketlake.model.flags import TransactionType
from rocketlake.upkeep.verify.findings import Fault, Kind

_SLACK_MS: Final = 1000
_PREPARED_BIT: Final = int(TransactionType.PREPARED)  # set in prepared and in rolled back ones
_NAME: Final = np.uint64(int.from_bytes(layout.RECORD_CRC_NAME, "little"))
_LOW: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH: Final = np.uint64(0x8080808080808080)


class RecordChecks:
    """Looks at the records of one file in order."""

    def __init__(self, path: str, base_offset: int, *, has_checksums: bool = False) -> None:
        """`has_checksums` says that the store's records have the whole-record checksum."""
        self._has_checksums = has_checksums
        self.newest = 0
        self._path = path
        self._base = base_offset
        self.forget()

    def look_at(self, columns: RecordColumns) -> list[Fault]:
        """Return what is wrong with some records."""
        # Why: each look at a column goes through all rows, so most are left after the first.
        faults = self._times(columns)
        if self._has_checksums:
            faults += self._checksums(columns)
        no_body = columns["body_size"] == 0
        if no_body.any():
            for row in np.flatnonzero(no_body & (columns["body_crc"] != 0)).tolist():
                faults.append(self._fault(columns, row, "a record without a body has a checksum"))
        offsets, queues = columns["queue_offset"], columns["queue_id"]
        if int(offsets.min()) < 0:
            for row in np.flatnonzero(offsets < 0).tolist():
                text = f"a record says that it is message {offsets[row]} of queue {queues[row]}"
                faults.append(self._fault(columns, row, text))
        idle = columns["sys_flag"] & _PREPARED_BIT
        if idle.any():
            for row in np.flatnonzero((idle != 0) & (offsets != 0)).tolist():
                text = "a record that enters no queue has a queue offset"
                faults.append(self._fault(columns, row, text))
        return faults

    def forget(self) -> None:
        """Do not compare the next records with earlier ones."""
        self._times_before = np.empty(0, np.int64)  # of the last two records
        self._places_before = np.empty(0, np.int64)

    def _fault(self, columns: RecordColumns, row: int, reason: str) -> Fault:
        position = int(columns["physical_offset"][row]) - self._base
        return Fault(self._path, position, reason, kind=Kind.RECORD, about="log")

    def _times(self, columns: RecordColumns) -> list[Fault]:
        """A time that leaves the order of both its neighbours was not the clock's doing."""
        times = np.concatenate((self._times_before, columns["store_timestamp"]))
        before = self._places_before
        self._times_before = times[-2:]
        self._places_before = columns["physical_offset"][-2:]
        if len(self._places_before) < 2:
            self._places_before = np.concatenate((before, self._places_before))[-2:]
        if len(times) < 2 or int(np.diff(times).min()) >= 0:
            self.newest = max(self.newest, int(times[-1]))
            return []
        self.newest = max(self.newest, int(times.max()))
        if len(times) < 3:
            return []
        places = np.concatenate((before, columns["physical_offset"]))
        first, middle, last = times[:-2], times[1:-1], times[2:]
        ordered = first <= last
        out = ordered & ((middle < first - _SLACK_MS) | (middle > last + _SLACK_MS))
        return [
            Fault(
                self._path,
                int(places[row + 1]) - self._base,
                f"stored at {int(middle[row])}, but the record before at {int(first[row])} "
                f"and the one behind at {int(last[row])}",
                kind=Kind.RECORD,
                about="log",
            )
            for row in np.flatnonzero(out).tolist()
        ]

    def _checksums(self, columns: RecordColumns) -> list[Fault]:
        """A whole-record checksum whose own name is damaged would count as none."""
        at = np.empty(len(columns), np.int64)  # a record ends where the next one begins
        at[:-1] = columns["position"][1:]
        at[-1] = columns["position"][-1] + columns["size"][-1]
        at -= layout.RECORD_CRC_SIZE
        words = _words(columns.buffer)[at]
        other = words ^ _NAME
        near = np.bitwise_count((((other & _LOW) + _LOW) | other) & _HIGH) <= 2
        data = np.frombuffer(columns.buffer, np.uint8)
        whole = other == 0
        whole &= data[at + len(layout.RECORD_CRC_NAME)] == layout.PROPERTY_NAME_END
        whole &= data[at + layout.RECORD_CRC_SIZE - 1] == layout.PROPERTY_END
        near &= columns["properties_size"] >= layout.RECORD_CRC_SIZE
        faults = []
        view = memoryview(columns.buffer)
        for row in np.flatnonzero(near & ~whole).tolist():
            trailer = bytes(view[at[row] : at[row] + layout.RECORD_CRC_SIZE])
            if sum(48 <= byte <= 57 for byte in trailer[9:19]) >= 8:
                text = "the whole-record checksum is damaged"
                faults.append(self._fault(columns, row, text))
        return faults


def _words(buffer: bytes | bytearray | memoryview) -> npt.NDArray[np.uint64]:
    """See eight bytes from each position on as a number."""
    size = max(len(buffer) - 7, 0)
    return np.ndarray((size,), np.dtype("<u8"), buffer, strides=(1,))
