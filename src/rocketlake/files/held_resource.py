"""HeldResource: a resource that is released with its last hold [ReferenceResource]."""

import threading
from abc import ABC, abstractmethod

from rocketlake.clock import Clock


class HeldResource(ABC):
    """Counts holds: one of its owner, and one of each user.

    Thread-safety: any thread may hold, release and shut down.

    Invariants: `_let_go` is called once, in the thread that ends the last hold, or in the one that
    loses patience with it.
    """

    __slots__ = ("_clock", "_closing_since_s", "_guard", "_holds", "_is_available", "_is_closed")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._holds = 1
        self._is_available = True
        self._is_closed = False
        self._closing_since_s = 0.0

    @property
    def is_available(self) -> bool:
        """Whether it can be held; it cannot once it is going away."""
        return self._is_available

    @property
    def is_closed(self) -> bool:
        """Whether it was released."""
        return self._is_closed

    def hold(self) -> bool:
        """Keep it usable until `release`; False if it is going away already."""
        with self._guard:
            if self._is_available:
                self._holds += 1
            return self._is_available

    def release(self) -> None:
        """Undo one `hold`; after `shutdown` the last one releases the resource."""
        with self._guard:
            self._holds -= 1
            is_last = self._holds == 0 and not self._is_closed
            self._is_closed |= is_last
        if is_last:
            self._let_go()

    def shutdown(self, force_after_ms: int) -> bool:
        """Refuse new holds, and release the resource with the last one; True once it is released.

        A call so many milliseconds after the first one releases it in spite of holds.
        """
        now_s = self._clock.monotonic_s()
        with self._guard:
            is_forced = False
            if self._is_available:
                self._is_available = False
                self._closing_since_s = now_s
                self._holds -= 1
            else:
                is_forced = (now_s - self._closing_since_s) * 1000 >= force_after_ms
            is_last = not self._is_closed and (self._holds <= 0 or is_forced)
            self._is_closed |= is_last
        if is_last:
            self._let_go()
        return self._is_closed

    @abstractmethod
    def _let_go(self) -> None:
        """Give everything back."""
