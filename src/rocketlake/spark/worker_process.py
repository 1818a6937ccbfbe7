"""What makes a Python process of Spark quick: it runs one task after the other for hours."""

import gc
import sys
from itertools import count
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_BLOCK: Final = 24 << 20
_IMPORTING: Final = 2


_tasks = count()


def tune_worker() -> None:
    """Have a process keep its memory, and pass over its modules when it looks for garbage.

    For the begin of a task, when what it needs is imported.
    """
    number = next(_tasks)
    if number == 0:
        _keep_heap()
    # Why: Spark has garbage collected after each task, and with our imports that takes 0.1 s. The
    # first task still imports what its results need. Elsewhere than in Spark's processes a program
    # has its own ideas about its garbage.
    if number < _IMPORTING and _is_of_spark():
        gc.freeze()


def _is_of_spark() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", "") == _DAEMON


def _keep_heap() -> None:
    """Have freed memory stay with this process, some tens of megabytes of it.

    Why: glibc gives the free end of the heap back to the system once that is twice as large as the
    largest block that was ever freed. The buffers of each batch would come back as pages that have
    to be filled with zeros anew, which takes a quarter of the time of a read. So one large block is
    freed, that nobody has written to; with another C library that changes nothing.
    """
    block = bytes(_BLOCK)
    del block
