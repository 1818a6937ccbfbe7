"""The values that options may have: names, and numbers within bounds."""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta

_I32_MAX: Final = 2_147_483_647

RECOVERED_FILES: Final = 10
"""How many log files RocketMQ 5.5 reads after an unclean stop [commitLogRecoverMaxNum]."""

Positive = Annotated[int, Meta(gt=0, le=_I32_MAX)]
Natural = Annotated[int, Meta(ge=0, le=_I32_MAX)]
LongNatural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
LongPositive = Annotated[int, Meta(gt=0, le=(1 << 63) - 1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
ErrorPercent = Annotated[int, Meta(ge=1, le=99)]


class FlushMode(StrEnum):
    """Whether a put waits for the disk (FlushDiskType)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(StrEnum):
    """What a store is among its copies."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class StoreType(StrEnum):
    """Where consume queues are kept."""

    DEFAULT = "default"
    DEFAULT_ROCKSDB = "defaultRocksDB"


class CompatVersion(StrEnum):
    """Whose bytes and checks a store has; members compare in the order of the releases."""

    V4_6 = "4.6"
    V4_9 = "4.9"
    V5_3 = "5.3"
    V5_5 = "5.5"

    @property
    def is_4x(self) -> bool:
        """Tell whether this is a release of the 4.x line."""
        return self < CompatVersion.V5_3

    @property
    def indexes_tags(self) -> bool:
        """Tell whether the index of this release has the tags of messages beside their keys."""
        return self >= CompatVersion.V5_5

    @property
    def keeps_queue_offset(self) -> bool:
        """Tell whether the checkpoint of this release has a sixth value, the last unit on disk."""
        return self >= CompatVersion.V5_5
