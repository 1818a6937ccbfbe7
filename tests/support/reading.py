"""What a view shows, in the few forms that tests compare."""

from pathlib import Path

from rocketlake.model.queues import QueueKey
from rocketlake.store.offline import OfflineStore

EVER = 1 << 62


def bodies(
    store: OfflineStore, topic: str = "T", queue_id: int = 0, begin: int = 0, end: int = EVER
) -> list[bytes]:
    """The bodies of a queue, in its order."""
    return [
        message.stored_body
        for batch in store.messages(QueueKey(topic, queue_id), begin, end)
        for message in batch.columns.messages()
    ]


def offsets(
    store: OfflineStore, topic: str = "T", queue_id: int = 0, begin: int = 0, end: int = EVER
) -> list[int]:
    """The queue offsets of the messages of a queue."""
    found: list[int] = []
    for batch in store.messages(QueueKey(topic, queue_id), begin, end):
        found += batch.places["queue_offset"].tolist()
    return found


def bounds(store: OfflineStore) -> dict[str, tuple[int, int]]:
    """The lowest and the next offset of each queue, by `topic/queue`."""
    return {str(key): (queue.min_offset, queue.max_offset) for key, queue in store.queues.items()}


def walked(store: OfflineStore) -> list[int]:
    """The physical offsets of the records of the log."""
    found: list[int] = []
    for chunk in store.walk():
        found += chunk.columns["physical_offset"].tolist()
    return found


def findings(store: OfflineStore) -> list[tuple[str, int, str]]:
    """File name, position and reason of all damage found so far."""
    return [
        (Path(finding.path).name, finding.position, finding.reason)
        for finding in store.damage.findings
    ]
