"""QueueRange: which records along the log a wanted queue holds."""

from msgspec import Struct


class QueueRange(Struct, frozen=True):
    """Queue offsets of one queue, and the first byte of the log that it knows."""

    topic: str
    queue_id: int
    from_offset: int
    to_offset: int
    from_physical: int
