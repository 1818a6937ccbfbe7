"""Message as a producer sends it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from rocketlake.model import properties


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """A message before it is stored.

    `tags` and `keys` are written as the properties TAGS and KEYS, behind `properties`; a store
    that finds either name in `properties` already keeps that one.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    flag: int = 0
    delay_level: int = 0
    """Deliver after the delay of this level; 0: at once."""
    deliver_at: datetime | int | None = None
    """Deliver at this time: aware, or Unix milliseconds."""
    ordering_key: str | None = None
    """Messages with the same one go to the same queue, unless a queue is named."""
    wait: bool = True
    """Have the put wait for what the store waits for: flush and replicas."""


def split_keys(text: str | None) -> list[str]:
    """Cut a KEYS property into its keys."""
    return [key for key in text.split(properties.KEY_SEPARATOR) if key] if text else []
