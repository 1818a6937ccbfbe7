"""Moments as a program gives them: aware datetimes or Unix milliseconds."""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

Moment: TypeAlias = datetime | int
"""An aware datetime, or Unix milliseconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WANTED: Final = "wanted an aware datetime or Unix milliseconds as int"


def to_ms(moment: Moment, name: str) -> int:
    """Return Unix milliseconds; `name` is what the caller calls the moment.

    Raises:
        TypeError: it is neither a datetime nor a whole number.
        ValueError: it is a datetime without a time zone, which means another moment elsewhere.
    """
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ValueError(
                f"{name} = {moment!r} has no time zone; give it one: datetime.now(timezone.utc),"
                " or .astimezone() for local time"
            )
        return (moment - _EPOCH) // _MILLISECOND
    if isinstance(moment, bool) or not isinstance(moment, int):
        hint = f" (of seconds: int({name} * 1000))" if isinstance(moment, float) else ""
        raise TypeError(f"{name} = {moment!r} is {type(moment).__name__}; {_WANTED}{hint}")
    return moment
