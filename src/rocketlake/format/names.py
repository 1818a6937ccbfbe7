"""File names <-> base offsets and timestamps."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from rocketlake.format.layout import MAX_I64

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
ROCKSDB_QUEUES: Final = "consumequeue_rocksdb"
ROCKSDB_MESSAGES: Final = "rocksdbstore"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
LOCK: Final = "lock"
TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
TIMER_CHECK: Final = "timercheck"
COMPACTION: Final = "compaction"
EPOCHS: Final = "epochFileCheckpoint"
BACKUP_SUFFIX: Final = ".bak"

_OFFSET = re.compile(r"[0-9]{1,20}")
_INDEX = re.compile(r"[0-9]{17}")


def offset_name(base_offset: int) -> str:
    """Return the name of the file that begins at this offset: 20 digits.

    Raises:
        ValueError: a negative offset.
    """
    if base_offset < 0:
        raise ValueError(f"a file cannot begin at {base_offset}")
    return f"{base_offset:020d}"


def parse_offset_name(name: str) -> int | None:
    """Return the offset a file name stands for, or None if it is no such name."""
    if not _OFFSET.fullmatch(name) or not name.isascii():
        return None
    offset = int(name)
    return offset if offset <= MAX_I64 else None


def index_name(moment: datetime) -> str:
    """Return the name of an index file made at this local time: 17 digits."""
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def index_name_behind(before: str, moment: datetime) -> str:
    """Return the name of an index file made at this local time that sorts behind another's.

    Local time goes back when summer ends, and two files may be made in one millisecond.
    """
    name = index_name(moment)
    return name if name > before else _next_index_name(before)


def _next_index_name(name: str) -> str:
    parts = (name[:4], name[4:6], name[6:8], name[8:10], name[10:12], name[12:14])
    try:
        begin = datetime(*(int(part) for part in parts), tzinfo=UTC)  # type: ignore[misc, arg-type] # six numbers
        return index_name(begin + timedelta(milliseconds=int(name[14:]) + 1))
    except (ValueError, OverflowError):  # digits that are no time
        return f"{int(name) + 1:017d}"


def is_index_name(name: str) -> bool:
    """Tell whether a name is that of an index file."""
    return bool(_INDEX.fullmatch(name)) and name.isascii()
