"""DelayStore: what delayed delivery reads of a message store, and puts into it."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.format.record import StoredMessage
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import AppendRequest, PutReceipt
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.queue_set import ConsumeQueueSet


class DelayStore:
    """The parts of a message store that delayed delivery uses.

    `put` waits for a flush only if the message asks for it. `sync` brings everything that was put
    to the disk, or raises StoreError. Queue offsets and positions are those that dispatch has
    reached.

    Thread-safety: as its parts; the threads of this package and the dispatch thread call it.
    """

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
        """Return at most `count` plain units from a queue offset on; possibly fewer."""
        queue = self._queues.find(key)
        if not isinstance(queue, ConsumeQueue):
            return np.empty(0, UNIT_DTYPE)
        return queue.units(queue_offset, count)

    def dispatched_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the first queue offset and the one after the last; (0, 0) without the queue.

        The dispatch thread calls it, too, so it never waits for dispatch.
        """
        queue = self._queues.find(key)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def message_at(self, physical_offset: int, size: int) -> StoredMessage | None:
        """Return the good record of this size at an offset of the log; None if there is none."""
        return self._log.message_at(physical_offset, size)

    def log_bounds(self) -> tuple[int, int]:
        """Return the first physical offset and the one after the last record."""
        return max(self._log.min_offset, 0), self._log.max_offset


class DueRequest(AppendRequest, frozen=True, kw_only=True):
    """A message whose time has come: the put hook passes it, whatever its properties say.

    Compat: ScheduleMessageService#messageTimeUp takes the delay out of the map that hooks look at,
    but not out of the string that is stored.
    """


class Usage:
    """Whether a store has delayed messages at all; a store without any does no work for them.

    Thread-safety: flags are only ever set.
    """

    __slots__ = ("has_levels", "has_timers")

    def __init__(self) -> None:
        self.has_levels = False
        self.has_timers = False
