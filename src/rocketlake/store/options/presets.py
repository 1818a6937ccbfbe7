"""Sets of options for a purpose; what a caller chooses is stronger."""

from collections.abc import Collection
from typing import Final

from rocketlake.format import layout

_UNITS_PER_FILE = 1024
_RESERVE: Final = 16 << 20  # for queues, index and tables, when the log has taken all it may have

_BY_RATIO: Final = frozenset(
    {
        "disk_max_used_space_ratio",
        "disk_space_clean_forcibly_ratio",
        "disk_space_warning_level_ratio",
        "replicas_per_disk_partition",
        "logical_disk_space_clean_forcibly_threshold",
    }
)
_BY_AGE_OR_BYTES: Final = frozenset({"file_reserved_time", "delete_when", "disk_free_clean_bytes"})


def embedded() -> dict[str, object]:
    """Small files, for a store inside a program: what is empty costs nothing to speak of.

    | File | Size | Why |
    | --- | --- | --- |
    | commit log | 8 MiB | the power of two above the largest record |
    | consume queue | 20,480 bytes | 1,024 units, five disk blocks; 10,000 queues: 200 MiB |
    | batch consume queue | 47,104 bytes | 1,024 units |
    | queue extension | 64 KiB | two of the largest units |
    | index | 4,200,040 bytes | a hundredth of the reference; 200 KiB at once, then as it fills |
    | timer log | 1 MiB | 20,000 units |

    A topic that a put makes has 4 queues, as when a Java producer makes it with its defaults.
    """
    return {
        "default_topic_queue_nums": 4,
        "mapped_file_size_commit_log": 8 << 20,
        "mapped_file_size_consume_queue": _UNITS_PER_FILE * layout.UNIT_SIZE,
        "mapper_file_size_batch_consume_queue": _UNITS_PER_FILE * layout.BATCH_UNIT_SIZE,
        "mapped_file_size_consume_queue_ext": 64 << 10,
        "max_hash_slot_num": layout.DEFAULT_INDEX_SLOTS // 100,
        "max_index_num": layout.DEFAULT_INDEX_ENTRIES // 100,
        "mapped_file_size_timer_log": 1 << 20,
    }


def keeping(chosen: Collection[str]) -> dict[str, object]:
    """Keep every message, for a program that never asked for any to be deleted.

    `chosen` are the options that it set.

    | Rule | Unasked | Asked for by |
    | --- | --- | --- |
    | files go by themselves | no | any of the ages, ratios or free bytes at which they go |
    | hours | all: the program may not run at 04 | `delete_when` |
    | percent of the disk | does not count: a large disk at 91 % has space | any of the ratios |
    | puts are refused | with less than 16 MiB free | `disk_free_refuse_bytes` |
    """
    by_ratio = not _BY_RATIO.isdisjoint(chosen)
    return {
        "auto_delete_enable": by_ratio or not _BY_AGE_OR_BYTES.isdisjoint(chosen),
        "disk_ratio_enable": by_ratio,
        "disk_free_refuse_bytes": _RESERVE,
        "delete_when": ";".join(f"{hour:02d}" for hour in range(24)),
    }
