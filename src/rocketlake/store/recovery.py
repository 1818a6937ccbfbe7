"""Clean and unclean start: find the valid end, truncate, re-dispatch.

1. The log is the truth. Where it ends, `offline.tail` decides, as RocketMQ would.
2. Queues and index are made to agree with it: what points behind its end goes, what they lack is
   dispatched again. Doing that with something they have does no harm.
3. After a clean stop only the last files are read. More is read for a reason, which the report has.
4. A crash in the middle leaves a store that recovers to the same state.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from msgspec import Struct, structs

from rocketlake.clock import Clock
from rocketlake.errors import StoreError
from rocketlake.files.mapped_file_queue import MappedFileQueue
from rocketlake.files.store_dir import StoreDir
from rocketlake.format import names
from rocketlake.model.queues import QueueKey
from rocketlake.store.checkpoint import StoreCheckpoint
from rocketlake.store.log_walk import (
    LogWalk,
    LogWalker,
    is_blank_at,
    next_offsets,
    record_behind,
    written_end,
)
from rocketlake.store.offline import tail as tail_rules
from rocketlake.store.offline.damage import Damage, Finding, reason_text
from rocketlake.store.offline.log import LogView, Readers
from rocketlake.store.options import ReadOptions, StoreOptions
from rocketlake.store.unheld_records import QueueEnd, UnheldRecords

log = logging.getLogger(__name__)

_WORKERS: Final = 32
_NOTES_MAX: Final = 100
_NAMED_MAX: Final = 5


class Queues(Protocol):
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

    def correct_min(self, log_min: int) -> None:
        """Find the first message of each queue that the log still holds."""
        ...

    def flush(self, least_pages: int) -> bool:
        """Have units on the disk where enough are new, all with 0."""
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
    has_topic: Callable[[str], bool] = lambda _: True
    """Whether the table of topics has one: queues of a topic that was deleted are not missed."""
    on_progress: Callable[[int, int], None] = lambda _done, _total: None
    """Told how many bytes of the log were read, and how many there are to read."""


class RecoveryReport(Struct, frozen=True, kw_only=True):
    """What a start found and did."""

    is_clean: bool
    log_min: int = 0
    log_end: int = 0
    cut_bytes: int = 0
    """Bytes behind the end that were something, and are gone."""
    dispatched_from: int | None = None
    """Where dispatch began anew; None: nothing was lacking."""
    dispatched_where: int = 0
    """Where it goes on: the end of the log, or of its confirmed part."""
    redispatched: int = 0
    """Messages that queues lacked and got."""
    last_timestamp: int = 0
    """Store time of the last record that was read; 0 if there was none."""
    queue_offsets: dict[QueueKey, int]
    """The next queue offset of each queue."""
    elapsed_ms: int = 0
    notes: tuple[str, ...] = ()
    """What was not as it should be, in words."""


class Recovery:
    """One start of one store; made for it, and used once, by the thread that opens the store.

    Durability: when `run` returns, the log up to its end is on the disk, and so is the cut. So are
    units and entries that a later start would not look for; others a crash may take, and the next
    start dispatches them again.
    """

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts
        self._checks = tail_rules.checks_for(_read_options(parts.options))
        self._notes: list[str] = []
        self._done = 0
        self._total = 0

    def run(self, *, is_clean: bool) -> RecoveryReport:
        """Bring log, queues and index to one state; `is_clean` tells how the store was stopped.

        Raises:
            FlushFailedError: what the store relies on may not be on the disk.
            StoreError: the log has lost its files, but something is in its place.
        """
        parts = self._parts
        started = parts.clock.monotonic_s()
        workers = _WORKERS if parts.options.recover_concurrently else 1
        parts.queues.recover(workers, is_clean=is_clean)
        readers = Readers(parts.directory.ops)
        try:
            if parts.log_files.files:
                report = self._recover(readers, is_clean=is_clean)
            else:
                report = self._start_anew(is_clean=is_clean)
        finally:
            readers.close()
        elapsed_ms = round((parts.clock.monotonic_s() - started) * 1000)
        log.info(
            "store recovered is_clean=%s log_min=%d log_end=%d cut_bytes=%d dispatched_from=%s "
            "redispatched=%d queues=%d elapsed_ms=%d",
            *(is_clean, report.log_min, report.log_end, report.cut_bytes, report.dispatched_from),
            *(report.redispatched, len(report.queue_offsets), elapsed_ms),
        )
        return structs.replace(report, elapsed_ms=elapsed_ms, notes=tuple(self._notes))

    # --- a log without files ---------------------------------------------------------------------

    def _start_anew(self, *, is_clean: bool) -> RecoveryReport:
        """Let queues and index go with the log they were made from."""
        parts = self._parts
        has_queues = next(iter(parts.queues.items()), None) is not None
        has_keys = parts.index is not None and parts.index.end_physical_offset > 0
        if has_queues or has_keys:
            self._refuse_strays()
            # Compat: as in CommitLog#recoverNormally, which lets the index stay: then keys of new
            # messages are ignored until the log is as long as the old one was.
            self._note("the log has no files: queues and index of the old one are removed")
            parts.queues.destroy()
            if parts.index is not None:
                parts.index.destroy()
        parts.checkpoint.confirm_offset = 0
        return RecoveryReport(is_clean=is_clean, queue_offsets={})

    def _refuse_strays(self) -> None:
        directory = self._parts.directory
        for path in directory.log_dirs:
            strays = [entry.name for entry in directory.ops.entries(path) if not entry.is_dir]
            if strays:
                raise StoreError(
                    f"{path} has no file of a log, but {', '.join(strays[:_NAMED_MAX])}; the queues"
                    " of the store still belong to one. Put its files back, or empty the directory"
                    " to begin a new log without those messages"
                )

    # --- a log with files ------------------------------------------------------------------------

    def _recover(self, readers: Readers, *, is_clean: bool) -> RecoveryReport:
        parts = self._parts
        view = LogView(parts.directory, readers, Damage(self._note_finding))
        view.refresh(parts.log_files.file_size)
        dispatched = self._find_dispatched(view.limit)
        unheld = UnheldRecords(
            parts.queues.items(),
            # Why: deleting all topics leaves the directory of their queues; losing it does not.
            parts.has_topic if self._has_queue_directory() else lambda _: True,
            has_light_queues=parts.options.enable_lmq and parts.options.enable_multi_dispatch,
        )
        walk = self._walk(view, LogWalker(unheld), dispatched, is_clean=is_clean)
        cut_bytes = self._measure_cut(view, walk)
        self._cut(walk)
        end = self._settle_confirm_offset(view, walk)
        start = self._first_lacking(view, walk, unheld, is_clean=is_clean)
        start = start if start is not None and start < end else None
        added = self._dispatch(view, start, end) if start is not None else 0
        if start is not None and (is_clean or start < walk.tail.started_at):
            # Why: no later start would look so far back for what a crash took of these.
            self._flush()
        parts.queues.correct_min(view.min_offset)
        offsets = {key: queue.max_offset for key, queue in parts.queues.items()}
        if end < walk.tail.end_offset:
            # Compat: as in ConsumeQueueStore#compensateForHA.
            offsets |= next_offsets(view, end, walk.tail.end_offset)
        return RecoveryReport(
            is_clean=is_clean,
            log_min=view.min_offset,
            log_end=walk.tail.end_offset,
            cut_bytes=cut_bytes,
            dispatched_from=start,
            dispatched_where=end,
            redispatched=added,
            last_timestamp=walk.last_timestamp,
            queue_offsets=offsets,
        )

    def _has_queue_directory(self) -> bool:
        families = (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE)
        return any(self._parts.directory.exists(family) for family in families)

    def _find_dispatched(self, limit: int) -> int:
        """Return how far into the log the queues reach; -1 if there are none.

        Units that point behind the last file are garbage: they go, since they would hide what
        their queues lack.
        """
        queues = self._parts.queues
        if queues.max_physical_offset > limit:
            self._note(f"units of queues point behind the last file of the log, at {limit}")
            queues.truncate(limit)
        ends = (queue.max_physical_offset for _, queue in queues.items())
        return max((end for end in ends if end <= limit), default=-1)

    def _walk(
        self, view: LogView, walker: LogWalker, dispatched: int, *, is_clean: bool
    ) -> LogWalk:
        """Find the end of the log: from the file on that queues or checkpoint vouch for."""
        parts = self._parts
        if is_clean:
            start = tail_rules.start_after_clean_stop(view, dispatched)
        else:
            start = tail_rules.start_after_unclean_stop(
                view, parts.checkpoint.values(), _read_options(parts.options)
            )
        assert start is not None, "a log with files has one to start with"
        self._total = view.limit - start.base_offset
        return walker.walk(view, start, self._checks, self._advance)

    def _measure_cut(self, view: LogView, walk: LogWalk) -> int:
        """Return how many bytes the cut takes, and say what they are."""
        tail = walk.tail
        cut_bytes = written_end(view, tail) - tail.end_offset
        if cut_bytes:
            path, position = view.describe(tail.end_offset)
            reason = reason_text(tail.stop.reason) if tail.stop is not None else "its end"
            self._note(f"{path} at {position}: {reason}; {cut_bytes} bytes of log are cut off here")
            behind = record_behind(view, tail)
            if behind is not None:
                self._note(f"good records from {behind} on are among them")
        return cut_bytes

    def _cut(self, walk: LogWalk) -> None:
        """Make the end of the log that of all files."""
        parts, end = self._parts, walk.tail.end_offset
        # Order: first what stays is made safe, then queues and index let go of what does not, and
        # the log last: a crash in between leaves nothing that points to what is not there.
        parts.log_files.sync_from(walk.tail.started_at)
        if parts.queues.max_physical_offset > end:
            parts.queues.truncate(end)
        if parts.index is not None and parts.index.end_physical_offset >= end:
            parts.index.truncate(end)
        parts.log_files.truncate(end)
        parts.log_files.flushed_where = parts.log_files.committed_where = end
        if walk.last_timestamp:
            parts.log_files.store_timestamp = walk.last_timestamp
            parts.log_files.files[-1].store_timestamp = walk.last_timestamp

    def _settle_confirm_offset(self, view: LogView, walk: LogWalk) -> int:
        """Set the confirmed offset of the checkpoint; return how far the log may be dispatched."""
        checkpoint, end = self._parts.checkpoint, walk.tail.end_offset
        if self._parts.options.duplication_enable:
            checkpoint.confirm_offset = min(max(checkpoint.confirm_offset, view.min_offset), end)
            return checkpoint.confirm_offset
        # Compat: as in CommitLog#recoverNormally, where the last good record begins.
        checkpoint.confirm_offset = max(walk.last_record, 0)
        return end

    # --- what queues and index lack --------------------------------------------------------------

    def _first_lacking(
        self, view: LogView, walk: LogWalk, unheld: UnheldRecords, *, is_clean: bool
    ) -> int | None:
        """Return the first record that a queue or the index may lack; None if there is none."""
        tail = walk.tail
        candidates = []
        if not is_clean:
            candidates.append(tail.started_at)
        # Why: after a clean stop the reference dispatches what lies behind the last unit of all
        # queues, but for the record that begins just there. Each queue may lack more than that.
        if unheld.first_offset is not None:
            candidates.append(unheld.first_offset)
        if unheld.gaps and tail.started_at > view.min_offset:
            named = ", ".join(str(key) for key in unheld.gaps[:_NAMED_MAX])
            self._note(f"{len(unheld.gaps)} queues have lost units, which the log gives: {named}")
            candidates.append(view.min_offset)
        indexed = self._first_unindexed(walk)
        if indexed is not None:
            candidates.append(_file_begin(view, indexed))
        return min(candidates, default=None)

    def _first_unindexed(self, walk: LogWalk) -> int | None:
        index = self._parts.index
        if index is None:
            return None
        if index.rebuild_from is not None:
            if index.rebuild_from < walk.tail.started_at:
                self._note(f"keys from {index.rebuild_from} on are indexed again")
            return index.rebuild_from
        if index.end_physical_offset < walk.last_keyed:
            self._note(f"keys behind {index.end_physical_offset} were not indexed")
            return index.end_physical_offset
        return None

    def _dispatch(self, view: LogView, start: int, end: int) -> int:
        """Bring a range to queues and index, file by file; return how many messages came new."""
        parts = self._parts
        before = sum(queue.max_offset for _, queue in parts.queues.items())
        self._done, self._total = self._total, self._total + end - start
        for file in view.files:
            begin = max(start, file.base_offset)
            stop = min(end, file.base_offset + file.size)
            if begin >= stop:
                continue
            reached = parts.dispatch_range(begin, stop)
            if reached < stop and not is_blank_at(view, reached):
                self._note(
                    f"{file.path} at {reached - file.base_offset}: no record can be read here;"
                    " what follows in this file is not dispatched"
                )
            self._advance(stop - begin)
        return sum(queue.max_offset for _, queue in parts.queues.items()) - before

    def _flush(self) -> None:
        self._parts.queues.flush(0)
        if self._parts.index is not None:
            self._parts.index.flush()

    # --- telling ---------------------------------------------------------------------------------

    def _advance(self, count: int) -> None:
        self._done = min(self._done + count, self._total)
        self._parts.on_progress(self._done, self._total)

    def _note_finding(self, finding: Finding) -> None:
        self._note(str(finding))

    def _note(self, text: str) -> None:
        log.warning("recovery: %s", text)
        if len(self._notes) < _NOTES_MAX:
            self._notes.append(text)


def _read_options(options: StoreOptions) -> ReadOptions:
    """Return what the rules for readers need of a store's options."""
    fields = ReadOptions.__struct_fields__
    values = {name: getattr(options, name) for name in fields if hasattr(options, name)}
    # Compat: as in CommitLog#isMappedFileMatchedRecover, an index that is not kept holds nothing
    # up. One that is kept and not safe is rebuilt from where it must be.
    values["message_index_safe"] = options.message_index_safe and options.message_index_enable
    return ReadOptions(**values)


def _file_begin(view: LogView, offset: int) -> int:
    """Return where the file of an offset begins, which is where a record does; else the log."""
    file = view.file_at(offset)
    return file.base_offset if file is not None else view.min_offset
