"""Queues that lost something while their store was closed, by its inventory."""

from collections.abc import Callable, MutableMapping

from rocketlake.files.store_dir import StoreDir
from rocketlake.model.queues import QueueKey
from rocketlake.model.topics import is_lmq, is_system_topic
from rocketlake.store.disk.queues import QueueView
from rocketlake.store.inventory import InventoryFile, QueueBounds, find_losses


def drop_lost(
    directory: StoreDir,
    queues: MutableMapping[QueueKey, QueueView],
    log: tuple[int, int],
    has_topic: Callable[[str], bool],
) -> bool:
    """Remove the queues that lost their first units; tell whether any queue lost something.

    What they lack is in the log. A topic without a queue counts as deleted, unless
    `has_topic` knows it: so a start of the store decides.
    """
    then = InventoryFile(directory.ops, directory.root).load()
    if then is None:
        return False
    now = {
        key: QueueBounds(queue.first_index, queue.next_offset, queue.max_physical_offset)
        for key, queue in queues.items()
    }
    topics = {key.topic for key in queues}
    losses = find_losses(
        then,
        now,
        log,
        lambda topic: (
            not (topic in topics or is_system_topic(topic) or is_lmq(topic) or has_topic(topic))
        ),
    )
    for key in losses.absent:
        queues.pop(key, None)
    return bool(losses.absent or losses.short)
