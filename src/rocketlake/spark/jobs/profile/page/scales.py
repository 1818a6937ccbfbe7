"""Where marks stand at the edge of a plot."""

import math
from collections.abc import Sequence
from typing import Final

_ROUND: Final = (1, 2, 2.5, 5, 10)
_CLOCK_STEPS_MS: Final = tuple(
    1000 * s
    for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
)
_DAY_MS: Final = 86_400_000


def linear_ticks(top: float, *, base: int = 10, wanted: int = 4) -> list[float]:
    """Return round numbers from zero to at least `top`; `base` 1024 for bytes."""
    if top <= 0:
        return [0, 1]
    unit = float(base) ** math.floor(math.log(top, base)) if base != 10 else 1.0
    rough = top / unit / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in _ROUND if m * power >= rough * 0.999) * unit
    count = math.ceil(top / step - 1e-9)
    return [index * step for index in range(count + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return the powers of ten that enclose a range."""
    first = math.floor(math.log10(low))
    last = max(math.ceil(math.log10(high)), first + 1)
    return [10.0**power for power in range(first, last + 1)]


def time_ticks(first_ms: int, end_ms: int, wanted: int = 7) -> list[int]:
    """Return round times within a span."""
    rough = max(end_ms - first_ms, 1) / wanted
    step = next((step for step in _CLOCK_STEPS_MS if step >= rough), None)
    if step is None:
        step = math.ceil(rough / _DAY_MS) * _DAY_MS
    first = -(-first_ms // step) * step
    return list(range(first, end_ms + 1, step))


def log_share(value: float, ticks: Sequence[float]) -> float:
    """Return how high a value stands between the first and the last of logarithmic ticks."""
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    return min(max((math.log10(max(value, ticks[0])) - low) / (high - low), 0.0), 1.0)
