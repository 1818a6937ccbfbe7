"""StoreDoor: the parts of a message store that delayed delivery uses."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rocketlake.delay.ports import StoredMessage
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import AppendRequest, PutReceipt
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.queue_set import ConsumeQueueSet


class StoreDoor:
    """Implements DelayStore. Thread-safety: as its parts."""

    def __init__(
        self,
        put: Callable[[AppendRequest], PutReceipt],
        sync: Callable[[], None],
        *,
        queues: ConsumeQueueSet,
        log: CommitLog,
    ) -> None:
        self.put = put
        self.sync = sync
        self._queues = queues
        self._log = log

    def queue_units(self, key: QueueKey, queue_offset: int, count: int) -> npt.NDArray[np.void]:
        """Return up to so many plain units from a queue offset on; none if none is there."""
        queue = self._queues.find(key)
        if not isinstance(queue, ConsumeQueue):
            return np.empty(0, UNIT_DTYPE)
        return queue.units(queue_offset, count)

    def dispatched_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the first queue offset and the one behind the last; (0, 0) without the queue."""
        queue = self._queues.find(key)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def message_at(self, physical_offset: int, size: int) -> StoredMessage | None:
        """Return the good record of this size at an offset of the log; None if there is none."""
        return self._log.message_at(physical_offset, size)

    def log_bounds(self) -> tuple[int, int]:
        """Return the first physical offset and the one behind the last record."""
        return max(self._log.min_offset, 0), self._log.max_offset
