"""RecordShape: what a store's options say about its records, and the frames made from it.

A frame (`format.appending.RecordFrame`) is what the records of one topic and queue share; the
kernel writes a record from a frame and a message.
"""

from typing import Final, Self

from msgspec import Struct

from rocketlake.format import layout
from rocketlake.format.appending import RecordFrame
from rocketlake.format.record import version_for
from rocketlake.model.endpoint import Endpoint
from rocketlake.store.options import CompatVersion, StoreOptions

_NO_LIMIT: Final = layout.MAX_I32


class RecordShape(Struct, frozen=True, kw_only=True):
    """What all records of a store have in common."""

    host: bytes
    """Where messages are born and stored, as records hold it."""
    trailing: bool
    """Whether the last property ends with a separator."""
    reserve_crc: bool
    """Whether a record ends with its own checksum."""
    takes_version_2: bool
    body_max: int
    record_max: int
    batch_max: int = _NO_LIMIT
    level_max: int
    """The highest delay level."""
    delay_max_ms: int
    """How far ahead a time of delivery may be; 0: there is no timer."""
    is_4x: bool

    @classmethod
    def of(cls, options: StoreOptions) -> Self:
        """Return the shape that a store's options ask for."""
        # Compat: 4.6 limits the record alone.
        limits_body = options.compat_version is not CompatVersion.V4_6
        file_room = options.mapped_file_size_commit_log - layout.BLANK_HEADER_SIZE
        return cls(
            host=options.store_endpoint.encode(),
            trailing=options.compat_version is not CompatVersion.V4_9,
            reserve_crc=options.enabled_append_prop_crc,
            takes_version_2=options.auto_message_version_on_topic_len,
            body_max=options.max_message_size if limits_body else _NO_LIMIT,
            record_max=min(options.record_size_max, file_room),
            batch_max=options.max_message_size,
            level_max=len(options.delay_levels_ms),
            delay_max_ms=options.timer_max_delay_sec * 1000 if options.timer_wheel_enable else 0,
            is_4x=options.compat_version.is_4x,
        )

    @property
    def endpoint(self) -> Endpoint:
        """The host as a value."""
        return Endpoint.decode(self.host)

    @property
    def properties_max(self) -> int:
        """How many bytes of properties a record holds beside its own checksum."""
        return layout.MAX_I16 - self._crc_size

    @property
    def _crc_size(self) -> int:
        return layout.RECORD_CRC_SIZE if self.reserve_crc else 0

    def version(self, topic: str) -> int:
        """Return the record version for a topic."""
        return version_for(topic) if self.takes_version_2 else 1

    def overhead(
        self, topic: str, born_host: Endpoint | None = None, store_host: Endpoint | None = None
    ) -> int:
        """Return how many bytes a record has beside its body and properties.

        A host that is None is the store's.
        """
        size = layout.RECORD_FIXED_SIZE + len(topic.encode()) + self._crc_size
        size += 4 + self.version(topic) + 2  # the lengths of body, topic and properties
        for host in (born_host, store_host):
            size += len(self.host) if host is None else len(host.address) + 4
        return size

    def plain_frame(self, topic: str, queue_id: int) -> RecordFrame:
        """Return the guarded frame of plain messages born in this process."""
        return RecordFrame(
            topic=topic.encode(),
            queue_id=queue_id,
            sys_flag=0,
            born_host=self.host,
            store_host=self.host,
            reconsume_times=0,
            prepared=0,
            version=self.version(topic),
            trailing=self.trailing,
            reserve_crc=self.reserve_crc,
            body_max=self.body_max,
            record_max=self.record_max,
            batch_max=self.batch_max,
            is_guarded=True,
        )

    def frame(
        self,
        topic: str,
        queue_id: int,
        *,
        sys_flag: int,
        born_host: Endpoint,
        store_host: Endpoint | None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> RecordFrame:
        """Return a frame for messages that were checked before.

        Raises:
            ValueError: a field does not fit into the format.
        """
        return RecordFrame(
            topic=topic.encode(),
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_host=born_host.encode(),
            store_host=store_host.encode() if store_host is not None else self.host,
            reconsume_times=reconsume_times,
            prepared=prepared_transaction_offset,
            version=self.version(topic),
            trailing=self.trailing,
            reserve_crc=self.reserve_crc,
            body_max=_NO_LIMIT,
            record_max=_NO_LIMIT,
            batch_max=_NO_LIMIT,
            is_guarded=False,
        )

    def is_alike(self, other: "RecordShape") -> bool:
        """Tell whether a store of the other shape can hold records of this one."""
        return (self.host, self.trailing, self.reserve_crc, self.takes_version_2) == (
            other.host,
            other.trailing,
            other.reserve_crc,
            other.takes_version_2,
        )
