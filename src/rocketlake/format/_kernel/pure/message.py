"""StoredMessage: a message as a commit log holds it.

The one class of the kernel (docs/adr/0009-a-class-in-the-kernel.md). It is a value: nothing of it
can be set, and what it computes it computes from its own bytes.
"""

from collections.abc import Mapping
from typing import Any, Final, Never

from rocketlake.format import layout
from rocketlake.format._kernel.pure.numbers import i32, i64
from rocketlake.format._kernel.pure.properties import decode_properties, find_property
from rocketlake.format._kernel.rebuilding import rebuild_message
from rocketlake.model import compression, flags
from rocketlake.model import properties as names
from rocketlake.model.endpoint import Endpoint
from rocketlake.model.ids import offset_message_id
from rocketlake.model.message import split_keys

FIELDS: Final = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp",
    "born_timestamp", "born_host", "store_host", "flag", "sys_flag", "body_crc",
    "reconsume_times", "prepared_transaction_offset", "properties", "raw_properties",
    "stored_body", "version",
)  # fmt: skip
"""What a message is made of, in the order it is shown in."""


class StoredMessage:
    """A message as a commit log holds it.

    `stored_body` are the bytes of the record and `body` the plain ones; `raw_properties` is the
    property string as written, `properties` its map, made when it is first looked at. Read from a
    queue, `queue_offset` is the message's number in that queue.

    Thread-safety: immutable; what is made at the first look may be made twice.
    """

    __slots__ = (
        "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp",
        "born_timestamp", "_born_host", "_store_host", "flag", "sys_flag", "body_crc",
        "reconsume_times", "prepared_transaction_offset", "_properties", "raw_properties",
        "stored_body", "version", "_body",
    )  # fmt: skip

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    store_timestamp: int
    born_timestamp: int
    flag: int
    sys_flag: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    raw_properties: bytes
    stored_body: bytes
    version: int
    _born_host: bytes
    _store_host: bytes
    _properties: dict[str, str] | None
    _body: bytes | None

    def __init__(
        self,
        *,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        store_size: int,
        store_timestamp: int,
        born_timestamp: int,
        born_host: Endpoint,
        store_host: Endpoint,
        flag: int,
        sys_flag: int,
        body_crc: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
        properties: Mapping[str, str] | None = None,
        raw_properties: bytes,
        stored_body: bytes,
        version: int = 1,
    ) -> None:
        """Make a message; without `properties` they are those of the property string.

        Raises:
            ValueError: a field does not fit into a record.
            TypeError: the topic is no text, or a body or a property string no bytes.
        """
        hosts = _host(born_host), _host(store_host)
        if version not in (1, 2):
            raise ValueError(f"a record has version 1 or 2, not {version}")
        for value, kind in ((topic, str), (raw_properties, bytes), (stored_body, bytes)):
            if type(value) is not kind:
                raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")
        _set(
            self,
            topic,
            i32(queue_id),
            i64(queue_offset),
            i64(physical_offset),
            i32(store_size),
            i64(store_timestamp),
            i64(born_timestamp),
            *hosts,
            i32(flag),
            i32(sys_flag),
            i32(body_crc),
            i32(reconsume_times),
            i64(prepared_transaction_offset),
            None if properties is None else dict(properties),
            raw_properties,
            stored_body,
            version,
            None,
        )

    @property
    def born_host(self) -> Endpoint:
        """Who made the message."""
        return Endpoint.decode(self._born_host)

    @property
    def store_host(self) -> Endpoint:
        """Who stored it."""
        return Endpoint.decode(self._store_host)

    @property
    def properties(self) -> dict[str, str]:
        """The map of the property string."""
        found = self._properties
        if found is None:
            found = decode_properties(self.raw_properties)
            object.__setattr__(self, "_properties", found)
        return found

    @property
    def body(self) -> bytes:
        """The plain body.

        Raises:
            ValueError: the stored bytes are not what the flags say.
        """
        if self._body is None:
            object.__setattr__(self, "_body", compression.inflate(self.stored_body, self.sys_flag))
        assert self._body is not None, "it was just set"
        return self._body

    @property
    def msg_id(self) -> str:
        """The id a broker gives for this record."""
        return offset_message_id(self._store_host, self.physical_offset)

    @property
    def tags(self) -> str | None:
        """The tag, if there is one."""
        return self._property(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys of the message, without the unique key."""
        return split_keys(self._property(names.KEYS))

    @property
    def unique_key(self) -> str | None:
        """The id the producer gave, if it gave one."""
        return self._property(names.UNIQUE_KEY)

    def _property(self, name: str) -> str | None:
        """Look one property up; the map need not be made for that."""
        if self._properties is not None:
            return self._properties.get(name)
        return find_property(self.raw_properties, name.encode())

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"attribute {name!r} of a StoredMessage cannot be set")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"attribute {name!r} of a StoredMessage cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not StoredMessage:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    def __hash__(self) -> int:
        return hash((self.topic, self.physical_offset, self.queue_offset, self.store_timestamp))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in FIELDS)
        return f"StoredMessage({shown})"

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        values = {name: getattr(self, name) for name in FIELDS if name != "properties"}
        return rebuild_message, (values | {"properties": self._properties},)


def _host(endpoint: Endpoint) -> bytes:
    host = endpoint.encode()
    if len(host) not in (8, 20):
        raise ValueError(f"a host has 8 or 20 bytes, not {len(host)}")
    return host


def _set(message: StoredMessage, *values: object) -> None:
    for name, value in zip(StoredMessage.__slots__, values, strict=True):
        object.__setattr__(message, name, value)


def make_message(
    view: memoryview, row: tuple[int, ...], queue_offset: int, topic: str
) -> StoredMessage:
    """Make a message from a row whose parts lie in the view; queue offset and topic are given."""
    # fmt: off
    (
        position, physical_offset, _, born, stored, prepared, body, topic_at, properties,
        size, body_crc, queue_id, flag, sys_flag, reconsume_times, body_size,
        _, properties_size,
    ) = row
    # fmt: on
    born_size, store_size = flags.host_sizes(sys_flag)
    born_at = position + layout.RECORD_BORN_HOST_AT
    store_at = born_at + born_size + 8
    born_host = bytes(view[born_at : born_at + born_size])
    store_host = bytes(view[store_at : store_at + store_size])
    message = StoredMessage.__new__(StoredMessage)
    _set(
        message,
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        size,
        stored,
        born,
        born_host,
        store_host,
        flag,
        sys_flag,
        body_crc,
        reconsume_times,
        prepared,
        None,
        bytes(view[properties : properties + properties_size]),
        bytes(view[body : body + body_size]),
        1 if topic_at - body - body_size == 1 else 2,
        None,
    )
    return message
