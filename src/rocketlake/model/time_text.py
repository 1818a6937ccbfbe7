"""Times and durations as people type and read them: one parser and one text for each.

A time is Unix milliseconds, or an ISO 8601 date and time. What a time without a zone means depends
on where it is typed:

1. On the command line it is local time; the help says so.
2. In an option of Spark it is in the session's time zone.
3. In a call of the embedded API it is refused: `unix_time` takes aware datetimes.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

NO_TIME: Final = "-"
"""The text of a time that is not known."""

_MILLISECONDS: Final = re.compile(r"-?[0-9]{1,100}", re.ASCII)
_FAR: Final = 1 << 62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]{1,12})\s*(us|ms|s|m|min|h|d)?", re.ASCII | re.IGNORECASE)
_UNIT_US: Final = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def parse_time(text: str, zone: tzinfo | None = None) -> int:
    """Return Unix milliseconds; `zone` applies to a time that names none (None: local time).

    Raises:
        ValueError: the text is neither a number nor a date and time.
    """
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        return max(min(int(text), _FAR), -_FAR)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()
        return (moment - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time; wanted milliseconds since 1970, or a date and time"
            " such as 2026-01-31T23:59:59 or 2026-01-31T23:59:59Z"
        ) from None


def parse_zone(text: str) -> tzinfo:
    """Return a time zone by its region (`Europe/Berlin`) or its offset (`+02:00`).

    Raises:
        ValueError: there is no such zone.
    """
    if text.upper() in {"Z", "UTC"}:
        return UTC
    found = _OFFSET.fullmatch(text)
    try:
        if found is None:
            return ZoneInfo(text)
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(offset if found[1] == "+" else -offset)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"{text!r} is not a time zone; wanted a region such as Europe/Berlin, or +02:00"
        ) from None


def parse_duration_ms(text: str, default_unit: str) -> int:
    """Return milliseconds of a duration such as 90m; a bare number counts `default_unit`.

    Raises:
        ValueError: the text is not a duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration; wanted 500ms, 30s, 90m, 1h or 7d")
    return int(found[1]) * _UNIT_US[(found[2] or default_unit).lower()] // 1000


def time_text(timestamp_ms: int | None, step_ms: int = 1, zone: tzinfo | None = None) -> str:
    """Return a time as precise as a step needs, in a zone (None: local time)."""
    if timestamp_ms is None or timestamp_ms <= 0:
        return NO_TIME  # records hold 0 where no time was set
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"  # a damaged record may hold any number
    if step_ms % 86_400_000 == 0:
        return f"{moment:%Y-%m-%d}"
    if step_ms % 60_000 == 0:
        return f"{moment:%Y-%m-%d %H:%M}"
    if step_ms % 1000 == 0:
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"
