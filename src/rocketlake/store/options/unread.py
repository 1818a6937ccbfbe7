"""Options that a store accepts and does not read: which, whose they are, and why.

1. Every field of `StoreOptions` is read by code outside this package or has an entry here, never
   both; tests/tidy/test_options_are_read.py proves it.
2. The options page, `unused_options` and the log of a start show these entries.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct


class OptionReader(StrEnum):
    """What an option that a store does not read is for."""

    BROKER = "read by a broker"
    REPLICATION = "read by replication"
    NONE = "without effect"


class Unread(Struct, frozen=True):
    """Why a store does not read an option."""

    reader: OptionReader
    reason: str = ""
    """A sentence for the options page; empty where the reader says it all."""

    def __str__(self) -> str:
        return f"{self.reader}: {self.reason}" if self.reason else str(self.reader)


def _none(reason: str) -> Unread:
    return Unread(OptionReader.NONE, reason)


_BROKER: Final = Unread(OptionReader.BROKER)
_REPLICATION: Final = Unread(OptionReader.REPLICATION)
_APPEND_LOCK: Final = "one lock orders all appends and gives out the queue offsets"
_DELIVERY: Final = "one thread delivers every level, and tries a failed delivery again by itself"
_COLD_DATA: Final = "the distance from the end of the log tells what left memory"

UNREAD: Final[Mapping[str, Unread]] = MappingProxyType(
    {
        "bit_map_length_consume_queue_ext": _none(
            "the bloom filter gives the length of a bitmap, which a broker sets this option to"
        ),
        "enable_running_flags_in_flush": _none(
            "a failed flush always makes the store not writable, as with true"
        ),
        "recheck_reput_offset_from_cq": _none(
            "dispatch always starts where the queues end, as with true"
        ),
        "use_reentrant_lock_when_put_message": _none(_APPEND_LOCK),
        "topic_queue_lock_num": _none(_APPEND_LOCK),
        "put_consume_queue_data_by_file_channel": _none(
            "units are written through the map; the bytes are the same"
        ),
        "cold_data_flow_control_enable": _none(_COLD_DATA),
        "cold_data_scan_enable": _none(_COLD_DATA),
        "enable_build_consume_queue_concurrently": _none(
            "one thread dispatches, and parses many records in one call"
        ),
        "enable_schedule_async_deliver": _none(_DELIVERY),
        "schedule_async_deliver_max_pending_limit": _none(_DELIVERY),
        "schedule_async_deliver_max_resend_num2_blocked": _none(_DELIVERY),
        "disk_fall_recorded": _BROKER,
        "default_query_max_num": _BROKER,
        "long_polling_enable": _BROKER,
        "filter_support_retry": _BROKER,
        "transaction_time_out": _BROKER,
        "transaction_check_max": _BROKER,
        "slave_read_enable": _BROKER,
        "max_checksum_range": _REPLICATION,
        "total_replicas": _REPLICATION,
        "min_in_sync_replicas": _REPLICATION,
        "enable_auto_in_sync_replicas": _REPLICATION,
    }
)
"""Name of an option -> why a store does not read it."""
