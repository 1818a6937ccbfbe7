"""Times as a program gives them: aware datetimes or Unix milliseconds."""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

Timestamp: TypeAlias = datetime | int
"""An aware datetime, or Unix milliseconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def to_unix_ms(value: object, name: str) -> int:
    """Return Unix milliseconds; `name` is what the caller calls the value.

    Raises:
        TypeError: the value is neither a datetime nor an int.
        ValueError: it is a datetime without a time zone.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(
                f"{name} = {value!r} has no time zone; give it one: datetime.now(timezone.utc),"
                " or .astimezone() for local time"
            )
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, bool) or not isinstance(value, int):
        hint = f" (of seconds: int({name} * 1000))" if isinstance(value, float) else ""
        raise TypeError(
            f"{name} = {value!r} is {type(value).__name__}; wanted an aware datetime or Unix"
            f" milliseconds as int{hint}"
        )
    return value
