"""Makes the parts of a store from its options, and connects them."""

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from rocketlake.clock import Clock
from rocketlake.files.file_traits import LOG_FILES
from rocketlake.files.mapped_file import MappedFile
from rocketlake.files.mapped_file_class import find_mapped_file_class
from rocketlake.files.mapped_file_factory import MappedFileFactory, MappedFileMaker
from rocketlake.files.mapped_file_queue import MappedFileQueue, QueuePaths
from rocketlake.files.ops import FileOps
from rocketlake.files.preallocator import Preallocator, WarmUp
from rocketlake.files.shielded_worker import ShieldedWorker
from rocketlake.files.store_dir import StoreDir
from rocketlake.files.write_buffer_pool import WriteBufferPool
from rocketlake.format import names
from rocketlake.store.checkpoint import StoreCheckpoint
from rocketlake.store.deleted_topics import DeletedTopicsFile
from rocketlake.store.dispatch.dispatcher import Dispatcher, DispatchParts
from rocketlake.store.dispatch.external import ExternalDispatchNotifier
from rocketlake.store.dispatch.external_files import ExternalDispatch
from rocketlake.store.dispatch.placement import PlacementRules
from rocketlake.store.dispatch.roll_gate import RollGate
from rocketlake.store.dispatch.unit_builder import UnitBuilder
from rocketlake.store.index.catch_up import IndexCatchUp
from rocketlake.store.index.file_set import IndexFileSet
from rocketlake.store.index.index_file import IndexShape
from rocketlake.store.log.commit_log import CommitLog
from rocketlake.store.log.page_prefetcher import PagePrefetcher
from rocketlake.store.log.queue_offsets import QueueOffsets
from rocketlake.store.options import FlushMode, StoreOptions
from rocketlake.store.ports import TopicCatalog
from rocketlake.store.put.durability import Durability, PutTimeouts
from rocketlake.store.put.flush import (
    BufferCommit,
    FlushSchedule,
    GroupCommit,
    PeriodicFlush,
    Poison,
    StepTimes,
)
from rocketlake.store.put.putter import PutParts, Putter
from rocketlake.store.put.queue_flush import QueueFlush, Reached
from rocketlake.store.put.raw_append import RawAppender
from rocketlake.store.put.server_put import FieldPutter, NonBlockingPutter
from rocketlake.store.queue.queue_set import ConsumeQueueSet, QueueShape
from rocketlake.store.retention.disks import Disks
from rocketlake.store.retention.rules import Limits
from rocketlake.store.retention.service import Retention, RetentionParts
from rocketlake.store.role import Role
from rocketlake.store.running_flags import RunningFlag, RunningFlags
from rocketlake.store.stats.sampler import StatsSampler
from rocketlake.store.stats.slow_steps import SlowSteps
from rocketlake.store.stats.store_stats import StoreStats

if TYPE_CHECKING:
    from collections.abc import Callable


class Base(Struct, frozen=True):
    """What a store stands on."""

    directory: StoreDir
    paths: QueuePaths
    options: StoreOptions
    clock: Clock
    catalog: TopicCatalog
    factory: MappedFileFactory | None = None
    """Gives the files of the log; None: mapped files."""
    is_external: bool = False
    """Queues and index are written by a job, not by this process."""
    worker: ShieldedWorker | None = None
    """Opens and closes the store; None: one of its own."""

    @property
    def ops(self) -> FileOps:
        """The machine's files."""
        return self.directory.ops


class LogParts(Struct, frozen=True):
    """The log, and the services that flush it."""

    log: CommitLog
    files: MappedFileQueue
    preallocator: Preallocator
    pool: WriteBufferPool | None
    prefetcher: PagePrefetcher
    poison: Poison
    flusher: GroupCommit | PeriodicFlush
    commit: BufferCommit | None

    @property
    def group_commit(self) -> GroupCommit | None:
        """The one that puts wait for; None if they wait for none."""
        return self.flusher if isinstance(self.flusher, GroupCommit) else None


class Parts(Struct, frozen=True):
    """Everything a store is made of."""

    role: Role
    flags: RunningFlags
    stats: StoreStats
    checkpoint: StoreCheckpoint
    log_parts: LogParts
    queues: ConsumeQueueSet
    index: IndexFileSet | None
    index_catch_up: IndexCatchUp | None
    external: ExternalDispatch
    deleted: DeletedTopicsFile
    offsets: QueueOffsets
    dispatcher: Dispatcher
    queue_flush: QueueFlush
    durability: Durability
    putter: Putter
    field_putter: FieldPutter
    non_blocking: NonBlockingPutter
    raw_appender: RawAppender
    sampler: StatsSampler
    retention: Retention

    @property
    def log(self) -> CommitLog:
        """The commit log."""
        return self.log_parts.log


def assemble(base: Base) -> Parts:
    """Make the parts of a store; nothing is opened or started."""
    options, clock = base.options, base.clock
    role = Role(options)
    flags = RunningFlags()
    stats = StoreStats(clock.now_ms())
    is_4x = options.compat_version.is_4x
    checkpoint = StoreCheckpoint(base.ops, base.directory.root, is_4x=is_4x)
    SlowSteps(clock).watch(stats)
    log_parts = make_log(base, checkpoint, flags, stats)
    queues = ConsumeQueueSet(base.directory, clock, QueueShape.of(options))
    index = _make_index(base)
    external = ExternalDispatch(base.ops, base.directory.root)
    deleted = DeletedTopicsFile(base.ops, base.directory.root, base.paths.writable)
    catch_up = IndexCatchUp(log_parts.log, index) if index is not None else None
    builder = _make_builder(base, queues, deleted)
    dispatch_parts = DispatchParts(log_parts.log, builder, catch_up, flags, role, stats)
    dispatcher = _make_dispatcher(base, dispatch_parts, external)
    log_parts.log.on_readable = dispatcher.wake_if_idle
    if catch_up is not None:
        catch_up.attach(dispatcher)
    if not base.is_external:
        RollGate(log_parts.log, dispatcher, log_parts.preallocator)
    durability = _make_durability(base, log_parts, dispatcher)
    offsets = QueueOffsets()
    put_parts = PutParts(log_parts.log, offsets, flags, base.catalog, stats, durability, role)
    putter = Putter(put_parts, options, clock)
    field_putter = FieldPutter(putter)
    queue_flush = _make_queue_flush(
        base, log_parts, dispatcher, queues=queues, checkpoint=checkpoint, external=external
    )
    retention = _make_retention(
        base, log_parts, dispatcher, queues=queues, index=index, flags=flags, deleted=deleted
    )
    _follow_rolls(log_parts, retention, queue_flush)
    return Parts(
        role=role,
        flags=flags,
        stats=stats,
        checkpoint=checkpoint,
        log_parts=log_parts,
        queues=queues,
        index=index,
        index_catch_up=catch_up,
        external=external,
        deleted=deleted,
        offsets=offsets,
        dispatcher=dispatcher,
        queue_flush=queue_flush,
        durability=durability,
        putter=putter,
        field_putter=field_putter,
        non_blocking=NonBlockingPutter(putter, field_putter),
        raw_appender=RawAppender(log_parts.log, durability, role),
        sampler=StatsSampler(stats, clock),
        retention=retention,
    )


def _follow_rolls(log_parts: LogParts, retention: Retention, queue_flush: QueueFlush) -> None:
    def roll(file: MappedFile) -> None:
        log_parts.prefetcher.roll(file)
        retention.wakeup()  # a file more may be one too many
        queue_flush.note_roll()

    log_parts.log.on_roll = roll


# --- the log -------------------------------------------------------------------------------------


def make_log(
    base: Base, checkpoint: StoreCheckpoint, flags: RunningFlags, stats: StoreStats
) -> LogParts:
    """Make the log and what flushes it."""
    options, clock = base.options, base.clock
    pool = None
    if options.uses_write_buffers:
        size = options.mapped_file_size_commit_log
        pool = WriteBufferPool(base.ops, count=options.transient_store_pool_size, size=size)
    lend = pool.borrow if pool is not None else None
    factory = base.factory or MappedFileMaker(
        base.ops, clock, LOG_FILES, lend, kind=find_mapped_file_class(options.mapped_file_class)
    )
    preallocator = Preallocator(
        factory,
        stock=pool if options.fast_fail_if_no_buffer_in_store_pool else None,
        warm_up=_warm_up(options),
        is_daemon=True,
    )
    preallocator.note_made = stats.create.add
    files = MappedFileQueue(
        base.ops,
        clock,
        factory,
        base.paths,
        file_size=options.mapped_file_size_commit_log,
        preallocator=preallocator,
    )
    poison = Poison(on_taken=lambda: flags.mark(RunningFlag.NOT_WRITEABLE))
    is_sync = options.flush_disk_type is FlushMode.SYNC_FLUSH
    is_synced = is_sync and pool is None
    prefetcher = PagePrefetcher(files, on_failed=poison.take if is_synced else None)
    log = CommitLog(
        files,
        clock,
        reads_ahead=options.data_read_ahead_enable,
        is_synced=is_synced,
        on_ahead=prefetcher.wakeup,
    )
    if not options.read_un_committed:
        if options.duplication_enable:
            log.set_confirm_offset(0)  # replication says how far; until then recovery does
        # Compat: as in CommitLog#getConfirmOffset of 5.3.
        log.confirms_flushed = is_sync and not options.compat_version.is_4x
    flusher = _make_flusher(base, files, poison, checkpoint)
    flusher.times = StepTimes(stats.flush.add, stats.commit.add)
    commit = None
    if pool is not None:
        schedule = FlushSchedule.of_ms(
            options.commit_interval_commit_log,
            options.commit_commit_log_thorough_interval,
            options.commit_commit_log_least_pages,
        )
        commit = BufferCommit(files, flusher.wakeup, schedule=schedule, clock=clock)
        commit.times = flusher.times
    return LogParts(log, files, preallocator, pool, prefetcher, poison, flusher, commit)


def _warm_up(options: StoreOptions) -> WarmUp | None:
    if not options.warm_maped_file_enable:
        return None
    is_sync = options.flush_disk_type is FlushMode.SYNC_FLUSH
    return WarmUp(options.flush_least_pages_when_warm_maped_file if is_sync else 0)


def _make_flusher(
    base: Base, files: MappedFileQueue, poison: Poison, checkpoint: StoreCheckpoint
) -> GroupCommit | PeriodicFlush:
    options = base.options

    def note_flush(timestamp: int) -> None:
        checkpoint.physical_timestamp = timestamp

    if options.flush_disk_type is FlushMode.SYNC_FLUSH:
        return GroupCommit(files, poison, note_flush, base.clock)
    schedule = FlushSchedule.of_ms(
        options.flush_interval_commit_log,
        options.flush_commit_log_thorough_interval,
        options.flush_commit_log_least_pages,
    )
    return PeriodicFlush(
        files,
        poison,
        note_flush,
        schedule=schedule,
        clock=base.clock,
        is_timed=options.flush_commit_log_timed,
    )


# --- what is built from it -----------------------------------------------------------------------


def _make_index(base: Base) -> IndexFileSet | None:
    options = base.options
    if not options.has_index or base.is_external:
        return None
    shape = IndexShape.of(options)
    return IndexFileSet(base.ops, base.clock, base.directory.path(names.INDEX), shape)


def _make_builder(base: Base, queues: ConsumeQueueSet, deleted: DeletedTopicsFile) -> UnitBuilder:
    options = base.options
    rules = PlacementRules(
        delays_ms=options.delay_levels_ms,
        has_light_queues=options.enable_lmq and options.enable_multi_dispatch,
    )
    return UnitBuilder(queues, base.catalog.is_batch_queue, rules, deleted.get)


def _make_dispatcher(base: Base, parts: DispatchParts, external: ExternalDispatch) -> Dispatcher:
    if base.is_external:
        return ExternalDispatchNotifier(structs.replace(parts, index=None), external, base.clock)
    is_synced = base.options.flush_disk_type is FlushMode.SYNC_FLUSH
    return Dispatcher(parts, is_synced=is_synced)


def _make_queue_flush(
    base: Base,
    log_parts: LogParts,
    dispatcher: Dispatcher,
    *,
    queues: ConsumeQueueSet,
    checkpoint: StoreCheckpoint,
    external: ExternalDispatch,
) -> QueueFlush:
    options, log = base.options, log_parts.log

    def reached() -> Reached:
        if not base.is_external:
            return Reached(dispatcher.dispatched_timestamp, dispatcher.dispatched_record)
        found = external.progress_of_writer()
        if found is None:
            return Reached(0)  # what a job did for an earlier start says nothing about this one
        checkpoint.index_timestamp = max(checkpoint.index_timestamp, found.index_timestamp)
        return Reached(found.timestamp)

    def save(units: Reached) -> None:
        if log_parts.poison.error is not None:
            return  # nothing more is known to be on the disk
        if units.timestamp > 0:
            checkpoint.queue_timestamp = units.timestamp
        # Compat: before 5.5 nothing stands there; a store that 5.5 has opened keeps it true.
        is_kept = options.compat_version.keeps_queue_offset or checkpoint.keeps_queue_offset
        # Why the flushed end: 5.5 looks for no end of the log before this place.
        if is_kept and units.physical_offset > 0:
            checkpoint.queue_physical_offset = min(units.physical_offset, log.files.flushed_where)
        if log.replicated_where is not None:
            # What is not on the disk is not confirmed, even if replicas have it.
            checkpoint.confirm_offset = min(log.confirm_offset, log.files.flushed_where)
        checkpoint.flush()

    return QueueFlush(
        queues,
        reached,
        save,
        schedule=FlushSchedule.of_ms(
            options.flush_interval_consume_queue,
            options.flush_consume_queue_thorough_interval,
            options.flush_consume_queue_least_pages,
        ),
        clock=base.clock,
    )


def _make_retention(
    base: Base,
    log_parts: LogParts,
    dispatcher: Dispatcher,
    *,
    queues: ConsumeQueueSet,
    index: IndexFileSet | None,
    flags: RunningFlags,
    deleted: DeletedTopicsFile,
) -> Retention:
    def flush_and_dispatch() -> None:
        log_parts.flusher.flush_all()
        dispatcher.catch_up(log_parts.files.flushed_where)

    parts = RetentionParts(
        log=log_parts.log,
        # Why others: with external dispatch the job expires queues and index.
        queues=ConsumeQueueSet(base.directory, base.clock) if base.is_external else queues,
        index=index,
        flags=flags,
        dispatched=dispatcher.reach,
        flush_and_dispatch=flush_and_dispatch,
        forget_expired=deleted.forget_expired,
    )
    disks = Disks(base.ops, base.paths.writable, base.directory.root, Limits.of(base.options))
    return Retention(parts, disks, base.options, base.clock)


def _make_durability(base: Base, log_parts: LogParts, dispatcher: Dispatcher) -> Durability:
    options = base.options
    second: Callable[[], None] | None = None
    if log_parts.commit is not None and options.wake_commit_when_put_message:
        second = log_parts.commit.wakeup
    elif log_parts.group_commit is None and options.wakes_flush:
        second = log_parts.flusher.wakeup

    return Durability(
        log_parts.poison,
        base.clock,
        group_commit=log_parts.group_commit,
        dispatch=dispatcher,
        wake_more=second,
        timeouts=PutTimeouts(options.sync_flush_timeout, options.slave_timeout),
    )
