"""What to say about an option or a column that is not there: the nearest one, or Kafka's equal."""

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from rocketlake.errors import ConfigError

_NO_BROKER: Final = (
    "a store is read and written as files, no broker is asked: leave it out, and give path = the"
    " directory of the store"
)
_NO_CLIENT: Final = "it is for Kafka's clients: leave it out"
_KAFKA_OPTIONS: Final = {
    "kafka.bootstrap.servers": _NO_BROKER,
    "bootstrap.servers": _NO_BROKER,
    "kafka.group.id": "a stream has the option group",
    "groupidprefix": "a stream has the option group",
    "maxrecordsperpartition": "tasks are cut by bytes: option maxPartitionBytes",
    "includeheaders": "headers are properties: the column properties always has them",
    "brokers": _NO_BROKER,
}
_KAFKA_PREFIXES: Final = ("kafka.", "kafkaconsumer.", "fetchoffset.")
_KAFKA_COLUMNS: Final = {
    "key": "keys",
    "value": "body",
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_timestamp",
    "headers": "properties",
}


def unknown_option(key: str, known: Collection[str], *, of: str = "") -> ConfigError:
    """Return the refusal of an option; `of` says of what, as ` of a write`."""
    lowered = key.lower()
    said = f"there is no option {key!r}{of}"
    words = _KAFKA_OPTIONS.get(lowered)
    if words is None and lowered.startswith(_KAFKA_PREFIXES):
        words = _NO_CLIENT
    if words is not None:
        return ConfigError(f"{said}; {words}")
    near = _nearest(key, known)
    if near is not None:
        return ConfigError(f"{said}; did you mean {near!r}?")
    return ConfigError(f"{said}; there are {', '.join(known)}")


def unknown_column(name: str, known: Collection[str]) -> str:
    """Return what to say behind the name of a column that is not there."""
    twin = _KAFKA_COLUMNS.get(name.lower())
    near = twin if twin in known else _nearest(name, known)
    hint = f"did you mean {near!r}? There are" if near is not None else "there are"
    return f"{hint} {', '.join(known)}"


def _nearest(name: str, known: Collection[str]) -> str | None:
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, 1)
    return by_lower[near[0]] if near else None
