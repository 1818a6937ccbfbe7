"""WriteBufferPool: locked memory buffers for the transient write path [TransientStorePool]."""

import logging
import threading
from typing import Final

from rocketlake.files.ops import FileOps, MemoryMap

log = logging.getLogger(__name__)

_LOW_RATIO: Final = 0.4


class WriteBufferPool:
    """Buffers of one file's size each; what was given back last is lent first.

    Thread-safety: any thread may borrow and give back.

    Durability: what is only in a buffer is lost with the process.
    """

    def __init__(self, ops: FileOps, *, count: int, size: int) -> None:
        self._ops = ops
        self._count = count
        self._size = size
        self._free: list[MemoryMap] = []
        self._guard = threading.Lock()
        self._is_open = False

    def open(self) -> None:
        """Take the memory, and keep it from being swapped out where the system allows it."""
        locked = 0
        for _ in range(self._count):
            memory = self._ops.allocate_memory(self._size)
            self._free.append(memory)
            locked += memory.lock(0, self._size)
        self._is_open = True
        if locked < self._count:
            log.warning(
                "write buffers not locked in memory locked=%d of=%d size=%d",
                locked,
                self._count,
                self._size,
            )

    @property
    def available(self) -> int:
        """How many buffers can be borrowed now."""
        return len(self._free)

    def borrow(self) -> "LentBuffer | None":
        """Lend a buffer, with old bytes in it; None if all are in use."""
        with self._guard:
            memory = self._free.pop() if self._free else None
            left = len(self._free)
        if left < self._count * _LOW_RATIO:
            log.warning("write buffers run short free=%d of=%d", left, self._count)
        return LentBuffer(self, memory) if memory is not None else None

    def take_back(self, memory: MemoryMap) -> None:
        """Have a buffer back; `LentBuffer.give_back` calls it."""
        with self._guard:
            if self._is_open:
                self._free.append(memory)
                return
        memory.close()

    def close(self) -> None:
        """Give the memory back; buffers still in use follow when they come back."""
        with self._guard:
            self._is_open = False
            free, self._free = self._free, []
        for memory in free:
            memory.unlock()
            memory.close()


class LentBuffer:
    """A buffer on loan; it goes back once."""

    __slots__ = ("_memory", "_pool", "buffer")

    def __init__(self, pool: WriteBufferPool, memory: MemoryMap) -> None:
        self._pool = pool
        self._memory: MemoryMap | None = memory
        self.buffer = memory.buffer

    def give_back(self) -> None:
        """Let others borrow it; a second call does nothing."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self.buffer = memoryview(b"")
            self._pool.take_back(memory)
