"""How far groups have come: values for a caller, made from offsets and the bounds of queues."""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from rocketlake.metadata.offsets import OffsetTable
from rocketlake.model.queues import QueueKey


class QueueProgress(Struct, frozen=True, kw_only=True):
    """Where a group is in one queue, and where the queue begins and ends."""

    topic: str
    queue_id: int
    offset: int | None
    """The next queue offset to consume; None: it never committed one."""
    min_offset: int
    max_offset: int

    @property
    def lag(self) -> int:
        """How many messages of the queue the group has not consumed, wanted or not."""
        start = self.min_offset if self.offset is None else max(self.offset, self.min_offset)
        return max(self.max_offset - start, 0)

    @property
    def missed(self) -> int:
        """How many messages were deleted before the group came to them: from `offset` on."""
        return 0 if self.offset is None else max(self.min_offset - self.offset, 0)


def group_names(table: OffsetTable) -> list[str]:
    """Return the groups that committed something."""
    return sorted({entry.group for entry in table.progress()})


def progress_of(
    table: OffsetTable,
    group: str,
    *,
    queue_count: Callable[[str], int],
    bounds: Callable[[QueueKey], tuple[int, int]],
) -> Iterator[QueueProgress]:
    """Yield where a group is in every queue of the topics that it consumes."""
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
