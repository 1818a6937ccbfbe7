"""The queue offsets that records of a range of the log take, by queue."""

from collections.abc import Iterator

from rocketlake.format.record import Check
from rocketlake.model.queues import QueueKey
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.disk.log import Chunk, LogView
from rocketlake.store.dispatch.placement import PlacementRules, Records, UnitBlock, place
from rocketlake.store.queue.unit_kind import QUEUE_OFFSET_MAX


def first_offsets(
    log: LogView,
    start: int,
    end: int,
    deleted: DeletedTopics = NO_TOPICS,
    *,
    has_light_queues: bool = True,
) -> dict[QueueKey, int]:
    """Return the lowest queue offset of a range, by queue."""
    found: dict[QueueKey, int] = {}
    for block in _blocks(log, start, end, deleted, has_light_queues=has_light_queues):
        number = int(block.batch_numbers()[0].min())
        found[block.key] = min(found.get(block.key, number), number)
    return found


def next_offsets(
    log: LogView, start: int, end: int, deleted: DeletedTopics = NO_TOPICS
) -> dict[QueueKey, int]:
    """Return the queue offset behind the last message of a range, by queue."""
    found: dict[QueueKey, int] = {}
    for block in _blocks(log, start, end, deleted):
        bases, counts = block.batch_numbers()
        good = bases <= QUEUE_OFFSET_MAX  # beyond that a number is damage
        if good.any():
            following = int((bases + counts)[good].max())
            found[block.key] = max(found.get(block.key, 0), following)
    return found


def _blocks(
    log: LogView, start: int, end: int, deleted: DeletedTopics, *, has_light_queues: bool = True
) -> Iterator[UnitBlock]:
    rules = PlacementRules(has_light_queues=has_light_queues)
    for step in log.walk(start, end, checks=Check.OFFSET):
        if isinstance(step, Chunk):
            yield from place(Records(step.columns), rules, deleted).blocks()
