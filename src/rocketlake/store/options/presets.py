"""Sets of options for a purpose; what a caller chooses is stronger."""

from rocketlake.format import layout

_UNITS_PER_FILE = 1024


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
