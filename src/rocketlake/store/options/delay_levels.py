"""The table of delay levels, as `messageDelayLevel` spells it."""

from collections.abc import Sequence
from typing import Final

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Return the milliseconds of each level of a table such as `1s 5s 1m`.

    Raises:
        ValueError: an item that is no number with a unit.
    """
    delays = []
    for item in text.split():
        unit = _UNIT_MS.get(item[-1:])
        if unit is None or not (item[:-1].isascii() and item[:-1].isdigit()):
            raise ValueError(f"messageDelayLevel has {item!r}; wanted like 30s, 5m, 1h or 2d")
        delays.append(int(item[:-1]) * unit)
    return delays


def delay_of(delays_ms: Sequence[int], level: int) -> int:
    """Return the milliseconds of a level; beyond the last level those of the last one."""
    # Compat: as in ScheduleMessageService#computeDeliverTimestamp, a second without a table.
    return delays_ms[min(level, len(delays_ms)) - 1] if delays_ms else 1000
