"""A process that puts into a store with small log files until it kills itself.

python killed_writing.py STORE '{"version": "5.5.0", "puts": 358, "flush": "ASYNC_FLUSH"}'

Each message that was acknowledged is a line on stdout: queue and queue offset. With `stuck_at`
dispatch stops there for good, and the process puts until it is refused.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from rocketlake.clock import SystemClock
from rocketlake.store.api import PutStatus
from rocketlake.store.message_store import MessageStore
from rocketlake.store.ports import DispatchSlice
from support.engine import open_engine, request

TOPIC = "killed"
QUEUES = 3
SIZES = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
COMPAT = {"5.5.0": "5.3", "5.3.3": "5.3", "4.9.7": "4.9", "4.6.0": "4.6"}
_BODY = 2000
_STUCK_PUTS = 2000


class StuckDispatch:
    """Keeps the dispatch thread from going on behind a number of records."""

    def __init__(self, stuck_at: int) -> None:
        self._left = stuck_at

    def dispatch(self, records: DispatchSlice) -> None:
        """Take records; wait for ever once there were enough."""
        self._left -= len(records.columns)
        if self._left < 0:
            threading.Event().wait()


def body_of(queue_id: int, queue_offset: int) -> bytes:
    """The body of a message."""
    return f"{queue_id}/{queue_offset} ".encode().ljust(_BODY, b"x")


def open_store(root: Path, version: str, **options: Any) -> MessageStore:
    """Open the store as that release would."""
    return open_engine(root, SystemClock(), source=SIZES, compat_version=COMPAT[version], **options)


def main() -> None:
    """Put, tell, die."""
    asked = json.loads(sys.argv[2])
    store = open_store(Path(sys.argv[1]), asked["version"], flush_disk_type=asked["flush"])
    puts = asked["puts"]
    if asked.get("stuck_at"):
        store.add_dispatcher(StuckDispatch(asked["stuck_at"]), is_first=True)
        store.parts.log_parts.preallocator._wait_s = 0.05
        puts = _STUCK_PUTS
    told = []  # Why: a write for each would give dispatch the time that a busy program does not
    for number in range(puts):
        queue_id = number % QUEUES
        receipt = store.put(request(TOPIC, queue_id, body_of(queue_id, number // QUEUES)))
        if receipt.status is not PutStatus.PUT_OK:
            told.append(f"refused {receipt.status} {receipt.reason}")
            break
        told.append(f"{queue_id} {receipt.queue_offset}")
    sys.stdout.write("\n".join(told))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
