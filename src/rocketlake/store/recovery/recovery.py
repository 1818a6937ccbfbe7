"""Clean and unclean start: find the valid end, truncate, re-dispatch.

1. The log is the truth. Where it ends, `offline.tail` decides, as RocketMQ would.
2. Queues and index are made to agree with it: what points behind its end goes, what they lack is
   dispatched again. Doing that with something they have does no harm.
3. After a clean stop only the last files are read. More is read for a reason, which the report has.
4. A topic that was deleted stays so: its queues that are still there go, and its records of before
   get no units.
5. A crash in the middle leaves a store that recovers to the same state.
"""

import logging
import shlex
from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec import structs

from rocketlake.errors import StoreError
from rocketlake.files.store_dir import OffsetFile
from rocketlake.format import names
from rocketlake.format.record import StopReason
from rocketlake.model.queues import QueueKey
from rocketlake.store.deleted_topics import NO_TOPICS, DeletedTopics
from rocketlake.store.disk.damage import Damage, Finding, reason_text
from rocketlake.store.disk.log import LogView, Readers
from rocketlake.store.inventory import Found, Losses, give_up_broken
from rocketlake.store.options import ReadOptions, StoreOptions
from rocketlake.store.recovery.log_end import (
    checks_for,
    find_begin,
    records_behind,
)
from rocketlake.store.recovery.log_walk import LogWalk, LogWalker, is_blank_at, written_end
from rocketlake.store.recovery.missing_records import UnheldRecords
from rocketlake.store.recovery.parts import RecoveryParts, RecoveryReport
from rocketlake.store.recovery.queue_numbers import first_offsets, next_offsets
from rocketlake.store.recovery.salvage import Cut, Salvage

log = logging.getLogger(__name__)

_WORKERS: Final = 32
_NOTES_MAX: Final = 100
_NAMED_MAX: Final = 5
_TOLD_EVERY_S: Final = 3.0
_INDEXED_AT_ONCE: Final = 32 << 20  # bytes of log; that takes no longer than anything else here


class Recovery:
    """One start of one store; made for it, and used once, by the thread that opens the store.

    Durability: when `run` returns, the log up to its end is on the disk, and so is the cut. So are
    units and entries that a later start would not look for; others a crash may take, and the next
    start dispatches them again.
    """

    def __init__(self, parts: RecoveryParts) -> None:
        self._parts = parts
        self._options = _read_options(parts.options)
        self._checks = checks_for(self._options)
        self._notes: list[str] = []
        self._done = 0
        self._total = 0
        self._started_s = self._told_s = parts.clock.monotonic_s()

    def run(self, *, is_clean: bool) -> RecoveryReport:
        """Make log, queues and index consistent; `is_clean` tells how the store was stopped.

        Raises:
            FlushFailedError: what the store relies on may not be on the disk.
            StoreError: the log has lost its files, but something is in its place; or good records
                behind its end cannot be saved before it is cut.
        """
        parts = self._parts
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
        elapsed_ms = round((parts.clock.monotonic_s() - self._started_s) * 1000)
        log.info(
            "store recovered is_clean=%s log_min=%d log_end=%d cut_bytes=%d dispatched_from=%s "
            "redispatched=%d queues=%d elapsed_ms=%d",
            is_clean,
            report.log_min,
            report.log_end,
            report.cut_bytes,
            report.dispatched_from,
            report.redispatched,
            len(report.queue_offsets),
            elapsed_ms,
        )
        return structs.replace(report, elapsed_ms=elapsed_ms, notes=tuple(self._notes))

    # --- a log without files ---------------------------------------------------------------------

    def _start_anew(self, *, is_clean: bool) -> RecoveryReport:
        """Remove queues and index of a log that is gone."""
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
        if parts.deleted is not None:
            parts.deleted.lower_to(0)  # Order: before the new log has a record
            parts.deleted.forget_expired(0)
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
        begun_anew = self._end_deletions(view)
        dispatched = self._find_dispatched(view.limit)
        times = parts.checkpoint.values()
        begin = find_begin(view, dispatched, times, self._options, is_clean=is_clean)
        assert begin.file is not None, "a log with files has one to start with"
        first = begin.file
        queues_found = Found.of(parts.queues)
        if not is_clean:
            self._distrust(view, first)
        unheld = self._make_unheld()
        self._total = view.limit - first.base_offset
        walk = LogWalker(unheld).walk(view, begin, self._checks, self._advance, is_clean=is_clean)
        cut_bytes = self._look_behind(view, walk, is_clean=is_clean)
        self._cut(walk, is_clean=is_clean)
        end = self._set_confirm_offset(view, walk)
        losses = give_up_broken(
            parts.queues,
            queues_found,
            parts.inventory,
            (view.min_offset, walk.tail.end_offset),
            is_deleted=unheld.is_deleted,
        )
        lost_from = self._lost_from(view, losses)
        indexed_from = self._first_unindexed(view, walk)
        is_late = indexed_from is not None and self._defer_index(indexed_from, end)
        others = [begun_anew, lost_from, None if is_late else indexed_from]
        start = self._first_lacking(view, walk, unheld, others)
        start = start if start is not None and start < end else None
        if start is not None and parts.is_external:
            end, start = start, None
        if start is not None:
            self._dispatch(view, start, end)
        if start is not None and (is_clean or start < walk.tail.started_at):
            # Why: no later start would look so far back for what a crash took of these.
            self._flush()
        parts.queues.correct_min(view.min_offset)
        offsets = {key: queue.max_offset for key, queue in parts.queues.items()}
        added = _added(offsets, queues_found, losses)
        if end < walk.tail.end_offset:
            # Compat: as in ConsumeQueueStore#compensateForHA.
            offsets |= next_offsets(view, end, walk.tail.end_offset, self._deleted)
        if parts.deleted is not None:
            parts.deleted.forget_expired(view.min_offset)
        return RecoveryReport(
            is_clean=is_clean,
            log_min=view.min_offset,
            log_end=walk.tail.end_offset,
            read_from=walk.tail.started_at,
            cut_bytes=cut_bytes,
            dispatched_from=start,
            dispatched_where=end,
            indexed_from=indexed_from if is_late else None,
            redispatched=added,
            last_timestamp=walk.last_timestamp,
            queue_offsets=offsets,
        )

    def _make_unheld(self) -> UnheldRecords:
        parts = self._parts
        return UnheldRecords(
            parts.queues.items(),
            # Why: deleting all topics leaves the directory of their queues; losing it does not.
            parts.has_topic if self._has_queue_directory() else lambda _: True,
            has_light_queues=parts.options.enable_lmq and parts.options.enable_multi_dispatch,
            deleted=self._deleted,
        )

    @property
    def _deleted(self) -> DeletedTopics:
        return self._parts.deleted.topics if self._parts.deleted is not None else NO_TOPICS

    def _end_deletions(self, view: LogView) -> int | None:
        """Remove queues that deletions of topics left; return from where on the log gives theirs.

        None if there are none.
        """
        dropped = self._parts.queues.drop_earlier(self._deleted)
        if not dropped:
            return None
        named = ", ".join(str(key) for key in dropped[:_NAMED_MAX])
        self._note(f"{len(dropped)} queues of deleted topics were still there: {named}")
        ends = (self._deleted.end_of(key.topic) for key in dropped)
        return min(_file_begin(view, end) for end in ends)

    def _distrust(self, view: LogView, first: OffsetFile) -> None:
        """Drop units that may not have been flushed, so that they are made again."""
        # Why: of what was not flushed when the power went, each page and each name of a file is
        # there or not. A unit in the middle may be lost, or whole but for its tags code, and no
        # later look at the end of its queue would find that.
        if not self._has_gap_behind(first):
            # Order: before units go that the checkpoint speaks of.
            self._parts.checkpoint.lower_units_to(first.base_offset)
            sure = self._sure_firsts(view, first.base_offset)
            self._parts.queues.distrust(first.base_offset, sure)

    def _sure_firsts(self, view: LogView, begin: int) -> set[QueueKey]:
        """Return the queues whose unit number 0 points behind an offset, to a record that agrees.

        Why: a topic that was deleted and made again counts from 0 anew. Records of its earlier life
        would take the places of later ones; they are before the offset in the first unit.
        """
        firsts = [
            found
            for found in self._parts.queues.first_units()
            if found[1] == 0 and begin <= found[2].physical_offset < view.limit
        ]
        offsets = np.array([unit.physical_offset for _, _, unit in firsts], np.int64)
        sizes = np.array([unit.size for _, _, unit in firsts], np.int64)
        columns, reasons = view.gather(offsets, sizes, checks=self._checks)
        sure = set()
        for row in np.flatnonzero(reasons == StopReason.OK).tolist():
            key = firsts[row][0]
            message = columns.message(row)
            if (message.topic, message.queue_id, message.queue_offset) == (
                key.topic,
                key.queue_id,
                0,
            ):
                sure.add(key)
        return sure

    def _has_gap_behind(self, first: OffsetFile) -> bool:
        """Tell whether a file of the log is missing: units of its messages cannot be made again."""
        gaps = self._parts.log_files.check_self()
        return any(int(gap.after.name) > first.base_offset for gap in gaps)

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

    def _look_behind(self, view: LogView, walk: LogWalk, *, is_clean: bool) -> int:
        """Return how many bytes the cut takes; report them, and save good records among them.

        Raises:
            StoreError: good records are among them, and they cannot be saved.
        """
        tail = walk.tail
        if tail.passed is not None:
            path, position = view.describe(tail.passed.physical_offset)
            self._note(f"{path} at {position}: {reason_text(tail.passed.reason)}")
        held_to = self._parts.queues.max_physical_offset
        cut_bytes = written_end(view, tail, is_clean=is_clean, held_to=held_to) - tail.end_offset
        if not cut_bytes:
            return 0
        path, position = view.describe(tail.end_offset)
        reason = reason_text(tail.stop.reason) if tail.stop is not None else "its end"
        self._note(f"{path} at {position}: {reason}; {cut_bytes} bytes of log are cut off here")
        behind = records_behind(view, tail, passes_zeros=True)
        if behind is not None:
            cut = Cut(
                reason=reason,
                cut_at=tail.end_offset,
                path=str(path),
                position=position,
                bytes=cut_bytes,
                first_record=behind,
            )
            saved = Salvage(self._parts.directory, self._parts.clock).save(view, cut)
            place = shlex.quote(str(self._parts.directory.root))
            self._note(
                f"good records from {behind} on are among them: the {cut_bytes} bytes are saved in "
                f"{saved}; `rocketlake salvage {place}` lists them and can put their messages again"
            )
        return cut_bytes

    def _cut(self, walk: LogWalk, *, is_clean: bool) -> None:
        """Cut all files at the end of the log."""
        parts, end = self._parts, walk.tail.end_offset
        # Order: first flush what stays, then cut queues and index, and the log last: a crash in
        # between leaves nothing that points to missing records.
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
            if not is_clean:
                # Why: RocketMQ writes times of units whose records are not on the disk.
                parts.checkpoint.lower_to(walk.last_timestamp, end)
        if parts.deleted is not None and (lowered := parts.deleted.lower_to(end)):
            self._note(f"the log ends before the deletion of {', '.join(lowered[:_NAMED_MAX])}")

    def _set_confirm_offset(self, view: LogView, walk: LogWalk) -> int:
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
        self,
        view: LogView,
        walk: LogWalk,
        unheld: UnheldRecords,
        others: Iterable[int | None],
    ) -> int | None:
        """Return the first record that a queue or the index may lack; None if there is none."""
        candidates = [offset for offset in others if offset is not None]
        # Why: after a clean stop the reference dispatches what is behind the last unit of all
        # queues, but for the record that begins just there, and after an unclean one all that it
        # has read. Each queue may lack more than the one, and as a rule much less than the other.
        if unheld.first_offset is not None:
            candidates.append(unheld.first_offset)
        if unheld.gaps and walk.tail.started_at > view.min_offset:
            self._note_losses(unheld.gaps)
            candidates.append(view.min_offset)
        return min(candidates, default=None)

    def _lost_from(self, view: LogView, losses: Losses) -> int | None:
        """Return from where on the log gives back what queues had once; None: they have it all."""
        if losses.absent or losses.short:
            self._note_losses([*losses.absent, *losses.short])
        if losses.absent:
            return view.min_offset
        ends = dict(self._parts.queues.items())
        found = [_file_begin(view, ends[key].max_physical_offset) for key in losses.short]
        return min(found, default=None)

    def _note_losses(self, keys: list[QueueKey]) -> None:
        named = ", ".join(str(key) for key in keys[:_NAMED_MAX])
        self._note(f"{len(keys)} queues have lost units, which the log gives: {named}")

    def _first_unindexed(self, view: LogView, walk: LogWalk) -> int | None:
        """Return where the file begins from which on the index may lack keys; None: it has all."""
        index = self._parts.index
        if index is None:
            return None
        if index.rebuild_from is not None:
            if index.rebuild_from < walk.tail.started_at:
                self._note(f"keys from {index.rebuild_from} on are indexed again")
            return _file_begin(view, index.rebuild_from)
        if index.end_physical_offset < walk.last_keyed:
            self._note(f"keys behind {index.end_physical_offset} were not indexed")
            return _file_begin(view, index.end_physical_offset)
        return None

    def _defer_index(self, start: int, end: int) -> bool:
        """Schedule indexing for later if there are many keys; tell whether it was."""
        defer = self._parts.defer_index
        if defer is None or end - start <= _INDEXED_AT_ONCE:
            return False
        defer(start)
        return True

    def _dispatch(self, view: LogView, start: int, end: int) -> None:
        """Dispatch a range to queues and index, file by file."""
        parts = self._parts
        self._done, self._total = self._total, self._total + end - start
        parts.on_dispatch(start, end)
        # Order: before units come, for a queue whose messages are all deleted may begin anew.
        parts.queues.correct_min(view.min_offset)
        hole = view.min_offset
        for file in view.files:
            begin = max(start, file.base_offset)
            stop = min(end, file.base_offset + file.size)
            if start <= hole < file.base_offset < end:
                # Why: units behind a gap would stand for other queue offsets than their own.
                firsts = first_offsets(
                    view, file.base_offset, end, self._deleted, has_light_queues=False
                )
                for key, number in firsts.items():
                    parts.queues.fill_gap(key, number, hole)
            hole = file.base_offset + file.size
            if begin >= stop:
                continue
            reached = parts.dispatch_range(begin, stop)
            if reached < stop and not is_blank_at(view, reached):
                self._note(
                    f"{file.path} at {reached - file.base_offset}: no record can be read here;"
                    " what follows in this file is not dispatched"
                )
            self._advance(stop - begin)

    def _flush(self) -> None:
        self._parts.queues.flush(0)
        if self._parts.index is not None:
            self._parts.index.flush()

    # --- telling ---------------------------------------------------------------------------------

    def _advance(self, count: int) -> None:
        self._done = min(self._done + count, self._total)
        self._parts.on_progress(self._done, self._total)
        now = self._parts.clock.monotonic_s()
        if now - self._told_s >= _TOLD_EVERY_S and self._done:
            self._told_s = now
            left_s = (now - self._started_s) * (self._total - self._done) / self._done
            log.info(
                "recovering done_bytes=%d total_bytes=%d left_s=%.0f",
                self._done,
                self._total,
                left_s,
            )

    def _note_finding(self, finding: Finding) -> None:
        self._note(str(finding))

    def _note(self, text: str) -> None:
        log.warning("recovery: %s", text)
        if len(self._notes) < _NOTES_MAX:
            self._notes.append(text)


def _added(offsets: dict[QueueKey, int], found: Found, losses: Losses) -> int:
    """Return how many messages queues have now that they had not when they were found."""
    had = {key: bounds.end for key, bounds in found.bounds.items() if key not in losses.absent}
    return sum(max(offset - had.get(key, 0), 0) for key, offset in offsets.items())


def _read_options(options: StoreOptions) -> ReadOptions:
    """Return what the rules for readers need of a store's options."""
    # Compat: as in CommitLog#isMappedFileMatchedRecover, an index that is not kept holds nothing
    # up. One that is kept and not safe is rebuilt from where it must be.
    is_safe = options.message_index_safe and options.has_index
    return structs.replace(ReadOptions.of_store(options), message_index_safe=is_safe)


def _file_begin(view: LogView, offset: int) -> int:
    """Return where the file of an offset begins, which is where a record does; else the log."""
    file = view.file_at(offset)
    return file.base_offset if file is not None else view.min_offset
