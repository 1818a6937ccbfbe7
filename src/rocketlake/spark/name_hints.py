"""Hints for unknown options and columns: the nearest name, or what Kafka's name is here."""

from collections.abc import Collection
from typing import Final

from rocketlake.errors import ConfigError
from rocketlake.near_names import nearest_names

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
    """Return the error for an unknown option; `of` follows its name, as in ` of a write`."""
    lowered = key.lower()
    said = f"there is no option {key!r}{of}"
    words = _KAFKA_OPTIONS.get(lowered)
    if words is None and lowered.startswith(_KAFKA_PREFIXES):
        words = _NO_CLIENT
    if words is not None:
        return ConfigError(f"{said}; {words}")
    near = nearest_names(key, known)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return ConfigError(f"{said}; {hint}")


def unknown_column(name: str, known: Collection[str]) -> str:
    """Return the hint that follows the name of an unknown column."""
    twin = _KAFKA_COLUMNS.get(name.lower())
    near = [twin] if twin in known else nearest_names(name, known)
    hint = f"did you mean {near[0]!r}? There are" if near else "there are"
    return f"{hint} {', '.join(known)}"
