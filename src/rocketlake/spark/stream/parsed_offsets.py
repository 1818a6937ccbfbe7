"""ParsedOffsets: the last offsets as Spark has them, beside what they mean.

Spark hands the offset of a batch back some times. To read it again costs as much as the store has
queues, and its position in the log has to be looked up.
"""

from collections import deque
from typing import Any, Final

from rocketlake.spark.stream.offsets import StreamOffset

_KEPT: Final = 4


class ParsedOffsets:
    """Keeps a few offsets. Owned by one thread."""

    def __init__(self) -> None:
        self._entries: deque[tuple[dict[str, Any], StreamOffset]] = deque(maxlen=_KEPT)

    def note(self, members: dict[str, Any], offset: StreamOffset) -> None:
        """Keep an offset; the oldest goes."""
        self._entries.append((members, offset))

    def members_of(self, offset: StreamOffset) -> dict[str, Any] | None:
        """Return what Spark has of this very offset; None if that is not known."""
        return next((members for members, known in self._entries if known is offset), None)

    def offset_of(self, members: dict[str, Any]) -> StreamOffset | None:
        """Return the offset that was noted with equal members; None if none was."""
        return next((known for other, known in self._entries if other == members), None)
