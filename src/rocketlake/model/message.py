"""Message as a producer sends it; StoredMessage as a log holds it."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from rocketlake.model import compression, properties
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.ids import offset_message_id


class Message(Struct, frozen=True, kw_only=True):
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


class StoredMessage(Struct, frozen=True, kw_only=True, dict=True):
    """A message as a commit log holds it.

    `stored_body` are the bytes of the record and `body` the plain ones; `raw_properties` is the
    property string as written, `properties` its map.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    store_timestamp: int
    born_timestamp: int
    born_host: Endpoint
    store_host: Endpoint
    flag: int
    sys_flag: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    properties: dict[str, str]
    raw_properties: bytes
    stored_body: bytes
    version: int = 1

    @cached_property
    def body(self) -> bytes:
        """The plain body.

        Raises:
            ValueError: the stored bytes are not what the flags say.
        """
        return compression.inflate(self.stored_body, self.sys_flag)

    @property
    def msg_id(self) -> str:
        """The id a broker gives for this record."""
        return offset_message_id(self.store_host.encode(), self.physical_offset)

    @property
    def tags(self) -> str | None:
        """The tag, if there is one."""
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys the index was told, the unique key not among them."""
        return split_keys(self.properties.get(properties.KEYS))

    @property
    def unique_key(self) -> str | None:
        """The id the producer gave, if it gave one."""
        return self.properties.get(properties.UNIQUE_KEY)


def split_keys(text: str | None) -> list[str]:
    """Cut a KEYS property into its keys."""
    return [key for key in text.split(properties.KEY_SEPARATOR) if key] if text else []
