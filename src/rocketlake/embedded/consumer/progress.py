"""QueueProgress: the progress of groups, from their offsets and the bounds of queues."""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from rocketlake.metadata.offsets import OffsetTable
from rocketlake.model.queues import QueueKey


class QueueProgress(Struct, frozen=True, kw_only=True):
    """The offset of a group in one queue, and the bounds of the queue."""

    topic: str
    queue_id: int
    offset: int | None
    """The next queue offset to consume; None: it never committed one."""
    min_offset: int
    max_offset: int

    @property
    def lag(self) -> int:
        """How many messages of the queue the group has not consumed, filtered ones included."""
        start = self.min_offset if self.offset is None else max(self.offset, self.min_offset)
        return max(self.max_offset - start, 0)

    @property
    def missed(self) -> int:
        """How many messages from `offset` on were deleted before the group consumed them."""
        return 0 if self.offset is None else max(self.min_offset - self.offset, 0)


def group_names(table: OffsetTable) -> list[str]:
    """Return the groups that have committed offsets."""
    return sorted({entry.group for entry in table.progress()})


def progress_of(
    table: OffsetTable,
    group: str,
    *,
    queue_count: Callable[[str], int],
    bounds: Callable[[QueueKey], tuple[int, int]],
) -> Iterator[QueueProgress]:
    """Yield the progress of a group in every queue of the topics that it consumes."""
    offsets = {e.topic: e.offsets for e in table.progress() if e.group == group}
    for topic, found in sorted(offsets.items()):
        for queue_id in _queues(found, queue_count(topic)):
            low, high = bounds(QueueKey(topic, queue_id))
            yield QueueProgress(
                topic=topic,
                queue_id=queue_id,
                offset=found.get(queue_id),
                min_offset=max(low, 0),
                max_offset=max(high, 0),
            )


def _queues(found: Mapping[int, int], count: int) -> list[int]:
    return sorted({*found, *range(count)})
