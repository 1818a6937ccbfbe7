"""TimerFiles: the log, wheel and checkpoint of the timer."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import structs

from rocketlake import failpoint
from rocketlake.clock import Clock
from rocketlake.delay.timer_log import TimerLog
from rocketlake.delay.timer_rules import TimerRules
from rocketlake.delay.timer_wheel import TimerWheel
from rocketlake.errors import FlushFailedError
from rocketlake.files.ops import FileOps
from rocketlake.format import layout, names
from rocketlake.format.timer import TimerCheckpoint

log = logging.getLogger(__name__)

_SNAPSHOT: Final = re.compile(re.escape(names.TIMER_WHEEL) + r"\.\d+(\.tmp)?")


class TimerFiles:
    """The files of the timer, created for its first message.

    Thread-safety: only the thread of the timer.

    Durability: records that units point to, and delivered messages, are on the disk before the
    units and the progress; log and wheel are on the disk before the checkpoint that covers them.
    After a failed flush nothing more is written: the next start continues from the last checkpoint.
    """

    def __init__(
        self,
        ops: FileOps,
        clock: Clock,
        root: Path,
        rules: TimerRules,
        *,
        flush_log: Callable[[], None],
    ) -> None:
        """`flush_log` brings every record that was appended so far to the disk, or raises."""
        self._ops = ops
        self._flush_log = flush_log
        self._root = root
        self._path = root / names.CONFIG / names.TIMER_CHECK
        self.log = TimerLog(ops, clock, root / names.TIMER_LOG, rules.log_file_size)
        self.wheel = TimerWheel(ops, root / names.TIMER_WHEEL, rules.precision_ms)
        self.checkpoint = TimerCheckpoint()
        self.had_wheel = False
        self._is_failed = False

    @property
    def exist(self) -> bool:
        """Whether a timer was used here before."""
        return self.wheel.exists or self._ops.stat(self._path) is not None

    def open(self, read_time: int) -> None:
        """Open the files, and make those that are missing; `read_time` is the slot of now.

        Raises:
            FileSizeError: one has not the size that it should have.
            DiskFullError: there is no space for a new one.
        """
        self._ops.mkdirs(self._path.parent)
        self.had_wheel = self.wheel.exists
        self._read_checkpoint()
        if not self.had_wheel and not self.checkpoint.last_read_time:
            # Order: before there is a wheel. A wheel without a checkpoint does not tell which slots
            # were delivered: after a crash and a long pause, some that were not would be left out.
            self._write_checkpoint(structs.replace(self.checkpoint, last_read_time=read_time))
        self.log.load()
        self.wheel.open()

    @property
    def snapshots(self) -> list[Path]:
        """The wheels that RocketMQ 5.5 keeps in files of their own (`timerWheelSnapshotFlush`).

        The wheel itself says nothing then.
        """
        entries = self._ops.entries(self._root)
        return [entry.path for entry in entries if _SNAPSHOT.fullmatch(entry.name)]

    def flush(self, checkpoint: TimerCheckpoint) -> bool:
        """Have log and wheel on the disk, then the checkpoint that speaks of them; False if failed.

        Raises:
            DiskFullError: there is no space; it can be tried again.
            StoreError: the commit log cannot be flushed; nothing was written.
        """
        if self._is_failed:
            return False
        # Order: records before the units that point to them and the progress that drops them.
        self._flush_log()
        try:
            self.log.flush()
            self.wheel.flush()
            self._write_checkpoint(checkpoint)
        except FlushFailedError:
            log.critical("timer files cannot be flushed; their progress is no longer written")
            self._is_failed = True
            return False
        return True

    def cap_progress(self, end: int) -> int | None:
        """Set progress beyond the end of the timer's queue to that end, on the disk.

        Returns the progress as it was; None if there was nothing to do. The other files are not
        looked at.
        """
        self._read_checkpoint()
        found = self.checkpoint
        highest = max(found.queue_offset, found.primary_queue_offset)
        if highest <= end:
            return None
        self._write_checkpoint(
            structs.replace(
                found,
                queue_offset=min(found.queue_offset, end),
                primary_queue_offset=min(found.primary_queue_offset, end),
            )
        )
        return highest

    def discard(self) -> None:
        """Remove log and wheel, and create an empty wheel."""
        # Order: the log first. Without it the checkpoint shows that units are lost, whatever else a
        # crash leaves.
        self.log.destroy()
        self.wheel.destroy()
        for path in self.snapshots:
            self._ops.unlink(path)
        self.wheel.open()

    def close(self) -> None:
        """Close all files; nothing is flushed."""
        self.log.close()
        self.wheel.close()

    def _read_checkpoint(self) -> None:
        if self._ops.stat(self._path) is None:
            return
        reader = self._ops.open_reader(self._path)
        try:
            self.checkpoint = TimerCheckpoint.decode(reader.read(0, layout.CHECKPOINT_SIZE))
        finally:
            reader.close()

    def _write_checkpoint(self, checkpoint: TimerCheckpoint) -> None:
        failpoint.hit("checkpoint.before")
        entry = self._ops.stat(self._path)
        if entry is None:
            writer = self._ops.create(self._path, layout.CHECKPOINT_SIZE)
            self._ops.sync_dir(self._path.parent)
        else:
            writer = self._ops.open_writer(self._path)
        try:
            # All nonzero bytes are in one sector, which is written as a whole or not at all.
            writer.write(0, checkpoint.encode())
            writer.sync()
        finally:
            writer.close()
        failpoint.hit("checkpoint.after")
        self.checkpoint = checkpoint
