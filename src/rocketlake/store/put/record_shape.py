"""RecordShape: what records of a store are like, for who encodes them elsewhere."""

from typing import Self

from msgspec import Struct

from rocketlake.format import layout
from rocketlake.format.record import version_for
from rocketlake.model.endpoint import Endpoint
from rocketlake.store.log.record_template import FrameMaker
from rocketlake.store.options import StoreOptions


class RecordShape(Struct, frozen=True, kw_only=True):
    """What the options of a store say about its records."""

    host: bytes
    """Where messages are born and stored, as records hold it."""
    trailing: bool
    reserve_crc: bool
    takes_version_2: bool
    body_max: int
    record_max: int
    level_max: int
    """The highest delay level."""
    delay_max_ms: int
    """How far ahead a time of delivery may be; 0: there is no timer."""
    is_4x: bool

    @classmethod
    def of(cls, options: StoreOptions) -> Self:
        """Take what the options of a store say."""
        frames = FrameMaker(options)
        return cls(
            host=frames.store_host_bytes,
            trailing=frames.trailing,
            reserve_crc=options.enabled_append_prop_crc,
            takes_version_2=options.auto_message_version_on_topic_len,
            body_max=frames.body_max,
            record_max=frames.record_max,
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
        return layout.MAX_I16 - (layout.RECORD_CRC_SIZE if self.reserve_crc else 0)

    def version(self, topic: str) -> int:
        """Return the record version for a topic."""
        return version_for(topic) if self.takes_version_2 else 1

    def overhead(self, topic: str) -> int:
        """Return how many bytes a record of a topic has beside its body and properties."""
        size = layout.RECORD_FIXED_SIZE + 2 * len(self.host) + 4 + self.version(topic) + 2
        return size + len(topic.encode()) + (layout.RECORD_CRC_SIZE if self.reserve_crc else 0)

    def is_alike(self, other: "RecordShape") -> bool:
        """Tell whether records of one shape may lie in a store of the other."""
        return (self.host, self.trailing, self.reserve_crc, self.takes_version_2) == (
            other.host,
            other.trailing,
            other.reserve_crc,
            other.takes_version_2,
        )
