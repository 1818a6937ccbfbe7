"""CompactSettings: what newest means, and where the result goes."""

from typing import Final

from msgspec import Struct

from rocketlake.errors import ConfigError

STORE: Final = "store"
BY: Final = ("keys", "unique_key")
ORDERINGS: Final = ("store_timestamp", "born_timestamp", "queue_offset")
PROPERTY: Final = "property:"


class CompactSettings(Struct, frozen=True, kw_only=True):
    """What newest means, and where the result goes."""

    by: str = "keys"
    """keys: each of a message's keys counts; unique_key; or property:NAME."""
    order: str = "store_timestamp"
    """What is newer: store_timestamp, born_timestamp, queue_offset, or property:NAME (a number)."""
    drops_tombstones: bool = False
    """Leave out keys whose newest message has an empty body."""
    keeps_keyless: bool = False
    """Keep messages without a key."""
    to: str = STORE
    """store, or a format that Spark writes: parquet, delta, …"""
    to_topic: str | None = None
    """Into a store: another name for the topic."""
    table_options: dict[str, str] = {}
    sink_options: dict[str, str] = {}
    id: str | None = None
    """Into a store: a repeat under the same name writes nothing twice."""


def check(settings: CompactSettings) -> None:
    """Refuse settings that make no sense.

    Raises:
        ConfigError: one does.
    """
    for name, value, known in (("by", settings.by, BY), ("order", settings.order, ORDERINGS)):
        is_property = value.startswith(PROPERTY) and len(value) > len(PROPERTY)
        if value not in known and not is_property:
            raise ConfigError(f"{name} {value!r}: wanted {', '.join(known)} or {PROPERTY}NAME")
    if settings.to != STORE and (settings.to_topic is not None or settings.id is not None):
        raise ConfigError(f"a table in {settings.to} has neither a topic nor an id; leave them out")
