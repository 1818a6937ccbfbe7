"""MessageStore: put, get, query, start, close; wiring only [DefaultMessageStore].

A read sees every put that this process made before: it first waits for dispatch.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from rocketlake.closing import Closing
from rocketlake.errors import DiskFullError, StoreClosedError, StoreError
from rocketlake.filters.message_filter import MessageFilter
from rocketlake.format.queue_unit import UNIT_DTYPE
from rocketlake.format.record import StoredMessage
from rocketlake.model.queues import QueueKey
from rocketlake.store import exit_hook
from rocketlake.store import runtime_info as gauges
from rocketlake.store.api import (
    AppendRequest,
    BatchRequest,
    ColumnsResult,
    GetRequest,
    GetResult,
    PutReceipt,
    QueryResult,
    SendFields,
)
from rocketlake.store.assembly import Base, Parts, assemble
from rocketlake.store.disk.index import KeyQuery
from rocketlake.store.lifecycle import Lifecycle, Progress
from rocketlake.store.ports import ArrivalListener, CustomDispatcher, PutHook
from rocketlake.store.put.bulk import BulkAppender
from rocketlake.store.put.server_put import NonBlockingPutter, ServerProperties
from rocketlake.store.queue.consume_queue import ConsumeQueue
from rocketlake.store.queue.times import Boundary
from rocketlake.store.read.query import Query
from rocketlake.store.read.raw_reader import RawReader, RawRecords
from rocketlake.store.read.reader import Reader
from rocketlake.store.replication_door import ReplicationDoor
from rocketlake.store.retention.service import Deleted
from rocketlake.store.running_flags import RunningFlag
from rocketlake.store.stats.store_stats import StoreGauges
from rocketlake.store.truncation import Truncation

if TYPE_CHECKING:
    from rocketlake.store.recovery.parts import RecoveryReport

log = logging.getLogger(__name__)


class MessageStore(ReplicationDoor, Closing):
    """One store, open for writing.

    Thread-safety: any thread may call anything; `start` once.
    """

    def __init__(self, base: Base) -> None:
        """Make the parts; nothing is opened before `start`."""
        self.options = base.options
        self.clock = base.clock
        self.directory = base.directory
        self.parts: Parts = assemble(base)
        self.log = self.parts.log
        self.queues = self.parts.queues
        self.index = self.parts.index
        self.flags = self.parts.flags
        self.stats = self.parts.stats
        self.dispatcher = self.parts.dispatcher
        self.retention = self.parts.retention
        self.recovery: RecoveryReport | None = None
        self._life = Lifecycle(base, self.parts)
        ReplicationDoor.__init__(
            self, self.parts, self._life, base.directory, is_external=base.is_external
        )
        self._putter = self.parts.putter
        self.bulk = BulkAppender(self._putter, self.log, base.catalog, self.options)
        self._reader = Reader(self.log, self.queues, self.options, self.stats)
        self._raw_reader = RawReader(self.log, self.queues, self.options, self.stats)
        # Compat: as DefaultMessageStore#queryMessage of 5.5 without an index in RocksDB.
        index = self.index if self.options.index_file_read_enable else None
        self.lookup = Query(self.log, self.queues, index, self.options)
        # Why attributes: a method here would cost each put a call. Putter, in put/putter.py.
        self.put_plain = self._putter.put_plain
        self.put_plain_async = self._putter.put_plain_async

    def start(self, on_progress: Progress | None = None) -> Self:
        """Take the lock, recover, and start the services.

        Raises:
            StoreLockedError: another process, or this one, has the store open.
            StoreError: the files cannot be used.
        """
        self.recovery = self._life.start(on_progress)
        exit_hook.register(self)
        return self

    def recover_and_close(self, on_progress: Progress | None = None) -> "RecoveryReport":
        """Recover a store and leave it cleanly closed; in place of `start`, for copies.

        Raises:
            StoreLockedError: another process, or this one, has the store open.
            RocketLakeError: the files cannot be used, or something could not be brought to disk.
        """
        self.recovery = self._life.recover_and_close(on_progress)
        return self.recovery

    def close(self) -> None:
        """Bring everything to disk and release the store; a second call does nothing.

        The end of the program closes a store that is still open.

        Raises:
            RocketLakeError: something could not be brought to disk; the next start recovers.
        """
        exit_hook.unregister(self)
        self._life.close()

    @property
    def is_open(self) -> bool:
        """Whether the store was started and not closed."""
        return self._life.is_open

    def _follow_role(self) -> None:
        for reader in (self._reader, self._raw_reader):
            reader.follow_role(self.parts.role)

    # --- plugging in -----------------------------------------------------------------------------

    def add_hook(self, hook: PutHook, *, is_first: bool = False) -> None:
        """Add a hook that sees messages before they are put."""
        self._putter.add_hook(hook, is_first=is_first)

    def add_listener(self, listener: ArrivalListener) -> None:
        """Notify a listener of messages that can be read."""
        self.dispatcher.listeners.append(listener)

    def add_dispatcher(self, dispatcher: CustomDispatcher, *, is_first: bool = False) -> None:
        """Add a dispatcher that runs before the queues, or after the index."""
        (self.dispatcher.first if is_first else self.dispatcher.last).append(dispatcher)

    def dispatch_externally(
        self, prepare: Callable[[int, int], None], dispatch_range: Callable[[int, int], int]
    ) -> None:
        """Replace dispatch in recovery by a caller that writes the same queues and the same index.

        `prepare` receives the whole range, then `dispatch_range` the range of each file.
        """
        self._life.on_dispatch = prepare
        self.dispatcher.external_range = dispatch_range

    # --- putting ---------------------------------------------------------------------------------

    def put(self, request: AppendRequest) -> PutReceipt:
        """Put a message.

        Raises:
            ValueError: the message cannot be encoded; nothing was changed.
            StorePoisonedError: a flush failed, now or before.
        """
        return self._putter.put(request)

    def put_async(self, request: AppendRequest) -> Future[PutReceipt]:
        """Put a message; the future completes when `put` would return, and raises what it would."""
        return self._putter.put_async(request)

    def put_batch(self, batch: BatchRequest) -> PutReceipt:
        """Put messages of one topic into one queue, all of them or none; raises as `put` does."""
        return self._putter.put_batch(batch)

    def put_batch_async(self, batch: BatchRequest) -> Future[PutReceipt]:
        """Put a batch; the future completes when `put_batch` would return."""
        return self._putter.put_batch_async(batch)

    # --- putting for a server --------------------------------------------------------------------

    def edit_properties(self, changes: ServerProperties) -> None:
        """Set or drop properties of every message that is put from its client's fields.

        Raises:
            ValueError: a property cannot be written.
        """
        self.parts.field_putter.edit_properties(changes)

    def put_fields(self, fields: SendFields) -> PutReceipt:
        """Put a message from its client's fields; raises as `put` does."""
        return self.parts.field_putter.put(fields)

    @property
    def non_blocking(self) -> NonBlockingPutter:
        """Puts for an event loop, which never wait."""
        return self.parts.non_blocking

    # --- reading ---------------------------------------------------------------------------------

    def get(self, request: GetRequest, message_filter: MessageFilter | None = None) -> GetResult:
        """Return messages of a queue from an offset on.

        Raises:
            StoreClosedError: the store is closed.
            StoreError: the store is marked as not readable.
        """
        self._require_readable()
        if request.catches_up:
            self.catch_up()
        else:
            self._require_open()
        return self._reader.get(request, message_filter)

    def get_raw(
        self, request: GetRequest, message_filter: MessageFilter | None = None
    ) -> RawRecords:
        """Return records of a queue from an offset on, as the bytes that files of the log hold.

        The answer keeps the memory of these files until it is closed. Where the log is cut
        meanwhile (`truncate`), the bytes of its views behind the cut change.

        Raises:
            StoreClosedError: the store is closed.
            StoreError: the store is marked as not readable.
        """
        self._require_readable()
        if request.catches_up or not self._life.is_open:
            self.catch_up()
        return self._raw_reader.read(request, message_filter)

    def columns(self, request: GetRequest) -> ColumnsResult:
        """Return messages of a queue from an offset on, as columns; raises as `get` does."""
        self._require_readable()
        self.catch_up()
        return self._reader.columns(request)

    def query(self, query: KeyQuery) -> QueryResult:
        """Return messages by key, the newest ones in the order of the log."""
        self.catch_up()
        if self.parts.index_catch_up is not None:
            self.parts.index_catch_up.finish()
        return self.lookup.query(query)

    def offset_by_time(
        self, key: QueueKey, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset for a store time; 0 without the queue."""
        self.catch_up()
        queue = self.queues.find(key)
        return queue.offset_by_time(self.log, timestamp, boundary) if queue is not None else 0

    def queue_bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return a queue's first offset and the one behind its last; (0, 0) without the queue."""
        self.catch_up()
        queue = self.queues.find(key)
        return (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def queue_units(self, key: QueueKey, queue_offset: int, count: int) -> npt.NDArray[np.void]:
        """Return up to so many plain units from a queue offset on; none if none is there.

        Raises:
            StoreClosedError: the store is closed.
        """
        self._require_open()
        queue = self.queues.find(key)
        if not isinstance(queue, ConsumeQueue):
            return np.empty(0, UNIT_DTYPE)
        return queue.units(queue_offset, count)

    def message_at(self, physical_offset: int, size: int | None = None) -> StoredMessage | None:
        """Return the good record at an offset of the log; None if there is none.

        Raises:
            StoreClosedError: the store is closed.
        """
        self._require_open()
        return self.log.message_at(physical_offset, size)

    def log_bounds(self) -> tuple[int, int]:
        """Return the first physical offset and the one behind the last record."""
        return max(self.log.min_offset, 0), self.log.max_offset

    # --- keeping ---------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Wait until everything put so far is dispatched, flushing it first where that is required.

        With a full disk, records may stay undispatched: a reader sees what queues and index hold.

        Raises:
            StoreClosedError: the store is closed.
        """
        if not self._life.is_open:
            self._require_open()
        end = self.log.files.wrote_where
        if self.dispatcher.dispatched_where < end:
            if self.log.confirm_offset < end:
                self.flush()
            try:
                self.dispatcher.catch_up(end)
                if self.dispatcher.dispatched_where < end:
                    # Why: a file before the last one may still have its bytes in a write buffer.
                    self.flush()
                    self.dispatcher.catch_up(end)
            except DiskFullError as error:
                log.debug("read without what is not dispatched yet reason=%s", error)

    def _require_open(self) -> None:
        if not self._life.is_open:
            raise StoreClosedError(f"the store {self.directory.root} is closed")

    def _require_readable(self) -> None:
        # Compat: as DefaultMessageStore#getMessage, whose null answer a broker takes for an error.
        if not self.flags.is_readable:
            self._require_open()
            raise StoreError(f"the store is not readable: {self.flags.explain()}")

    def set_fenced(self, *, is_fenced: bool, reason: str = "") -> None:
        """Refuse puts while another store may be the primary, or accept them again."""
        if is_fenced:
            self.flags.mark(RunningFlag.FENCED, reason)
        else:
            self.flags.clear(RunningFlag.FENCED)

    def flush(self) -> None:
        """Flush everything put so far.

        Raises:
            StoreClosedError: the store is closed.
            StorePoisonedError: a flush failed, now or before.
        """
        self._require_open()
        self.parts.log_parts.flusher.flush_all()

    def flush_soon(self) -> None:
        """Wake the log's flush thread, without waiting for it."""
        self.parts.log_parts.flusher.wakeup()

    def sync(self) -> None:
        """Flush everything put so far; as `flush`."""
        self.flush()

    def drop_topic(self, topic: str) -> int:
        """Remove the queues of a topic and forget its offsets; return how many queues it had.

        Its records stay in the log until they expire, and can no longer be reached by queue.

        Durability: when this returns, the deletion is on the disk. A crash before leaves the topic
        as it was, or without messages.

        Raises:
            StoreClosedError: the store is closed.
            StorePoisonedError: a flush failed, now or before; the topic stays.
            FileAccessError: the deletion cannot be written down; the topic stays.
        """
        self._require_open()
        self.catch_up()  # what the topic has, all its queues can be counted then
        self._life.inventory.remove()  # Order: first, so that no later start misses what is dropped
        # Invariant: between the entry of the deletion and the removal of the queues nothing is
        # dispatched, so that no unit of the topic's next life goes into a queue of this one.
        return self.dispatcher.exclusively(lambda: self._drop_topic(topic))

    def _drop_topic(self, topic: str) -> int:
        flusher = self.parts.log_parts.flusher
        flusher.flush_all()  # Why here: under the lock, little is left to flush
        # Invariant: no put comes between the end of the log that the entry names and the new
        # numbers. A put before has a number of the earlier life and lies below that end.
        with self.log.pause():
            # Order: the table may speak of no byte of the log that a power cut could take.
            flusher.flush_all()
            self.parts.deleted.add(topic, self.log.wrote_where)
            self.parts.offsets.restart(topic)
        return self.queues.drop(topic)

    def truncate(self, offset: int, *, is_limited: bool = True) -> int:
        """Cut the log at an offset where a record begins; return how many bytes it has lost.

        Queues, index, next queue offsets, deleted topics and the checkpoint follow. Progress of
        groups, delay levels and the timer beyond the new ends of their queues is left to its owner.
        With `is_limited` no more than two files' worth may go [resetWriteOffset]; without it any
        number [truncateFiles].

        Durability: when this returns, the cut is on the disk. A crash before leaves a store whose
        next start makes all parts agree, at this end or at a later one.

        Raises:
            StoreClosedError: the store is closed.
            ValueError: no record begins at the offset, or too much would go; nothing was changed.
            StoreError: a job writes the queues, or a flush failed before; nothing was changed.
            RocketLakeError: the cut has failed in the middle. The store takes no more messages.
        """
        self._require_open()
        self._refuse_in_dispatch("truncate")
        cut = Truncation(self.parts, self.directory, self._life.inventory, offset)
        return self._life.shielded(lambda: cut.run(is_limited=is_limited))

    def delete_expired(self, *, reserved_ms: int | None = None, force: bool = False) -> Deleted:
        """Delete now the files of the log that are old enough, then what queues and index lose.

        `reserved_ms` is how old, in place of `file_reserved_time`; with `force` age does not
        matter. The last file stays, and so does what a holder keeps (`retention.hold`).

        Raises:
            StoreClosedError: the store is closed.
            StorePoisonedError: a flush failed before; nothing is deleted then.
            FileAccessError: a file cannot be removed; those before it are gone.
        """
        self._require_open()
        self.parts.log_parts.poison.check()
        return self.retention.delete_expired(reserved_ms=reserved_ms, force=force)

    # --- looking at ------------------------------------------------------------------------------

    def gauges(self) -> StoreGauges:
        """Return the state of the parts as numbers."""
        return gauges.collect(self.parts, self.directory, self.clock.now_ms())

    def runtime_info(self) -> dict[str, str]:
        """Return counters and gauges by the reference's names."""
        self.stats.note_dispatch_buffer(self.parts.dispatcher.buffer_max)
        return self.stats.runtime_info(self.clock.now_ms(), self.gauges())
