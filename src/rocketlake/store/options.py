"""Options that say how a store was written, as a reader needs them.

Keys are the reference's. None means: take it from the files.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

Positive = Annotated[int, Meta(gt=0)]

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class ReadOptions(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a reader may be told of a store."""

    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    mapped_file_size_commit_log: Positive | None = None
    mapped_file_size_consume_queue: Positive | None = None
    mapper_file_size_batch_consume_queue: Positive | None = None
    mapped_file_size_consume_queue_ext: Positive | None = None
    max_hash_slot_num: Positive | None = None
    message_index_safe: bool = False
    check_crc_on_recover: bool = field(name="checkCRCOnRecover", default=True)
    enabled_append_prop_crc: bool = field(name="enabledAppendPropCRC", default=False)
    force_verify_prop_crc: bool = field(name="forceVerifyPropCRC", default=False)
    message_delay_level: str = DEFAULT_DELAY_LEVELS

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level; beyond the last level that of the last one."""
        delays = parse_delay_levels(self.message_delay_level)
        return delays[min(level, len(delays)) - 1] if delays else 1000


def parse_delay_levels(text: str) -> list[int]:
    """Return the milliseconds of each level of a table such as `1s 5s 1m`.

    Raises:
        ValueError: an item that is no number with a unit.
    """
    delays = []
    for item in text.split():
        unit = _UNIT_MS.get(item[-1:])
        if unit is None or not item[:-1].isdigit():
            raise ValueError(f"messageDelayLevel has {item!r}; wanted like 30s, 5m, 1h or 2d")
        delays.append(int(item[:-1]) * unit)
    return delays
