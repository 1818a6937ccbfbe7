"""Where a log ends: the rule that recovery cuts by, and that readers of the files apply.

It decides where a walk begins after a clean or an unclean stop, and which record is the last good
one (spec: docs/formats). Nothing here changes a byte.
"""

from collections.abc import Callable

from msgspec import Struct

from rocketlake.files.store_dir import OffsetFile
from rocketlake.format.checkpoint import Checkpoint
from rocketlake.format.record import Check, StopReason
from rocketlake.store.disk.damage import Damage, reason_text
from rocketlake.store.disk.log import Chunk, LogView, Stop
from rocketlake.store.disk.record_search import next_record
from rocketlake.store.options import ReadOptions
from rocketlake.store.options.bounds import RECOVERED_FILES
from rocketlake.store.recovery.torn_end import TornEnd

_ORDINARY_ENDS = (StopReason.END_OF_DATA, StopReason.END_OF_FILE)


class Tail(Struct, frozen=True):
    """Where the log ends, and what stopped the walk there."""

    end_offset: int
    started_at: int
    stop: Stop | None
    passed: Stop | None = None
    """Damage that does not end the log."""

    @property
    def stop_is_ordinary(self) -> bool:
        """Tell whether nothing bad ended the log."""
        return self.stop is None or self.stop.reason in _ORDINARY_ENDS


def checks_for(options: ReadOptions) -> Check:
    """Return what a record must pass to be taken as good."""
    checks = Check.OFFSET
    if options.check_crc_on_recover:
        checks |= Check.BODY_CRC
    if options.force_verify_prop_crc:
        checks |= Check.RECORD_CRC_REQUIRED
    elif options.enabled_append_prop_crc:
        checks |= Check.RECORD_CRC
    return checks


class Begin(Struct, frozen=True):
    """Where to walk to the end from."""

    file: OffsetFile | None
    goes_on_at: OffsetFile | None = None
    """Damage before this file does not end the log."""


def find_begin(
    log: LogView,
    dispatched: int,
    checkpoint: Checkpoint,
    options: ReadOptions,
    *,
    is_clean: bool,
) -> Begin:
    """Return where to walk from: queues or the checkpoint vouch for the files before.

    `dispatched` is how far into the log the queues reach.
    """
    if is_clean:
        return _begin_after_clean_stop(log, dispatched)
    return _begin_after_unclean_stop(log, checkpoint, options)


def _begin_after_clean_stop(log: LogView, dispatched: int) -> Begin:
    """Begin at the newest file that begins before what the queues hold, else at the first."""
    # Compat: as in CommitLog#recoverNormally of 5.3.3; older releases begin at the third file from
    # the end, which differs only if a record before the last file is damaged.
    for file in reversed(log.files):
        if file.base_offset <= dispatched:
            return Begin(file)
    return Begin(log.files[0] if log.files else None)


def _begin_after_unclean_stop(log: LogView, checkpoint: Checkpoint, options: ReadOptions) -> Begin:
    """Begin at the newest file whose first record is not younger than the checkpoint.

    Where 5.5 begins at an older one, it is that. Where 5.5 begins at a later one, damage before
    that does not end the log.
    """
    # Compat: as in CommitLog#isMappedFileMatchedRecover.
    limit = checkpoint.min_timestamp
    if options.message_index_safe:
        limit = checkpoint.min_timestamp_index
    found = log.files[0] if log.files else None
    for file in reversed(log.files):
        stored = log.first_timestamp(file)
        if stored and stored <= limit:
            found = file
            break
    other = start_of_5_5(log, checkpoint)
    if found is not None and other is not None and other.base_offset < found.base_offset:
        return Begin(other)
    return Begin(found, other)


def start_of_5_5(log: LogView, checkpoint: Checkpoint) -> OffsetFile | None:
    """Return the file at which RocketMQ 5.5 begins; None in a store that it has not flushed.

    That is the newest one whose first record is not behind the last unit that was flushed, but at
    most so many from the end, files made ahead among them. What 5.5 does not read does not end its
    log.
    """
    # Compat: as in CommitLog#recoverAbnormally and ConsumeQueueStore#isMappedFileMatchedRecover.
    flushed_to = checkpoint.queue_physical_offset
    if flushed_to <= 0 or not log.files:
        return None
    newest = log.files[-RECOVERED_FILES:]
    for file in reversed(newest):
        if file.base_offset <= flushed_to and log.first_timestamp(file):
            return file
    return newest[0]


def find_end(
    log: LogView,
    begin: Begin,
    checks: Check,
    on_bytes: Callable[[int], None] | None = None,
    *,
    on_chunk: Callable[[Chunk], None] | None = None,
    after_crash: bool = False,
) -> Tail:
    """Walk from a file on to the first bytes that are not a good record.

    A record that is being written looks bad, too: bad bytes are read once more. With
    `after_crash` a last record without the end of its properties does not count.
    """
    start, goes_on_at = begin.file, begin.goes_on_at
    if start is None:
        return Tail(0, 0, None)
    tail = _find_end(log, start, checks, on_bytes, on_chunk=on_chunk, after_crash=after_crash)
    if goes_on_at is not None and tail.end_offset < goes_on_at.base_offset:
        found = _find_end(
            log, goes_on_at, checks, on_bytes, on_chunk=on_chunk, after_crash=after_crash
        )
        if found.end_offset > goes_on_at.base_offset:
            return Tail(found.end_offset, tail.started_at, found.stop, tail.stop)
    return tail


def _find_end(
    log: LogView,
    start: OffsetFile,
    checks: Check,
    on_bytes: Callable[[int], None] | None = None,
    *,
    on_chunk: Callable[[Chunk], None] | None,
    after_crash: bool,
) -> Tail:
    torn_end = TornEnd()

    def take(chunk: Chunk) -> None:
        torn_end.take(chunk)
        if on_chunk is not None:
            on_chunk(chunk)
        if on_bytes is not None:
            on_bytes(int(chunk.columns["size"].sum()))

    end, stop = _walk_on(log, start.base_offset, checks, take)
    while stop is not None and stop.reason not in _ORDINARY_ENDS:
        again_end, again_stop = _walk_on(log, stop.physical_offset, checks, take)
        if again_end <= stop.physical_offset:
            stop = again_stop or stop
            break
        end, stop = again_end, again_stop
    if after_crash:
        # Compat: RocketMQ takes the record, since the checksum of its body is right.
        stop = torn_end.stop() or stop
    return Tail(end if stop is None else stop.physical_offset, start.base_offset, stop)


def recheck_end(
    log: LogView, tail: Tail, checks: Check, *, passes_zeros: bool = False
) -> tuple[Tail, int | None]:
    """Read the end again where good records follow a bad one: it may have been half written.

    A writer appends in order, so one that is still bad once others stand behind it stays bad. With
    `passes_zeros` the same is asked of zeros, which otherwise are the ordinary end of a log.

    Returns:
        The true end, and the offset of a good record behind it before that last read.
    """
    while (behind := records_behind(log, tail, passes_zeros=passes_zeros)) is not None:
        end, stop = _walk_on(log, tail.end_offset, checks, None)
        if end <= tail.end_offset:
            return tail, behind
        end = end if stop is None else stop.physical_offset
        tail = Tail(end, tail.started_at, stop, tail.passed)
    return tail, None


def _walk_on(
    log: LogView, begin: int, checks: Check, on_chunk: Callable[[Chunk], None] | None
) -> tuple[int, Stop | None]:
    """Return the end of the last good record, and what stopped the walk."""
    end = begin
    for step in log.walk(begin, checks=checks):
        if isinstance(step, Stop):
            return end, step
        last = step.columns.rows[-1]
        end = int(last["physical_offset"] + last["size"])
        if on_chunk is not None:
            on_chunk(step)
    return end, None


def records_behind(log: LogView, tail: Tail, *, passes_zeros: bool = False) -> int | None:
    """Return the offset of a well-formed record behind the end of the log; None if none is there.

    A torn end has none. One with a good checksum that claims the very place where it lies was
    written there, and the cut loses it.
    """
    if tail.stop_is_ordinary and not passes_zeros:
        return None
    for file in log.files:
        if file.base_offset + file.size > tail.end_offset:
            found = search(log, file, max(tail.end_offset + 1, file.base_offset))
            if found is not None:
                return found
    return None


def search(log: LogView, file: OffsetFile, offset: int) -> int | None:
    """Return the first well-formed record of a file from an offset on that claims its place."""
    end = file.base_offset + file.size
    checks = Check.OFFSET | Check.BODY_CRC
    written = log.written_ranges(offset, end)
    return next_record(
        log.read, written, (offset, end), checks=checks, budget=log.search_budget(file)
    )


def report_cut(tail: Tail, behind: int | None, damage: Damage) -> bool:
    """Report a well-formed record behind the end of the log; tell whether there is one."""
    if tail.passed is not None:
        path, position = tail.passed.file.path, tail.passed.file_position
        damage.report(path, position, f"{reason_text(tail.passed.reason)}; the log goes on behind")
    if behind is not None and tail.stop is not None:
        damage.report(
            tail.stop.file.path,
            tail.stop.file_position,
            f"{reason_text(tail.stop.reason)}; the log is cut here as a start would cut it, and "
            f"good records from {behind} on are left out",
        )
    return behind is not None
