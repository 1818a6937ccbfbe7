"""Recovery of the timer: where it continues after a start.

1. Units after the checkpoint are read from the timer log, as long as they are complete and their
   records exist, and entered into the wheel.
2. The timer queue is read from the offset in the checkpoint on. Messages that have a unit are
   skipped.
3. If units that the checkpoint covers are lost, log and wheel are rebuilt from the queue. Messages
   whose slot was delivered before are left out.
"""

import logging
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from rocketlake.delay.store_access import DelayStore
from rocketlake.delay.timer_files import TimerFiles
from rocketlake.delay.timer_rules import TIMER_QUEUE, TimerRules
from rocketlake.format import layout
from rocketlake.format.timer import MAGIC_DELETE, TimerCheckpoint

log = logging.getLogger(__name__)

_UNIT: Final = layout.TIMER_UNIT_SIZE
_WHEEL_TURN_SLOTS: Final = layout.WHEEL_SLOTS // 2 - 60


class TimerStart(Struct, frozen=True, kw_only=True):
    """Where the timer continues."""

    read_time: int
    """Slots before this time were delivered."""
    queue_offset: int
    """The next message of the timer queue to enter."""
    seen_to: int = 0
    """Messages before this queue offset had units before the log was lost."""
    due_times: tuple[int, ...] = ()
    """Times of waiting slots, in order."""
    entered: frozenset[int] = frozenset()
    """Physical offsets of messages from `queue_offset` on that have their units already."""


def recover(files: TimerFiles, store: DelayStore, rules: TimerRules, now: int) -> TimerStart:
    """Repair log and wheel, and return where to continue."""
    checkpoint = files.checkpoint
    # Why: without a checkpoint it is unknown what was delivered; the reference looks back this far.
    first_time = rules.floor(now) - _WHEEL_TURN_SLOTS * rules.precision_ms
    read_time = checkpoint.last_read_time or first_time
    end, entered = _enter_units(files, store, read_time)
    files.log.truncate(end)
    waiting = files.wheel.due_from(read_time)
    reason = _find_loss(files, store, end, waiting)
    if reason is not None:
        log.warning("timer has lost units reason=%s", reason)
        return rebuild(files, store, read_time, seen_to=_seen_to(checkpoint, store))
    return TimerStart(
        read_time=read_time,
        queue_offset=_next_offset(files, store),
        entered=entered,
        seen_to=_seen_to(checkpoint, store),
        due_times=tuple((waiting["time"].astype(np.int64) * rules.precision_ms).tolist()),
    )


def _seen_to(checkpoint: TimerCheckpoint, store: DelayStore) -> int:
    """Return how far the queue was read when log and wheel were lost, now or in an earlier run.

    Compat: RocketMQ, other than on a replica, has both offsets at one value.
    """
    seen_to = max(checkpoint.queue_offset, checkpoint.primary_queue_offset)
    return min(seen_to, store.dispatched_bounds(TIMER_QUEUE)[1])


def rebuild(files: TimerFiles, store: DelayStore, read_time: int, *, seen_to: int) -> TimerStart:
    """Remove log and wheel, and enter all messages of the queue again.

    Those before `seen_to` whose slot was before `read_time` were delivered.
    """
    start, _ = store.dispatched_bounds(TIMER_QUEUE)
    log.warning("timer is rebuilt from its queue queue_offset=%d read_time=%d", start, read_time)
    files.discard()
    # Order: before new units. The old checkpoint covers units up to a position that the new ones
    # soon reach; a crash could then lose any of them unnoticed.
    files.flush(
        structs.replace(
            files.checkpoint,
            last_read_time=read_time,
            flushed_position=0,
            queue_offset=start,
            primary_queue_offset=seen_to,
        )
    )
    return TimerStart(read_time=read_time, queue_offset=start, seen_to=seen_to)


def _enter_units(
    files: TimerFiles, store: DelayStore, read_time: int
) -> tuple[int, frozenset[int]]:
    """Enter units that the wheel may lack.

    Returns where the valid units end, and the physical offsets of their messages.
    """
    end = files.log.min_position
    entered: set[int] = set()
    log_end = store.log_bounds()[1]
    for position, units in files.log.walk(files.checkpoint.flushed_position):
        reach = units["physical_offset"] + units["record_size"]
        is_lost = reach > log_end
        count = int(np.argmax(is_lost)) if is_lost.any() else len(units)
        _enter_run(files, position, units[:count], read_time)
        entered.update(units["physical_offset"][:count].tolist())
        end = position + count * _UNIT
        if count < len(units):
            log.warning("timer log cut position=%d reason=its records are lost", end)
            break
    return end, frozenset(entered)


def _enter_run(
    files: TimerFiles, position: int, units: npt.NDArray[np.void], read_time: int
) -> None:
    due = units["write_time"] + units["delay"]
    for row in np.flatnonzero(due >= read_time).tolist():
        slot = files.wheel.slot(int(due[row]))
        at = position + row * _UNIT
        if slot is None or slot.last_position < at:
            is_delete = bool(units["magic"][row] & MAGIC_DELETE)
            files.wheel.put(int(due[row]), position=at, is_delete=is_delete, is_first=slot is None)


def _find_loss(
    files: TimerFiles, store: DelayStore, end: int, waiting: npt.NDArray[np.void]
) -> str | None:
    """Describe a loss of units in the wheel or the checkpoint; None without one."""
    last = files.log.last_unit()
    if last is not None and last.physical_offset + last.record_size > store.log_bounds()[1]:
        # Other records replace the lost ones, and units would point to those.
        return f"the last unit points beyond the end of the log, to {last.physical_offset}"
    if files.checkpoint.flushed_position > end:
        return f"units up to {files.checkpoint.flushed_position} were written, {end} is the end"
    if not files.had_wheel and last is not None:
        return "there is a timer log, but no wheel"
    if files.snapshots:
        return "the wheel was kept in snapshots (timerWheelSnapshotFlush)"
    if len(waiting) and int(waiting["last_position"].max()) >= end:
        return f"the wheel points beyond the end of the log at {end}"
    return None


def _next_offset(files: TimerFiles, store: DelayStore) -> int:
    # Compat: the reference continues after the message of the last unit. An earlier message may
    # have been late for a unit: it was delivered at once, and the crash may have lost the delivered
    # copy while the unit survived.
    offset = files.checkpoint.queue_offset
    start, end = store.dispatched_bounds(TIMER_QUEUE)
    right = min(max(offset, start), end)
    if right != offset:
        log.warning("progress of the timer corrected from=%d to=%d", offset, right)
    return right
