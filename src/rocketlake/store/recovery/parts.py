"""What recovery works on, and what it reports."""

from collections.abc import Callable, Container, Iterable
from typing import Protocol

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.store_dir import StoreDir
from rocketlake.format.queue_unit import QueueUnit
from rocketlake.model.queues import QueueKey
from rocketlake.store.checkpoint import StoreCheckpoint
from rocketlake.store.deleted_topics import DeletedTopics, DeletedTopicsFile
from rocketlake.store.inventory import InventoriedQueues, InventoryFile
from rocketlake.store.options import StoreOptions
from rocketlake.store.recovery.missing_records import QueueEnd


class Queues(InventoriedQueues, Protocol):
    """All consume queues of a store (ConsumeQueueSet)."""

    @property
    def max_physical_offset(self) -> int:
        """The end of the last record that any queue holds; -1 if none does."""
        ...

    def recover(self, workers: int = 1, *, is_clean: bool = False) -> int:
        """Find the end of each queue; return the end of the last record that any holds."""
        ...

    def items(self) -> Iterable[tuple[QueueKey, QueueEnd]]:
        """Return all queues by their keys."""
        ...

    def truncate(self, log_offset: int) -> None:
        """Drop the units that point to an offset or behind it."""
        ...

    def first_units(self) -> Iterable[tuple[QueueKey, int, QueueUnit]]:
        """Yield the first unit of each plain queue, with its number; it may be anything."""
        ...

    def distrust(self, log_offset: int, firsts: Container[QueueKey]) -> None:
        """Drop all units but those up to the first one that points to an offset or behind it.

        The first units of the queues `firsts` stay: the log vouches for them.
        """
        ...

    def correct_min(self, log_min: int) -> None:
        """Find the first message of each queue that the log still holds."""
        ...

    def flush(self, least_pages: int) -> bool:
        """Have units on the disk where enough are new, all with 0."""
        ...

    def drop_earlier(self, deleted: DeletedTopics) -> list[QueueKey]:
        """Remove queues of an earlier life of their topic, which a deletion left; return which."""
        ...

    def fill_gap(self, key: QueueKey, number: int, physical_offset: int) -> None:
        """Let a queue that ends before a hole in the log go on with a queue offset behind it."""
        ...

    def destroy(self) -> None:
        """Remove all queues; new ones can be made."""
        ...


class Index(Protocol):
    """All index files of a store (IndexFileSet)."""

    @property
    def end_physical_offset(self) -> int:
        """Where the last record begins that the index has a key of."""
        ...

    @property
    def rebuild_from(self) -> int | None:
        """From where on keys may be lacking; None: all are there, as far as the files tell."""
        ...

    def truncate(self, log_offset: int) -> None:
        """Drop what points to an offset or behind it; what goes beside that is to be rebuilt."""
        ...

    def flush(self) -> None:
        """Have all entries on the disk."""
        ...

    def destroy(self) -> None:
        """Remove all files; new ones can be made."""
        ...


class RecoveryParts(Struct, frozen=True, kw_only=True):
    """What recovery works on; log, queues, index and checkpoint are loaded."""

    directory: StoreDir
    options: StoreOptions
    log_files: MappedFileQueue
    queues: Queues
    index: Index | None
    checkpoint: StoreCheckpoint
    dispatch_range: Callable[[int, int], int]
    """Brings the records of a range to queues and index, and returns where it stopped."""
    clock: Clock
    inventory: InventoryFile | None = None
    """What there was when the store was last closed."""
    deleted: DeletedTopicsFile | None = None
    """The topics that were deleted; None: none were."""
    has_topic: Callable[[str], bool] = lambda _: True
    """Whether the table of topics has one: queues of a topic that was deleted are not missed."""
    defer_index: Callable[[int], None] | None = None
    """Schedules indexing of the keys from an offset on; None: dispatch indexes them at once."""
    on_dispatch: Callable[[int, int], None] = lambda _start, _end: None
    """Receives the whole range before its files are dispatched one by one."""
    is_external: bool = False
    """A job dispatches what queues lack; recovery only finds the next queue offsets."""
    on_progress: Callable[[int, int], None] = lambda _done, _total: None
    """Receives how many bytes of the log were read, and how many there are to read."""


class RecoveryReport(Struct, frozen=True, kw_only=True):
    """What a start found and did."""

    is_clean: bool
    log_min: int = 0
    log_end: int = 0
    read_from: int = 0
    """From where on the log was read."""
    cut_bytes: int = 0
    """Bytes behind the end that were something, and are gone."""
    dispatched_from: int | None = None
    """Where dispatch began anew; None: nothing was lacking."""
    dispatched_where: int = 0
    """Where it goes on: the end of the log, or of its confirmed part."""
    indexed_from: int | None = None
    """Where keys are lacking that are indexed while the store is in use; None: none are."""
    redispatched: int = 0
    """Messages that queues lacked and got."""
    last_timestamp: int = 0
    """Store time of the last record that was read; 0 if there was none."""
    queue_offsets: dict[QueueKey, int]
    """The next queue offset of each queue."""
    elapsed_ms: int = 0
    notes: tuple[str, ...] = ()
    """What was not as it should be, in words."""
