"""Extension units against the records that their queue units point to."""

import bisect
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import layout
from rocketlake.store.disk.log import Readers
from rocketlake.upkeep.verify.store_layout import QueuePlace, Units

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SPAN_MAX: Final = 8 << 20


class ExtReader:
    """Reads extension units at addresses."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def confirm(self, queue: QueuePlace, units: Units, codes: Int64s, times: Int64s) -> Bools:
        """Mark the units whose tags code is the address of an extension with these values."""
        addresses = units["tags_code"].astype(np.int64)
        offsets = addresses - np.int64(layout.EXT_ADDRESS_BASE)
        held = addresses <= layout.EXT_ADDRESS_MAX
        result = np.zeros(len(units), np.bool_)
        bases = [file.base_offset for file in queue.ext_files]
        numbers = np.searchsorted(np.array(bases, np.int64), offsets, side="right") - 1
        for number in np.unique(numbers[held]).tolist():
            if number < 0:
                continue
            rows = np.flatnonzero(held & (numbers == number))
            begin = 0
            while begin < len(rows):
                first = int(offsets[rows[begin]])
                stop = begin + bisect.bisect_left(offsets[rows[begin:]].tolist(), first + _SPAN_MAX)
                part = rows[begin : max(stop, begin + 1)]
                positions = offsets[part] - bases[number]
                file = queue.ext_files[number]
                result[part] = self._part(file, positions, codes[part], times[part])
                begin += len(part)
        return result

    def _part(self, file: OffsetFile, positions: Int64s, codes: Int64s, times: Int64s) -> Bools:
        low, high = int(positions.min()), int(positions.max())
        size = min(high - low, 2 * _SPAN_MAX) + layout.MAX_I16
        data = self._readers.read(file.path, low, size)
        inside = (positions >= 0) & (positions - low <= len(data) - layout.EXT_UNIT_FIXED_SIZE)
        result = np.zeros(len(positions), np.bool_)
        at = (positions - low)[inside]
        if not len(at):
            return result
        unit_sizes = _numbers(data, at, ">i2", 0)
        bitmap_sizes = _numbers(data, at, ">i2", 18)
        good = unit_sizes == bitmap_sizes + layout.EXT_UNIT_FIXED_SIZE
        good &= (bitmap_sizes >= 0) & (at + unit_sizes <= len(data))
        good &= _numbers(data, at, ">i8", 2) == codes[inside]
        good &= _numbers(data, at, ">i8", 10) == times[inside]
        result[inside] = good
        return result


def _numbers(data: bytes, at: Int64s, kind: str, shift: int) -> Int64s:
    """Read a number at each of some positions."""
    width = np.dtype(kind).itemsize
    view = np.ndarray((len(data) - width + 1,), kind, data, strides=(1,))
    return view[at + shift].astype(np.int64)
