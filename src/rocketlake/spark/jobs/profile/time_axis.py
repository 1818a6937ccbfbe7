"""The time axis of a profile: steps that fit a span, and the text of its times and spans."""

from datetime import UTC
from typing import Final

from rocketlake.model.size_text import three_digits
from rocketlake.model.time_text import time_text

STEPS_MAX: Final = 160
"""A plot has at most about so many steps."""

_S: Final = 1000
_MINUTE: Final = 60 * _S
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_STEPS: Final = (
    # Shorter ones would show a rate of a thousand a second for a lone message.
    *(100, 500, _S, 5 * _S, 10 * _S, 30 * _S),
    *(_MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 7 * _DAY, 28 * _DAY),
)


def step_for(span_ms: int) -> int:
    """Return the step that cuts a span into at most about `STEPS_MAX` parts."""
    if span_ms <= 1:
        return _S
    for step in _STEPS:
        if span_ms / step <= STEPS_MAX:
            return step
    return -(-span_ms // (STEPS_MAX * _DAY)) * _DAY


def utc_text(moment_ms: int | None, step_ms: int = 1) -> str:
    """Return a time in UTC, as precise as a step needs."""
    return time_text(moment_ms, step_ms, UTC)


def clock_text(moment_ms: int, step_ms: int) -> str:
    """Return a time in short form, for a mark at a plot's edge."""
    text = utc_text(moment_ms, step_ms)
    if step_ms % _DAY == 0:
        return text[5:]
    date, _, clock = text.partition(" ")
    return date[5:] if clock in {"00:00", "00:00:00"} else clock


def span_text(span_ms: float) -> str:
    """Return a span of time in its largest unit."""
    if span_ms < 1:
        return f"{span_ms:.1g} ms" if span_ms else "0 ms"
    if span_ms < _S:
        return f"{span_ms:.0f} ms"
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_S, "s")):
        if span_ms >= unit:
            return f"{three_digits(span_ms / unit)} {name}"
    raise AssertionError("every span has a unit")
