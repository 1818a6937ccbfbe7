"""Which times of records a calendar has: the one rule for times that are none.

1. A record holds a time as milliseconds since 1970, in 64 bits, and a producer may send any.
2. As a time it is null outside of 0001-01-02 to 9999-12-30 (UTC). Arrow, Parquet and Python cannot
   show years beyond 1 to 9999; a day at each end is left for zones.
3. Nothing is clamped, and the number itself stays readable beside it.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_DAY_MS: Final = 86_400_000
TIME_MIN_MS: Final = -62_135_596_800_000 + _DAY_MS
TIME_MAX_MS: Final = 253_402_300_800_000 - _DAY_MS

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def is_calendar_time(time_ms: int) -> bool:
    """Tell whether a number of milliseconds is a time that a calendar has."""
    return TIME_MIN_MS <= time_ms <= TIME_MAX_MS


def calendar_mask(times_ms: Int64s) -> Mask:
    """Mark the numbers of milliseconds that are times a calendar has."""
    found: Mask = (times_ms >= TIME_MIN_MS) & (times_ms <= TIME_MAX_MS)
    return found


def to_microseconds(times_ms: Int64s) -> tuple[Int64s, Mask | None]:
    """Return microseconds, and which of them are times; None: all are."""
    valid = calendar_mask(times_ms)
    if valid.all():
        return times_ms * 1000, None
    return np.where(valid, times_ms, 0) * 1000, valid
