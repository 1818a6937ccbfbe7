"""How much of the log's end counts as being in memory."""

from typing import Final

from rocketlake.files.ops import physical_memory_size

_UNKNOWN_MEMORY: Final = 24 << 30


def memory_window(percent: int, memory_size: int | None = None) -> int:
    """Return the bytes at the end of the log that count as being in memory.

    `percent` is `accessMessageInMemoryMaxRatio`; without a size, of the machine's memory.
    """
    # Compat: as StoreUtil#getTotalPhysicalMemorySize, which takes 24 GiB if the size is unknown.
    total = memory_size or physical_memory_size() or _UNKNOWN_MEMORY
    return total * percent // 100
