"""Tuning of Spark's Python processes, which run one task after the other for hours."""

import gc
import sys
from itertools import count
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_BLOCK: Final = 24 << 20
_IMPORTING: Final = 2


_tasks = count()


def tune_worker() -> None:
    """Make a process keep its heap, and exclude its modules from garbage collection.

    To be called when a task starts and its modules are imported.
    """
    number = next(_tasks)
    if number == 0:
        _keep_heap()
    # Why: Spark collects garbage after each task, and with our imports that takes 0.1 s. The first
    # task still imports what its results need. Other programs decide about their garbage
    # themselves.
    if number < _IMPORTING and _is_of_spark():
        gc.freeze()


def _is_of_spark() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", "") == _DAEMON


def _keep_heap() -> None:
    """Keep some tens of megabytes of freed memory in this process.

    Why: glibc returns the free end of the heap to the system once it is twice as large as the
    largest block that was ever freed. The pages for the buffers of each batch would be zeroed
    again, which takes a quarter of the time of a read. So one large, untouched block is freed; with
    other C libraries this has no effect.
    """
    block = bytes(_BLOCK)
    del block
