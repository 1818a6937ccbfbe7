"""What recovery works on, and what it reports."""

from collections.abc import Callable

from msgspec import Struct

from rocketlake.clock import Clock
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.store_dir import StoreDir
from rocketlake.model.queues import QueueKey
from rocketlake.store.checkpoint import StoreCheckpoint
from rocketlake.store.deleted_topics import DeletedTopicsFile
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.inventory import InventoryFile
from rocketlake.store.options import StoreOptions
from rocketlake.store.queue.queue_set import ConsumeQueueSet


class RecoveryParts(Struct, frozen=True, kw_only=True):
    """What recovery works on; log, queues, index and checkpoint are loaded."""

    directory: StoreDir
    options: StoreOptions
    log_files: MappedFileQueue
    queues: ConsumeQueueSet
    index: IndexFileSet | None
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
    """What a recovery found and did."""

    is_clean: bool
    log_min: int = 0
    log_end: int = 0
    read_from: int = 0
    """From where on the log was read."""
    cut_bytes: int = 0
    """Bytes behind the end that were not zero and are cut off."""
    dispatched_from: int | None = None
    """Where dispatch began; None: nothing was lacking."""
    dispatched_where: int = 0
    """Where dispatch continues: the end of the log, or of its confirmed part."""
    indexed_from: int | None = None
    """From where keys are indexed while the store is in use; None: no keys are lacking."""
    redispatched: int = 0
    """Messages that queues lacked and got."""
    last_timestamp: int = 0
    """Store time of the last record that was read; 0 if there was none."""
    queue_offsets: dict[QueueKey, int]
    """The next queue offset of each queue."""
    elapsed_ms: int = 0
    notes: tuple[str, ...] = ()
    """Problems that were found, as text."""
