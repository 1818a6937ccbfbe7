"""What delayed delivery asks of a store, and what it puts into it."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocketlake.format.record import StoredMessage
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import AppendRequest, PutReceipt

__all__ = ["DelayStore", "DueRequest", "StoredMessage", "Usage"]


class DelayStore(Protocol):
    """A store, as the services of this package see it. Called by their threads, and one another's.

    Positions in queues and log are those that dispatch has reached.
    """

    def put(self, request: AppendRequest, /) -> PutReceipt:
        """Put a message; waits for no flush if the message does not ask for it."""
        ...

    def queue_units(self, key: QueueKey, queue_offset: int, count: int) -> npt.NDArray[np.void]:
        """Return up to so many plain units from a queue offset on; none if none is there.

        Fewer may come although there are more.
        """
        ...

    def dispatched_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the first queue offset and the one behind the last; (0, 0) without the queue.

        Called from dispatch too, so it must not wait for dispatch.
        """
        ...

    def message_at(self, physical_offset: int, size: int) -> StoredMessage | None:
        """Return the good record of this size at an offset of the log; None if there is none."""
        ...

    def log_bounds(self) -> tuple[int, int]:
        """Return the first physical offset and the one behind the last record."""
        ...

    def sync(self) -> None:
        """Have all that was put on the disk.

        Raises:
            StoreError: it may not be there.
        """
        ...


class DueRequest(AppendRequest, frozen=True, kw_only=True):
    """A message whose time has come: the hook lets it pass, whatever its properties say.

    Compat: ScheduleMessageService#messageTimeUp takes the delay out of the map that hooks look at,
    but not out of the string that is stored.
    """


class Usage:
    """Whether a store has delayed messages at all: who has none pays for nothing.

    Thread-safety: flags are only ever set.
    """

    __slots__ = ("has_levels", "has_timers")

    def __init__(self) -> None:
        self.has_levels = False
        self.has_timers = False
