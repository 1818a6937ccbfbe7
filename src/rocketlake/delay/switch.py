"""DelaySwitch: starts and stops the delay services of a store with its role.

A replica delivers nothing: its primary does. When it becomes a primary, the services are made again
and continue from the tables on the disk.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from rocketlake.delay.level_scheduler import LevelScheduler
from rocketlake.delay.services import DelayServices
from rocketlake.delay.timer_store import TimerStore
from rocketlake.model.queues import QueueKey
from rocketlake.store.api import AppendRequest, PutReceipt
from rocketlake.store.ports import Arrival

log = logging.getLogger(__name__)


class DelaySwitch:
    """The hook, arrival listener and role listener of a store, in front of its delay services.

    Thread-safety: any thread; start, close and role changes are serialized.
    """

    name: ClassVar[str] = "handleScheduleMessage"
    is_awaited: ClassVar[bool] = DelayServices.is_awaited
    sees_only_special: ClassVar[bool] = True

    def __init__(
        self,
        make: Callable[[], DelayServices],
        end_of: Callable[[QueueKey], int],
        *,
        is_replica: bool,
    ) -> None:
        """`end_of` returns the next queue offset of a queue.

        Raises:
            StoreError: a file of an earlier run cannot be used.
        """
        self._make = make
        self._end_of = end_of
        self._changing = threading.Lock()
        self._is_replica = is_replica
        self._is_started = False
        self._services = make()

    @property
    def levels(self) -> LevelScheduler:
        """The current level scheduler."""
        return self._services.levels

    @property
    def timer(self) -> TimerStore | None:
        """The current timer; None without one."""
        return self._services.timer

    def cap_progress(self, end_of: Callable[[QueueKey], int]) -> list[str]:
        """Set progress beyond the end of a queue to that end; see `DelayServices.cap_progress`."""
        return self._services.cap_progress(end_of)

    def before_put(self, request: AppendRequest) -> AppendRequest | PutReceipt | None:
        """Redirect a delayed message (store.ports.PutHook)."""
        return self._services.hook.before_put(request)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the services concerned (store.ports.ArrivalListener)."""
        self._services.arrived(arrivals)

    def start(self) -> None:
        """Begin to deliver, unless the store is a replica.

        Raises:
            StoreError: a file of an earlier run cannot be used.
        """
        with self._changing:
            self._is_started = True
            if not self._is_replica:
                self._services.start()

    def role_changed(self, *, is_replica: bool) -> None:
        """Stop or start delivery (store.ports.RoleListener).

        Raises:
            RocketLakeError: a file cannot be used; nothing is delivered until the next change.
        """
        with self._changing:
            if is_replica is self._is_replica:
                return
            self._is_replica = is_replica
            if is_replica:
                self._services.close()
                return
            self._services = self._make()
            for note in self._services.cap_progress(self._end_of):
                log.warning("progress set back: %s", note)
            if self._is_started:
                self._services.start()

    def close(self) -> None:
        """Stop delivering and write the progress; in a fork, do nothing."""
        with self._changing:
            self._is_started = False
            if not self._is_replica:
                self._services.close()
